//! `GET /dashboard`, and the files below it, as the build has packed them.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Uri, header::CONTENT_SECURITY_POLICY};

use crate::http::{
    edge::RequestContext,
    extract::AcceptsHtml,
    problem::{Problem, ProblemCode},
    state::{AppState, BasePath},
};

use super::file::{File, mark};

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
    page(&gateway, &headers)
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
        Some(_) if path == "index.html" => page(&gateway, &headers),
        Some(file) => file.answer(&headers),
        None if is_view(path) => page(&gateway, &headers),
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

/// Nothing from elsewhere, and nothing in the page itself: what callers have written (names, owners,
/// metadata) cannot become a script or a style.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; font-src 'self'; base-uri 'self'; form-action 'self'; \
     frame-ancestors 'none'",
);

/// What all addresses in the page are relative to, as the file has it.
const BASE: &str = "<base href=\"/dashboard/\">";

/// The page as a gateway serves it.
fn page(gateway: &AppState, asked: &HeaderMap) -> Response {
    let page = gateway.page.get_or_init(|| index(&gateway.base_path));
    let policy = [(CONTENT_SECURITY_POLICY, POLICY)];
    (policy, page.answer(asked)).into_response()
}

/// `index.html` with the path of a gateway in it.
fn index(base_path: &BasePath) -> File {
    let index = file("index.html").expect("the build has packed the page");
    if base_path.as_str().is_empty() {
        return index;
    }
    let text = String::from_utf8_lossy(&index.plain);
    let text = text.replace(BASE, &format!("<base href=\"{base_path}/dashboard/\">"));
    File {
        mark: mark(text.as_bytes()),
        plain: Bytes::from(text),
        // A few kilobytes; all else is compressed wherever it is.
        gzip: None,
        ..index
    }
}

/// A file as the build writes it down.
struct Packed {
    /// The path below `dashboard/`.
    path: &'static str,
    media: &'static str,
    mark: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
}

/// In the order of their paths.
const FILES: &[Packed] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// The file at a path below `/dashboard/`.
pub(in crate::http) fn file(path: &str) -> Option<File> {
    let at = FILES
        .binary_search_by(|packed| packed.path.cmp(path))
        .ok()?;
    let packed = &FILES[at];
    Some(File {
        media: packed.media,
        mark: packed.mark.to_owned(),
        plain: Bytes::from_static(packed.plain),
        gzip: packed.gzip.map(Bytes::from_static),
    })
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

    fn text(base_path: &str) -> String {
        let page = index(&BasePath::new(base_path));
        String::from_utf8(page.plain.to_vec()).unwrap()
    }

    #[test]
    fn says_where_it_is() {
        assert_eq!(text("").matches(BASE).count(), 1);
        let below = text("/a/b");
        assert_eq!(below.matches("<base ").count(), 1);
        assert!(below.contains("<base href=\"/a/b/dashboard/\">"), "{below}");
    }

    #[test]
    fn every_file_is_found_at_its_path_and_no_other() {
        for packed in FILES {
            let found = file(packed.path).unwrap();
            assert_eq!(found.plain, packed.plain, "{}", packed.path);
            assert!(!packed.mark.is_empty() && !packed.media.is_empty());
        }
        for path in [
            "",
            "/",
            "nope.js",
            "../Cargo.toml",
            "INDEX.HTML",
            "README.md",
        ] {
            assert!(file(path).is_none(), "{path}");
        }
        assert!(file("index.html").is_some());
    }
}
