//! `GET /stats`: how this gateway is doing.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::{Permission, scope},
    config::StoreUrl,
    http::{
        extract::{AcceptsJson, Caller, NoQuery},
        json_response::JsonResponse,
        locks::millis,
        problem::{Problem, ProblemCode},
        state::AppState,
    },
    lock::{LockName, NamePrefix},
    release,
    store::parking::NameWaiters,
    telemetry::metrics::{MARGINS_MS, Totals},
};

use super::health::{self, NamedCheck, Readiness, ReadyStatus};

/// How is this gateway doing?
///
/// The numbers that a person looks at, of **this gateway**: what it did since its start, who waits
/// through it now, how its store is. For all gateways together, and over time, collect `/metrics`. Rates
/// are differences of two answers with the same `instance`.
///
/// With API keys it takes one with the permission `metrics`, or with `view` on every lock. Names are those
/// that the key may view.
#[utoipa::path(
    get,
    path = "/stats",
    operation_id = "getStats",
    tag = "health",
    responses(
        (status = 200, body = StatsBody, description = "The numbers."),
    )
)]
pub(in crate::http) async fn stats(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::AnyKey>,
    _: AcceptsJson,
    _: NoQuery,
) -> Result<JsonResponse<StatsBody>, Problem> {
    let may_read = caller.permits(Permission::Metrics, None);
    if !may_read && !caller.permits_all(Permission::View, &NamePrefix::default()) {
        return Err(Problem::new(
            ProblemCode::Forbidden,
            "The API key has neither the permission `metrics` nor `view` on every lock.",
        ));
    }
    let readiness = health::readiness(&gateway).await;
    Ok(JsonResponse(StatsBody::new(&gateway, readiness, |name| {
        caller.views(name)
    })))
}

/// The numbers of one gateway.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub(in crate::http) struct StatsBody {
    /// Which run of which gateway answers: each counts by itself.
    #[schema(example = "4f0c5b1e8d2a9c37")]
    instance: String,
    /// The version of the program.
    #[schema(value_type = String, example = "0.1.0")]
    version: &'static str,
    /// For how long it has run.
    uptime_ms: u64,
    /// Where its leases live.
    store: StoreKind,
    /// Whether it should be sent requests, as `GET /readyz` says.
    status: ReadyStatus,
    /// What was looked at for that.
    checks: Vec<NamedCheck>,
    /// How many leases were granted through it, or are kept by one of its hold streams, and, as far as it
    /// knows, live. They count at no other gateway.
    leases: usize,
    /// How many of them share their lock.
    shared_leases: usize,
    /// For how long the one of them has been held that is held for longest; null if there is none.
    #[schema(required = true)]
    longest_hold_ms: Option<u64>,
    /// How many requests wait in a queue through it.
    waiters: usize,
    /// How long the one of them has waited that waits for longest; null if there is none.
    #[schema(required = true)]
    longest_wait_ms: Option<u64>,
    /// How many streams hold a lock through it.
    held_streams: usize,
    /// How many listen to events at it.
    event_streams: usize,
    /// What it did since its start.
    totals: Totals,
    /// How much of them was left, as the store knew it, when leases were renewed through it, since its start.
    renew_margin: RenewMarginBody,
    /// What most wait for through it, most first, of the locks that the key may view.
    #[schema(max_items = 10)]
    contended: Vec<ContendedBody>,
}

/// Where leases live.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StoreKind {
    /// In the data directory of the gateway.
    Embedded,
    /// On Redis.
    Redis,
}

/// How much of the TTL was left at renewals.
#[derive(Serialize, ToSchema)]
#[schema(as = RenewMargin)]
struct RenewMarginBody {
    /// The upper bounds of the buckets.
    #[schema(value_type = Vec<u64>)]
    bounds_ms: &'static [u64],
    /// How many renewals fell into each: at most its bound, and more than the one before. The last is
    /// of those above all bounds.
    counts: Vec<u64>,
}

/// A lock that is waited for.
#[derive(Serialize, ToSchema)]
#[schema(as = Contended)]
struct ContendedBody {
    /// The lock.
    name: String,
    /// How many wait for it through this gateway.
    waiters: usize,
    /// How long the one of them has waited that waits for longest.
    longest_wait_ms: u64,
}

/// How many names are told: as many as a person looks at.
const MOST_CONTENDED: usize = 10;

// === impl StatsBody ===

impl StatsBody {
    /// Those of a gateway, for one who may see the names that `views` says.
    pub(super) fn new(
        gateway: &AppState,
        readiness: Readiness,
        views: impl Fn(&LockName) -> bool,
    ) -> Self {
        let engine = &gateway.engine;
        let figures = engine.figures();
        let crowds = engine.waiters_by_name();
        Self {
            instance: engine.instance().to_owned(),
            version: release::VERSION,
            uptime_ms: millis(engine.uptime()),
            store: StoreKind::of(&gateway.config.store),
            status: readiness.status,
            checks: readiness.checks,
            leases: figures.leases,
            shared_leases: figures.shared_leases,
            longest_hold_ms: engine.longest_hold().map(millis),
            waiters: figures.waiters,
            longest_wait_ms: crowds.iter().map(|crowd| crowd.longest).max().map(millis),
            held_streams: figures.held_streams,
            event_streams: figures.event_streams,
            totals: engine.metrics().totals(),
            renew_margin: RenewMarginBody {
                bounds_ms: MARGINS_MS,
                counts: engine.metrics().renew_margins(),
            },
            contended: contended(crowds, views),
        }
    }
}

fn contended(
    mut crowds: Vec<NameWaiters>,
    views: impl Fn(&LockName) -> bool,
) -> Vec<ContendedBody> {
    crowds.retain(|crowd| views(&crowd.name));
    // Among equals who waits for longest, and then by name, so that the list stands still.
    crowds.sort_by(|a, b| {
        let by_size = b.waiters.cmp(&a.waiters);
        let by_time = || b.longest.cmp(&a.longest);
        by_size
            .then_with(by_time)
            .then_with(|| a.name.as_str().cmp(b.name.as_str()))
    });
    let body = |crowd: NameWaiters| ContendedBody {
        name: crowd.name.as_str().to_owned(),
        waiters: crowd.waiters,
        longest_wait_ms: millis(crowd.longest),
    };
    crowds.into_iter().take(MOST_CONTENDED).map(body).collect()
}

// === impl StoreKind ===

impl StoreKind {
    fn of(url: &StoreUrl) -> Self {
        match url {
            StoreUrl::Embedded(_) => Self::Embedded,
            StoreUrl::Servers(_) => Self::Redis,
        }
    }
}
