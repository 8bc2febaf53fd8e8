//! `GET /dashboard`, and the files below it.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Uri};

use crate::http::{
    edge::RequestContext,
    extract::AcceptsHtml,
    problem::{Problem, ProblemCode},
    state::AppState,
};

use super::files::file;

/// The page that shows the locks to people
///
/// Who holds which lock, who waits, what happens, and the means to break a lock. It uses the routes that
/// are described here, and nothing else; with API keys it asks for one (`POST /session`).
#[utoipa::path(
    get,
    path = "/dashboard",
    operation_id = "getDashboard",
    tag = "documentation",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html",
         headers(("ETag", description = "The name of this version of the page."),
                 ("Cache-Control", description = "Always `no-cache`."))),
        (status = 304, description = "The page has not changed since the version that \
         `If-None-Match` names.",
         headers(("ETag", description = "The name of this version of the page."),
                 ("Cache-Control", description = "Always `no-cache`."))),
    )
)]
pub(in crate::http) async fn dashboard(
    State(gateway): State<Arc<AppState>>,
    headers: HeaderMap,
    _: AcceptsHtml,
) -> Response {
    gateway.page.answer(&headers)
}

/// The parts of the page that have a path of their own. A lock's name, with dots or not, stands below
/// the first of them.
const VIEWS: [&str; 3] = ["locks", "events", "sign-in"];

/// What the page loads, and the page itself under the paths that it shows in the address bar.
pub(in crate::http) async fn below(
    State(gateway): State<Arc<AppState>>,
    context: RequestContext,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = context.parameter(uri.path()).unwrap_or_default();
    match file(path) {
        Some(_) if path == "index.html" => gateway.page.answer(&headers),
        Some(file) => file.answer(&headers),
        None if is_view(path) => gateway.page.answer(&headers),
        None => {
            Problem::new(ProblemCode::NotFound, "The dashboard has no such file.").into_response()
        }
    }
}

/// Whether a path is for the page to understand. A script that is missing is missing, and not the
/// page.
fn is_view(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    VIEWS.contains(&first) || !path.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_file_is_the_page_unless_it_looks_like_a_file() {
        for view in [
            "",
            "locks",
            "locks/a",
            "locks/a.b.js",
            "events",
            "sign-in",
            "nope",
        ] {
            assert!(is_view(view), "{view}");
        }
        for file in ["app.js", "vendor/x.js", "vendor/preact@1.2/x", "a.b/c"] {
            assert!(!is_view(file), "{file}");
        }
    }
}
