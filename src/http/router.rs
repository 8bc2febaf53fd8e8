//! Every route, on one page.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    handler::Handler,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{Method, Uri};
use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    dashboard, docs,
    edge::{EdgeService, FindDirect},
    events,
    extract::AcceptsJson,
    health, index,
    json_response::JSON,
    locks,
    methods::{answering, complete},
    metrics,
    openapi::{completed, preface, rendered},
    problem::{self, Problem, ProblemCode},
    session,
    state::AppState,
    stats,
};

/// The whole service.
pub fn service(gateway: impl Into<Arc<AppState>>) -> EdgeService {
    let gateway = gateway.into();
    let base_path = gateway.base_path.as_str();
    let (routes, document) = described().split_for_parts();
    let templates = document.paths.paths.into_keys();
    let templates =
        templates.chain([docs::ASSETS, dashboard::PAGE, dashboard::FILES].map(str::to_owned));
    let routes = routes.merge(docs::assets()).merge(dashboard::files());
    let routes = match base_path {
        "" => routes,
        base_path => {
            // Nesting puts the index at the prefix without a slash only.
            let index = answering(get(index::index), "GET, HEAD");
            Router::new()
                .nest(base_path, routes)
                .route(&format!("{base_path}/"), index)
        }
    };
    let routes = routes.fallback(not_found).with_state(Arc::clone(&gateway));
    EdgeService::new(gateway, templates, direct, routes)
}

/// The operations that most requests are for. They are called without a router in between, which costs as
/// much as all of the edge. The router has them too, for its answers to other methods.
fn direct(template: &str) -> Option<FindDirect> {
    match template {
        "/locks/{name}" => Some(|method| match *method {
            Method::POST => Some(|request, gateway| locks::acquire.call(request, gateway)),
            Method::GET => Some(|request, gateway| locks::inspect.call(request, gateway)),
            Method::DELETE => Some(|request, gateway| locks::release.call(request, gateway)),
            _ => None,
        }),
        "/locks/{name}/renew" => Some(|method| match *method {
            Method::PUT => Some(|request, gateway| locks::renew.call(request, gateway)),
            _ => None,
        }),
        "/locks/{name}/release" => Some(|method| match *method {
            Method::POST => Some(|request, gateway| locks::release_by_post.call(request, gateway)),
            _ => None,
        }),
        _ => None,
    }
}

/// What is served on an address of its own for metrics: them, and nothing else.
pub fn metrics_router(gateway: impl Into<Arc<AppState>>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::metrics_for_all))
        .with_state(gateway.into())
}

/// The routes that the OpenAPI document describes.
fn described() -> OpenApiRouter<Arc<AppState>> {
    let locks = routes!(locks::acquire, locks::inspect, locks::release);
    let session = routes!(session::show, session::sign_in, session::sign_out);
    OpenApiRouter::with_openapi(preface())
        .routes(complete(locks))
        .routes(complete(routes!(locks::renew)))
        .routes(complete(routes!(locks::release_by_post)))
        .routes(complete(routes!(locks::hold)))
        .routes(complete(routes!(locks::list)))
        .routes(complete(routes!(locks::break_lock)))
        .routes(complete(routes!(events::events)))
        .routes(complete(session))
        .routes(complete(routes!(health::healthz)))
        .routes(complete(routes!(health::readyz)))
        .routes(complete(routes!(metrics::metrics)))
        .routes(complete(routes!(stats::stats)))
        .routes(complete(routes!(openapi_json)))
        .routes(complete(routes!(docs::docs)))
        .routes(complete(routes!(dashboard::dashboard)))
        .routes(complete(routes!(problem::problem_page)))
        .routes(complete(routes!(index::index)))
}

/// The OpenAPI document of a gateway with the default configuration.
pub fn openapi() -> OpenApi {
    let (_, document) = described().split_for_parts();
    completed(document)
}

/// Get this document
///
/// The OpenAPI document of this gateway, with its own limits and its own base path.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "documentation",
    responses((status = 200, body = serde_json::Value, description = "The document."))
)]
pub(super) async fn openapi_json(
    State(gateway): State<Arc<AppState>>,
    _: AcceptsJson,
) -> Result<Response, Problem> {
    let render = || rendered(openapi(), &gateway.base_path, &gateway.config.limits);
    Ok((JSON, gateway.document(render)).into_response())
}

async fn not_found(uri: Uri) -> Problem {
    let detail = if uri.path().ends_with("/locks/") {
        "The lock has no name. A lock is /locks/NAME, where NAME is not empty."
    } else {
        "No route has this path."
    };
    Problem::new(ProblemCode::NotFound, detail)
}
