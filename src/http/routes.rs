//! The table of routes: every operation of the service, on one page.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::HeaderMap;
use utoipa::openapi::OpenApi;

use super::{
    edge::{
        Class::{Holds, Listens, Probes, Releases, Renews, Scrapes},
        EdgeService, Operation, row,
    },
    events,
    extract::AcceptsJson,
    locks,
    openapi::{document, rendered},
    ops, pages,
    problem::{self, ProblemCode as Code},
    session, session_token, sign_in,
    state::{AppState, BasePath},
};

/// Problems of operations that need an API key with a permission.
const KEY: &[Code] = &[
    Code::Unauthorized,
    Code::Forbidden,
    Code::OriginRefused,
    Code::RateLimited,
];
/// Problems of operations that need the token of the lease and nothing else.
const TOKEN: &[Code] = &[Code::OriginRefused, Code::RateLimited];
/// Problems of operations whose request has a body.
const BODY: &[Code] = &[
    Code::RequestTimeout,
    Code::TooLarge,
    Code::UnsupportedMediaType,
];
/// Problems of operations whose request may ask for a TTL.
const TTL: &[Code] = &[Code::LimitExceeded];
/// Problems of operations that request a lock, and may wait for it.
const GRANT: &[Code] = &[
    Code::DeclaredDifferently,
    Code::UndeclaredLock,
    Code::IdempotencyMismatch,
    Code::IdempotencyExpired,
    Code::RequestReplaced,
    Code::NewerWaiter,
    Code::ReservationOver,
    Code::OutdatedOrder,
    Code::Locked,
    Code::TooManyWaiters,
    Code::TooManyLeases,
    Code::TooManyOrders,
    Code::UnsupportedByStore,
    Code::FenceExhausted,
];
/// Problems of operations on the lease of a token.
const LEASE: &[Code] = &[Code::LeaseLost];
/// Problems of operations on the current holder of a lock.
const HOLDER: &[Code] = &[Code::HolderChanged, Code::NotHeld];
/// Problems of the operation that sets the order of a lock.
const ORDER: &[Code] = &[Code::OrderChanged, Code::UnsupportedByStore];
/// Problems of the operation that checks a fencing token.
const FENCE: &[Code] = &[Code::StaleFencingToken, Code::EndsTooSoon];
/// Problems of operations that only read the store.
const LOOK: &[Code] = &[Code::ForeignData, Code::StoreUnavailable, Code::Draining];
/// Problems of operations that change the store.
const WRITE: &[Code] = &[
    Code::ForeignData,
    Code::StoreUnavailable,
    Code::Draining,
    Code::OutcomeUnknown,
];
/// Problems of the operation that copies the store.
const BACKUP: &[Code] = &[
    Code::WrongStore,
    Code::StoreUnavailable,
    Code::Draining,
    Code::OutcomeUnknown,
];

/// All problems of operations that acquire locks.
const ACQUIRES: &[&[Code]] = &[KEY, BODY, TTL, GRANT, WRITE];
/// All problems of operations that renew leases.
const RENEWS: &[&[Code]] = &[KEY, BODY, TTL, LEASE, WRITE];
/// All problems of operations that release leases.
const RELEASES: &[&[Code]] = &[TOKEN, BODY, LEASE, WRITE];

/// Every operation. Operations of one path stand together, in the order in which `Allow` names their methods.
///
/// Method and path are in the attribute of the handler, and the permission is in its signature. A row has the
/// problems besides those that the edge answers for every operation, and the properties that are not usual:
/// the class of its requests, and a body that may be left out.
fn operations() -> Vec<Operation> {
    vec![
        row(locks::__path_list, locks::list, &[KEY, LOOK]),
        row(locks::__path_acquire_group, locks::acquire_group, ACQUIRES),
        row(locks::__path_renew_group, locks::renew_group, RENEWS)
            .class(Renews)
            .optional_body(),
        row(
            locks::__path_release_group,
            locks::release_group,
            &[TOKEN, LEASE, WRITE],
        )
        .class(Releases),
        row(locks::__path_inspect, locks::inspect, &[KEY, LOOK]),
        row(locks::__path_acquire, locks::acquire, ACQUIRES).optional_body(),
        row(locks::__path_release, locks::release, RELEASES).class(Releases),
        row(locks::__path_renew, locks::renew, RENEWS)
            .class(Renews)
            .optional_body(),
        row(
            locks::__path_release_by_post,
            locks::release_by_post,
            RELEASES,
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
            locks::__path_set_order,
            locks::set_order,
            &[KEY, BODY, ORDER, WRITE],
        ),
        row(locks::__path_history, locks::history, &[KEY, LOOK]),
        row(locks::__path_check, locks::check, &[KEY, FENCE, LOOK]),
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
            &[&[Code::Unauthorized], TOKEN, BODY],
        ),
        row(
            session::__path_sign_out,
            session::sign_out,
            &[&[Code::OriginRefused]],
        ),
        row(
            session_token::__path_exchange,
            session_token::exchange,
            &[&[Code::Unauthorized, Code::IssuerUnavailable], TOKEN, BODY],
        )
        .optional_body(),
        row(ops::__path_healthz, ops::healthz, &[]).class(Probes),
        row(ops::__path_readyz, ops::readyz, &[]).class(Probes),
        row(ops::__path_metrics, ops::metrics, &[KEY]).class(Scrapes),
        row(ops::__path_stats, ops::stats, &[KEY]),
        row(ops::__path_samples, ops::samples, &[KEY]),
        row(ops::__path_backup, ops::backup, &[KEY, BACKUP]),
        row(__path_openapi_json, openapi_json, &[]),
        row(pages::__path_docs, pages::docs, &[]),
        Operation::of_file("/docs/{*asset}", pages::asset),
        Operation::of_file("/sign-in", sign_in::begin),
        Operation::of_file("/sign-in/callback", sign_in::finish),
        row(pages::__path_dashboard, pages::dashboard, &[]),
        Operation::of_file("/dashboard/", pages::below),
        Operation::of_file("/dashboard/{*path}", pages::below),
        row(
            problem::__path_problem_page,
            problem::problem_page,
            &[&[Code::NotFound]],
        ),
        row(pages::__path_index, pages::index, &[]),
    ]
}

/// The whole HTTP service of a gateway: all routes behind the edge.
pub fn service(gateway: impl Into<Arc<AppState>>) -> EdgeService {
    let gateway = gateway.into();
    let base_path = gateway.base_path.clone();
    EdgeService::new(gateway, &base_path, operations())
}

/// The service on the address for metrics alone: it serves the metrics without an API key, and nothing else.
pub fn metrics_service(gateway: Arc<AppState>) -> EdgeService {
    let metrics = Operation::of_file("/metrics", ops::metrics_for_all).class(Probes);
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
    gateway.document.get_or_init(render).answer(&headers)
}
