//! The table of routes: every operation of the service, on one page.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::HeaderMap;
use utoipa::openapi::OpenApi;

use super::{
    backup,
    base_path::BasePath,
    dashboard, docs,
    edge::{
        Class::{Holds, Listens, Probes, Releases, Renews, Scrapes},
        EdgeService, Operation, row,
    },
    events,
    extract::AcceptsJson,
    health, index, locks, metrics,
    openapi::{document, rendered},
    problem::{
        self, ProblemCode as Code,
        groups::{BODY, GRANT, HOLDER, KEY, LEASE, LOOK, TOKEN, TTL, WRITE},
    },
    session,
    state::AppState,
    stats,
};

/// Every operation. Those of one path stand together, in the order in which `Allow` names their methods.
///
/// Method and path are in the attribute of the handler, and the permission is in its signature. A row has the problems
/// besides those that the edge answers for every operation, and whatever is not usual: how its requests are treated, and
/// a body that may be left out.
#[expect(
    clippy::too_many_lines,
    reason = "it is a table, and each operation a row"
)]
fn operations() -> Vec<Operation> {
    vec![
        row(locks::__path_list, locks::list, &[KEY, LOOK]),
        row(
            locks::__path_acquire_group,
            locks::acquire_group,
            &[KEY, BODY, TTL, GRANT, WRITE],
        ),
        row(
            locks::__path_renew_group,
            locks::renew_group,
            &[KEY, BODY, TTL, LEASE, WRITE],
        )
        .class(Renews)
        .optional_body(),
        row(
            locks::__path_release_group,
            locks::release_group,
            &[TOKEN, LEASE, WRITE],
        )
        .class(Releases),
        row(locks::__path_inspect, locks::inspect, &[KEY, LOOK]),
        row(
            locks::__path_acquire,
            locks::acquire,
            &[KEY, BODY, TTL, GRANT, WRITE],
        )
        .optional_body(),
        row(
            locks::__path_release,
            locks::release,
            &[TOKEN, BODY, LEASE, WRITE],
        )
        .class(Releases),
        row(
            locks::__path_renew,
            locks::renew,
            &[KEY, BODY, TTL, LEASE, WRITE],
        )
        .class(Renews)
        .optional_body(),
        row(
            locks::__path_release_by_post,
            locks::release_by_post,
            &[TOKEN, BODY, LEASE, WRITE],
        )
        .class(Releases)
        .optional_body(),
        row(
            locks::__path_hold,
            locks::hold,
            &[KEY, BODY, TTL, GRANT, LEASE, WRITE],
        )
        .class(Holds)
        .optional_body(),
        row(
            locks::__path_break_lock,
            locks::break_lock,
            &[KEY, BODY, HOLDER, WRITE],
        ),
        row(
            events::__path_events,
            events::events,
            &[KEY, &[Code::Draining]],
        )
        .class(Listens),
        row(
            session::__path_show,
            session::show,
            &[&[Code::Unauthorized, Code::RateLimited]],
        ),
        row(
            session::__path_sign_in,
            session::sign_in,
            &[
                &[Code::Unauthorized, Code::OriginRefused, Code::RateLimited],
                BODY,
            ],
        ),
        row(
            session::__path_sign_out,
            session::sign_out,
            &[&[Code::OriginRefused]],
        ),
        row(health::__path_healthz, health::healthz, &[]).class(Probes),
        row(health::__path_readyz, health::readyz, &[]).class(Probes),
        row(metrics::__path_metrics, metrics::metrics, &[KEY]).class(Scrapes),
        row(stats::__path_stats, stats::stats, &[KEY]),
        row(
            backup::__path_backup,
            backup::backup,
            &[
                KEY,
                &[
                    Code::WrongStore,
                    Code::StoreUnavailable,
                    Code::Draining,
                    Code::OutcomeUnknown,
                ],
            ],
        ),
        row(__path_openapi_json, openapi_json, &[]),
        row(docs::__path_docs, docs::docs, &[]),
        Operation::of_file("/docs/{*asset}", docs::asset),
        row(dashboard::__path_dashboard, dashboard::dashboard, &[]),
        Operation::of_file("/dashboard/", dashboard::below),
        Operation::of_file("/dashboard/{*path}", dashboard::below),
        row(
            problem::__path_problem_page,
            problem::problem_page,
            &[&[Code::NotFound]],
        ),
        row(index::__path_index, index::index, &[]),
    ]
}

/// The whole service.
pub fn service(gateway: impl Into<Arc<AppState>>) -> EdgeService {
    let gateway = gateway.into();
    let base_path = gateway.base_path.clone();
    EdgeService::new(gateway, &base_path, operations())
}

/// What is served on an address of its own for metrics: them, without a key, and nothing else.
pub fn metrics_service(gateway: Arc<AppState>) -> EdgeService {
    let metrics = Operation::of_file("/metrics", metrics::metrics_for_all).class(Probes);
    EdgeService::new(gateway, &BasePath::new(""), [metrics])
}

/// The OpenAPI document of a gateway with the default configuration.
pub fn openapi() -> OpenApi {
    document(&operations())
}

/// Get this document
///
/// The OpenAPI document of this gateway, with its own limits and its own base path.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getOpenapi",
    tag = "documentation",
    params(("If-None-Match" = Option<String>, Header, nullable = false,
            description = "The `ETag` of an earlier answer.")),
    responses(
        (status = 200, body = serde_json::Value, description = "The document.",
         headers(("ETag", description = "The name of this version of the document."),
                 ("Cache-Control", description = "Always `no-cache`."))),
        (status = 304, description = "The document has not changed since the version that \
         `If-None-Match` names.",
         headers(("ETag", description = "The name of this version of the document."),
                 ("Cache-Control", description = "Always `no-cache`."))),
    )
)]
pub(super) async fn openapi_json(
    State(gateway): State<Arc<AppState>>,
    headers: HeaderMap,
    _: AcceptsJson,
) -> Response {
    let render = || rendered(openapi(), &gateway.base_path, &gateway.config.limits);
    gateway.document(render).answer(&headers)
}
