//! Pages that the binary contains: the dashboard, as the build has packed it; the page from which every route
//! can be tried; and `GET /`, which says where everything is.

use std::{borrow::Cow, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE},
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_swagger_ui::Config;

use super::{
    edge::RequestContext,
    extract::{AcceptsHtml, AcceptsJson},
    file::{File, mark},
    json_response::JsonResponse,
    problem::{Problem, ProblemCode},
    state::{AppState, BasePath},
};

/// The page that shows the locks to people
///
/// The dashboard shows holders, waiters and events, and can break a lock. It uses the routes that are
/// described here, and no others; with API keys it asks for one (`POST /session`).
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

/// Parts of the dashboard that have a path of their own. The name of a lock, with dots or not, stands below
/// the first path.
const VIEWS: [&str; 3] = ["locks", "events", "sign-in"];

/// Serves the files of the dashboard, and its page under the paths that the page shows in the address bar.
pub(in crate::http) async fn below(
    State(gateway): State<Arc<AppState>>,
    context: RequestContext,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = context.parameter(uri.path()).unwrap_or_default();
    match dashboard_file(path) {
        Some(_) if path == "index.html" => page(&gateway, &headers),
        Some(file) => file.answer(&headers),
        None if is_view(path) => page(&gateway, &headers),
        None => {
            Problem::new(ProblemCode::NotFound, "The dashboard has no such file.").into_response()
        }
    }
}

/// Whether a path below `/dashboard/` is a view, for which the dashboard's page is served. Other paths are
/// files: without this, a missing script would be answered with the page.
fn is_view(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    VIEWS.contains(&first) || !path.contains('.')
}

/// Security policy of the dashboard. It loads nothing from elsewhere and allows nothing inline, so texts of
/// callers (names, owners, metadata) cannot become a script or a style.
const DASHBOARD_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; font-src 'self'; base-uri 'self'; form-action 'self'; \
     frame-ancestors 'none'",
);

/// The element of the packed page to which all its addresses are relative.
const BASE: &str = "<base href=\"/dashboard/\">";

/// The dashboard's page as a gateway serves it.
fn page(gateway: &AppState, asked: &HeaderMap) -> Response {
    let page = gateway.page.get_or_init(|| index_page(&gateway.base_path));
    let policy = [(CONTENT_SECURITY_POLICY, DASHBOARD_POLICY)];
    (policy, page.answer(asked)).into_response()
}

/// The file `index.html` with the base path of a gateway in it.
fn index_page(base_path: &BasePath) -> File {
    let index = dashboard_file("index.html").expect("the build has packed the page");
    if base_path.as_str().is_empty() {
        return index;
    }
    let text = String::from_utf8_lossy(&index.plain);
    let text = text.replace(BASE, &format!("<base href=\"{base_path}/dashboard/\">"));
    File {
        mark: mark(text.as_bytes()),
        plain: Bytes::from(text),
        // The page is not compressed again after the base path was put in, because it has only a few
        // kilobytes.
        gzip: None,
        ..index
    }
}

/// A file of the dashboard as the build has packed it.
struct Packed {
    /// The path of the file below `dashboard/`.
    path: &'static str,
    media: &'static str,
    mark: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
}

/// All files of the dashboard, as the build has packed them, in the order of their paths.
const FILES: &[Packed] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// The file at a path below `/dashboard/`.
pub(in crate::http) fn dashboard_file(path: &str) -> Option<File> {
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

/// Security policy of the page `/docs`. It loads nothing from elsewhere and allows nothing inline, but for
/// images in the stylesheet.
const DOCS_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Try the API
///
/// A page that shows every route and sends requests to it. All its files come from this gateway.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "getDocs",
    tag = "documentation",
    responses((status = 200, description = "The page.", body = String, content_type = "text/html"))
)]
pub(in crate::http) async fn docs(
    State(gateway): State<Arc<AppState>>,
    _: AcceptsHtml,
) -> Response {
    let Some((media, page)) = docs_file(&gateway, "index.html") else {
        return missing();
    };
    // The page is at /docs and its parts are below that path, whatever the base path is.
    let page = String::from_utf8_lossy(&page)
        .replace("=\"./", "=\"docs/")
        .replace("=\"index.css", "=\"docs/index.css");
    (media, [(CONTENT_SECURITY_POLICY, DOCS_POLICY)], page).into_response()
}

/// Serves the files that the page `/docs` loads.
pub(in crate::http) async fn asset(
    State(gateway): State<Arc<AppState>>,
    context: RequestContext,
    uri: Uri,
) -> Response {
    match docs_file(&gateway, context.parameter(uri.path()).unwrap_or_default()) {
        Some((media, bytes)) => {
            let keep = [(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"))];
            (media, keep, bytes).into_response()
        }
        None => missing(),
    }
}

/// The style sheet of `/docs` that the page loads last, and the rules that are added to it.
const DOCS_STYLE: (&str, &str) = ("index.css", include_str!("docs.css"));

fn docs_file(gateway: &AppState, name: &str) -> Option<([(HeaderName, HeaderValue); 1], Bytes)> {
    let config = Config::from(format!("{}/openapi.json", gateway.base_path))
        .validator_url("none")
        .display_request_duration(true)
        // The page shows extensions, because they list the problem codes that an operation can answer.
        .show_extensions(true);
    let file = utoipa_swagger_ui::serve(name, Arc::new(config)).ok()??;
    let bytes = match file.bytes {
        bytes if name == DOCS_STYLE.0 => Bytes::from([&bytes, DOCS_STYLE.1.as_bytes()].concat()),
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    };
    let media = HeaderValue::try_from(with_charset(file.content_type)).ok()?;
    Some(([(CONTENT_TYPE, media)], bytes))
}

/// Adds the charset to the media type of a text. Without it, a browser may take UTF-8 for another charset.
fn with_charset(media: String) -> String {
    if media.starts_with("text/") {
        media + "; charset=utf-8"
    } else {
        media
    }
}

fn missing() -> Response {
    Problem::new(ProblemCode::NotFound, "The page has no such part.").into_response()
}

/// The name of the program and the paths of its descriptions.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Index {
    /// The name of the program.
    #[schema(value_type = String, example = "latchgate")]
    name: &'static str,
    /// The version of the program.
    #[schema(value_type = String, example = "0.1.0")]
    version: &'static str,
    /// The path of a page that shows every route and can send requests to it.
    #[schema(example = "/docs")]
    docs: String,
    /// The path of a page that shows the locks.
    #[schema(example = "/dashboard")]
    dashboard: String,
    /// The path of the OpenAPI document.
    #[schema(example = "/openapi.json")]
    openapi: String,
}

/// Find the way
///
/// Names the program and says where its routes are described.
#[utoipa::path(
    get,
    path = "/",
    operation_id = "getIndex",
    tag = "documentation",
    responses((status = 200, body = Index, description = "The program, and the paths of its \
                                                          descriptions."))
)]
pub(in crate::http) async fn index(
    State(gateway): State<Arc<AppState>>,
    _: AcceptsJson,
) -> Result<JsonResponse<Index>, Problem> {
    let base = &gateway.base_path;
    Ok(JsonResponse(Index {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        dashboard: format!("{base}/dashboard"),
        docs: format!("{base}/docs"),
        openapi: format!("{base}/openapi.json"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_at_its_path_and_no_other() {
        for packed in FILES {
            let found = dashboard_file(packed.path).unwrap();
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
            assert!(dashboard_file(path).is_none(), "{path}");
        }
        assert!(dashboard_file("index.html").is_some());
    }
}
