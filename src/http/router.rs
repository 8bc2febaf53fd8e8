//! Every route, on one page.

use std::sync::Arc;

use axum::{
    Router,
    routing::{any, get},
};
use http::Uri;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    dashboard, docs,
    edge::EdgeLayer,
    events, health, index, locks,
    methods::{answering, complete},
    metrics, openapi,
    problem::{self, Problem, ProblemCode},
    session,
    state::Gateway,
    stats,
};

/// The whole service.
pub fn router(gateway: impl Into<Arc<Gateway>>) -> Router {
    let gateway = gateway.into();
    let base_path = gateway.base_path.clone();
    let edge = EdgeLayer::new(
        base_path.clone(),
        &gateway.config,
        gateway.gate.is_open(),
        gateway.audit.clone(),
        gateway.engine.metrics().clone(),
        gateway.tracer.clone(),
    );
    let (routes, _) = described(&edge).split_for_parts();
    let routes = routes
        .merge(docs::assets(&edge))
        .merge(dashboard::files(&edge));
    let routes = match base_path.as_str() {
        "" => routes,
        base_path => {
            // Nesting puts the index at the prefix without a slash only.
            let index = answering(get(index::index), "GET, HEAD").layer(edge.at("/"));
            Router::new()
                .nest(base_path, routes)
                .route(&format!("{base_path}/"), index)
        }
    };
    routes
        .with_state(gateway)
        .fallback_service(any(not_found).layer(edge))
}

/// What is served on an address of its own for metrics: them, and nothing else.
pub fn metrics_router(gateway: impl Into<Arc<Gateway>>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::metrics_for_all))
        .with_state(gateway.into())
}

/// The routes that the OpenAPI document describes.
pub(super) fn described(edge: &EdgeLayer) -> OpenApiRouter<Arc<Gateway>> {
    let locks = routes!(locks::acquire, locks::inspect, locks::release);
    let session = routes!(session::show, session::sign_in, session::sign_out);
    OpenApiRouter::with_openapi(openapi::preface())
        .routes(complete(locks, edge))
        .routes(complete(routes!(locks::renew), edge))
        .routes(complete(routes!(locks::release_by_post), edge))
        .routes(complete(routes!(locks::hold), edge))
        .routes(complete(routes!(locks::list), edge))
        .routes(complete(routes!(locks::break_lock), edge))
        .routes(complete(routes!(events::events), edge))
        .routes(complete(session, edge))
        .routes(complete(routes!(health::healthz), edge))
        .routes(complete(routes!(health::readyz), edge))
        .routes(complete(routes!(metrics::metrics), edge))
        .routes(complete(routes!(stats::stats), edge))
        .routes(complete(routes!(openapi::openapi_json), edge))
        .routes(complete(routes!(docs::docs), edge))
        .routes(complete(routes!(dashboard::dashboard), edge))
        .routes(complete(routes!(problem::problem_page), edge))
        .routes(complete(routes!(index::index), edge))
}

async fn not_found(uri: Uri) -> Problem {
    let detail = if uri.path().ends_with("/locks/") {
        "The lock has no name. A lock is /locks/NAME, where NAME is not empty."
    } else {
        "No route has this path."
    };
    Problem::new(ProblemCode::NotFound, detail)
}
