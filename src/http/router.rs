//! Every route, on one page.

use std::sync::Arc;

use axum::{Router, handler::Handler, routing::get};
use http::{Method, Uri};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    dashboard, docs,
    edge::{EdgeService, FindDirect},
    events, health, index, locks,
    methods::{answering, complete},
    metrics, openapi,
    problem::{self, Problem, ProblemCode},
    session,
    state::Gateway,
    stats,
};

/// The whole service.
pub fn service(gateway: impl Into<Arc<Gateway>>) -> EdgeService {
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

/// The same as a router, for those who put it among other routes.
pub fn router(gateway: impl Into<Arc<Gateway>>) -> Router {
    Router::new().fallback_service(service(gateway))
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
pub fn metrics_router(gateway: impl Into<Arc<Gateway>>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::metrics_for_all))
        .with_state(gateway.into())
}

/// The routes that the OpenAPI document describes.
pub(super) fn described() -> OpenApiRouter<Arc<Gateway>> {
    let locks = routes!(locks::acquire, locks::inspect, locks::release);
    let session = routes!(session::show, session::sign_in, session::sign_out);
    OpenApiRouter::with_openapi(openapi::preface())
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
        .routes(complete(routes!(openapi::openapi_json)))
        .routes(complete(routes!(docs::docs)))
        .routes(complete(routes!(dashboard::dashboard)))
        .routes(complete(routes!(problem::problem_page)))
        .routes(complete(routes!(index::index)))
}

async fn not_found(uri: Uri) -> Problem {
    let detail = if uri.path().ends_with("/locks/") {
        "The lock has no name. A lock is /locks/NAME, where NAME is not empty."
    } else {
        "No route has this path."
    };
    Problem::new(ProblemCode::NotFound, detail)
}
