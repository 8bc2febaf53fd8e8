//! What each problem means, as a page and as a chapter of the documentation.

use std::{fmt::Write, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue,
    header::{CONTENT_TYPE, VARY},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::{
    extract::{ApiPath, PathParameter, ProblemPage},
    json_response::JsonResponse,
    state::AppState,
};

use super::{Problem, ProblemCode};

/// What a problem means and what to do about it.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ProblemExplained {
    code: ProblemCode,
    /// The HTTP status of every answer with this code.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The problem in one line.
    #[schema(value_type = String)]
    title: &'static str,
    /// What it means, in Markdown.
    #[schema(value_type = String)]
    meaning: &'static str,
    /// What to do about it, in Markdown.
    #[schema(value_type = String)]
    action: &'static str,
}

/// What a problem means
///
/// The page that the `type` of a problem points to: what it means and what to do about it, as JSON
/// or, for a browser, as HTML.
#[utoipa::path(
    get,
    path = "/problems/{code}",
    operation_id = "explainProblem",
    tag = "documentation",
    params(("code" = ProblemCode, Path, description = "The code of the problem.")),
    responses(
        (status = 200, description = "What the problem means.",
         content((ProblemExplained = "application/json"), (String = "text/html"))),
    )
)]
pub(in crate::http) async fn problem_page(
    State(gateway): State<Arc<AppState>>,
    form: ProblemPage,
    ApiPath(code): ApiPath<ProblemCode>,
) -> Response {
    let mut response = match form {
        ProblemPage::Json => JsonResponse(ProblemExplained::of(code)).into_response(),
        ProblemPage::Html => {
            let headers = [(CONTENT_TYPE, "text/html; charset=utf-8")];
            (headers, html(code, gateway.base_path.as_str())).into_response()
        }
    };
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("Accept"));
    response
}

/// The chapter of the documentation that lists every problem: `docs/problems.md`.
pub fn problems_markdown() -> String {
    let mut text = String::from(
        "# Problems\n\n\
         Whatever is not success is answered as a problem document (RFC 9457) with the media type\n\
         `application/problem+json`. Decide by `code`: the list is closed. `status` and `title` follow from\n\
         it, `detail` says what happened in this case, and `request_id` is what the gateway has logged it\n\
         under. `type` points to the same text as below, served by the gateway.\n\n\
         | status | code | |\n|---|---|---|\n",
    );
    let mut codes = ProblemCode::ALL.to_vec();
    codes.sort_by_key(|code| code.status());
    for code in &codes {
        let (slug, status) = (code.as_str(), code.status().as_u16());
        let _ = writeln!(
            text,
            "| {status} | [`{slug}`](#{slug}) | {} |",
            code.title()
        );
    }
    for code in &codes {
        let _ = write!(
            text,
            "\n## {}\n\n**{} {}.** {}\n\nWhat to do: {}\n",
            code.as_str(),
            code.status().as_u16(),
            code.title(),
            code.meaning(),
            code.action(),
        );
    }
    text
}

// === impl ProblemExplained ===

impl ProblemExplained {
    fn of(code: ProblemCode) -> Self {
        Self {
            code,
            status: code.status().as_u16(),
            title: code.title(),
            meaning: code.meaning(),
            action: code.action(),
        }
    }
}

// === impl ProblemCode ===

impl PathParameter for ProblemCode {
    const NAME: &str = "code";

    fn read(text: &str) -> Result<Self, Problem> {
        Self::from_slug(text)
            .ok_or_else(|| Problem::new(Self::NotFound, "There is no problem with this code."))
    }
}

/// The texts are ours: nothing in them needs escaping, which a test checks.
fn html(code: ProblemCode, base_path: &str) -> String {
    let (slug, status, title) = (code.as_str(), code.status().as_u16(), code.title());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n<p><code>{slug}</code>, status {status}</p>\n\
         <h2>What it means</h2>\n<p>{}</p>\n<h2>What to do</h2>\n<p>{}</p>\n\
         <p><a href=\"{base_path}/docs\">All routes of this gateway</a></p>\n</html>\n",
        inline_markdown(code.meaning()),
        inline_markdown(code.action()),
    )
}

/// The two marks that the texts use: `code` and **strong**.
fn inline_markdown(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 64);
    for (i, part) in text.split('`').enumerate() {
        if i % 2 == 1 {
            let _ = write!(html, "<code>{part}</code>");
            continue;
        }
        for (j, part) in part.split("**").enumerate() {
            if j % 2 == 1 {
                let _ = write!(html, "<strong>{part}</strong>");
            } else {
                html.push_str(part);
            }
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_no_escaping() {
        for code in ProblemCode::ALL {
            for text in [code.title(), code.meaning(), code.action()] {
                assert!(!text.contains(['<', '>', '&', '"']), "{code:?}: {text}");
            }
        }
    }

    #[test]
    fn closes_every_mark() {
        for code in ProblemCode::ALL {
            for text in [code.meaning(), code.action()] {
                assert_eq!(text.matches('`').count() % 2, 0, "{code:?}: {text}");
                assert_eq!(text.matches("**").count() % 2, 0, "{code:?}: {text}");
            }
        }
        assert_eq!(
            inline_markdown("**a** `b` c"),
            "<strong>a</strong> <code>b</code> c"
        );
    }
}
