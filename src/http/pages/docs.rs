//! `GET /docs`: the page from which every route can be tried, with assets from the binary; and `GET /`, which says where
//! everything is.

use std::{borrow::Cow, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Uri,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE},
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_swagger_ui::Config;

use crate::http::{
    edge::RequestContext,
    extract::{AcceptsHtml, AcceptsJson},
    json_response::JsonResponse,
    problem::{Problem, ProblemCode},
    state::AppState,
};

/// Nothing from elsewhere, and nothing in the page itself. The stylesheet has images in it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Try the API
///
/// A page that shows every route and sends requests to it. All it needs comes from this gateway.
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
    let Some((media, page)) = file(&gateway, "index.html") else {
        return missing();
    };
    // The page stands at /docs and its parts below it, whatever the base path is.
    let page = String::from_utf8_lossy(&page)
        .replace("=\"./", "=\"docs/")
        .replace("=\"index.css", "=\"docs/index.css");
    (media, [(CONTENT_SECURITY_POLICY, POLICY)], page).into_response()
}

/// What the page loads.
pub(in crate::http) async fn asset(
    State(gateway): State<Arc<AppState>>,
    context: RequestContext,
    uri: Uri,
) -> Response {
    match file(&gateway, context.parameter(uri.path()).unwrap_or_default()) {
        Some((media, bytes)) => {
            let keep = [(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"))];
            (media, keep, bytes).into_response()
        }
        None => missing(),
    }
}

fn file(gateway: &AppState, name: &str) -> Option<([(HeaderName, HeaderValue); 1], Bytes)> {
    let config = Config::from(format!("{}/openapi.json", gateway.base_path))
        .validator_url("none")
        .display_request_duration(true)
        // The codes that an operation can answer.
        .show_extensions(true);
    let file = utoipa_swagger_ui::serve(name, Arc::new(config)).ok()??;
    let bytes = match file.bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    };
    let media = HeaderValue::try_from(with_charset(file.content_type)).ok()?;
    Some(([(CONTENT_TYPE, media)], bytes))
}

/// A text is UTF-8, and says so: without it a browser may take it for whatever is usual where it is.
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

/// What this is and where to go from here.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Index {
    /// The name of the program.
    #[schema(value_type = String, example = "latchgate")]
    name: &'static str,
    /// Its version.
    #[schema(value_type = String, example = "0.1.0")]
    version: &'static str,
    /// The path of a page that shows every route and lets one try it.
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
    responses((status = 200, body = Index, description = "Where everything is."))
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
