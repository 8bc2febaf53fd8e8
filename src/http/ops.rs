//! For those who run the gateway: is it well (`/healthz`, `/readyz`), what did it do (`/metrics`, `/stats`), and a copy of
//! its store (`/backup`).

use std::{
    convert::Infallible,
    io::{self, ErrorKind},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream::{Stream, empty, unfold};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE},
};
use serde::Serialize;
use tokio::time::timeout;
use tracing::info;
use utoipa::ToSchema;

use crate::{
    auth::{Permission, scope},
    config::StoreUrl,
    engine::BackupParts,
    lock::{LockName, NamePrefix},
    release,
    store::{
        contract::{Check, Health},
        parking::NameWaiters,
    },
    telemetry::metrics::{MARGINS_MS, Totals},
};

use super::{
    extract::{AcceptsJson, Caller, NoQuery, Provenance},
    json_response::{JSON, JsonResponse, json},
    locks::millis,
    problem::{Problem, ProblemCode},
    state::AppState,
};

/// How long the store may take to say how it is. Less than the second after which an orchestrator
/// gives up on a probe: a store that hangs must not take every gateway out of service at once.
const CHECK_TIMEOUT: Duration = Duration::from_millis(750);

/// The process answers.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Alive {
    /// Always `ok`.
    #[schema(value_type = String, example = "ok")]
    status: &'static str,
    /// The version of the program.
    #[schema(value_type = String, example = "0.1.0")]
    version: &'static str,
    /// The commit that it was built from; `unknown` if the build did not name one.
    #[schema(value_type = String, example = "0123456789ab")]
    commit: &'static str,
}

/// Whether this gateway should be sent requests.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Readiness {
    /// Whether it should.
    pub(in crate::http) status: ReadyStatus,
    /// What was looked at, in which state it is.
    pub(in crate::http) checks: Vec<NamedCheck>,
}

/// Whether this gateway should be sent requests.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::http) enum ReadyStatus {
    /// It should.
    Ready,
    /// It should not.
    NotReady,
}

/// One thing that was looked at.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct NamedCheck {
    /// What was looked at.
    #[schema(value_type = String, example = "connection")]
    name: &'static str,
    /// What was found.
    status: CheckStatus,
    /// What an operator should know of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    detail: Option<String>,
    /// For how long at least acquires are refused because of it: a quorum of which no majority votes yet.
    /// Left out if that is not known, and where none is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false, example = 12_000)]
    refuses_for_ms: Option<u64>,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum CheckStatus {
    /// As it should be.
    Passing,
    /// Locks are safe, but somebody should look.
    Warning,
    /// The store does not answer. The gateway stays in service: another one on the same store would
    /// see the same, and callers are told that nothing happened.
    Outage,
    /// The gateway cannot keep its promises as it is configured.
    Misconfigured,
    /// The gateway is about to stop.
    Draining,
}

/// Is the process alive?
///
/// Answers as long as the process does. Never asks the store.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "checkHealth",
    tag = "health",
    responses((status = 200, body = Alive, description = "It is."))
)]
pub(in crate::http) async fn healthz(_: AcceptsJson) -> Result<JsonResponse<Alive>, Problem> {
    Ok(JsonResponse(Alive {
        status: "ok",
        version: release::VERSION,
        commit: release::COMMIT,
    }))
}

/// Should this gateway be sent requests?
///
/// It should if it is configured so that it can keep its promises, and is not about to stop. A
/// store that does not answer is reported but changes nothing: every other gateway on it would see
/// the same, and callers get a 503 that says that nothing happened.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "checkReadiness",
    tag = "health",
    responses(
        (status = 200, body = Readiness, description = "It should."),
        (status = 503, body = Readiness, description = "It should not; the checks say why.")
    )
)]
pub(in crate::http) async fn readyz(
    State(gateway): State<Arc<AppState>>,
    _: AcceptsJson,
) -> Result<Readiness, Problem> {
    Ok(readiness(&gateway).await)
}

/// Whether this gateway should be sent requests now.
pub(in crate::http) async fn readiness(gateway: &AppState) -> Readiness {
    let checks = checks(gateway).await;
    Readiness::of(checks, gateway.engine.is_withdrawn())
}

/// Everything that is looked at, but whether the gateway is about to stop.
pub(in crate::http) async fn checks(gateway: &AppState) -> Vec<Check> {
    let checked = timeout(CHECK_TIMEOUT, gateway.engine.check()).await;
    let mut checks = checked.unwrap_or_else(|_elapsed| {
        let detail = format!("no answer within {} ms", CHECK_TIMEOUT.as_millis());
        let health = Health::Outage(detail);
        vec![Check {
            health,
            ..check("store", None)
        }]
    });
    // Not what is wrong exactly: everybody may ask.
    if !gateway.gate.is_open() {
        let detail = "the keys file cannot be used; the API keys that were read before go on, and \
                      the log says what is wrong";
        checks.push(check("keys", gateway.gate.is_outdated().then_some(detail)));
    }
    if gateway.audit.is_kept() {
        let detail = "lines are missing from the audit log, and the log says why";
        let is_missing = gateway.audit.trouble().is_some();
        checks.push(check("audit", is_missing.then_some(detail)));
    }
    if let Some(certificates) = &gateway.certificates {
        let detail = "the certificate files cannot be used; what was read before goes on, and the \
                      log says what is wrong";
        let warning = certificates.is_outdated().then_some(detail);
        checks.push(check("certificate", warning));
    }
    checks
}

fn check(name: &'static str, warning: Option<&str>) -> Check {
    let health = warning.map_or(Health::Passing, |detail| Health::Warning(detail.to_owned()));
    Check {
        name,
        health,
        note: None,
        refuses_for: None,
    }
}

// === impl Readiness ===

impl Readiness {
    fn of(checks: Vec<Check>, is_withdrawn: bool) -> Self {
        let mut checks = checks.into_iter().map(NamedCheck::from).collect::<Vec<_>>();
        let mut draining = NamedCheck::from(check("draining", None));
        if is_withdrawn {
            draining.status = CheckStatus::Draining;
            draining.detail = Some("the gateway is about to stop".to_owned());
        }
        checks.push(draining);
        let status = if checks.iter().all(|check| check.status.is_ready()) {
            ReadyStatus::Ready
        } else {
            ReadyStatus::NotReady
        };
        Self { status, checks }
    }
}

impl IntoResponse for Readiness {
    fn into_response(self) -> Response {
        let status = match self.status {
            ReadyStatus::Ready => StatusCode::OK,
            ReadyStatus::NotReady => StatusCode::SERVICE_UNAVAILABLE,
        };
        let no_store = [(CACHE_CONTROL, HeaderValue::from_static("no-store"))];
        (status, JSON, no_store, json(&self)).into_response()
    }
}

// === impl NamedCheck ===

impl From<Check> for NamedCheck {
    fn from(check: Check) -> Self {
        let (status, detail) = match check.health {
            Health::Passing => (CheckStatus::Passing, check.note),
            Health::Warning(detail) => (CheckStatus::Warning, Some(detail)),
            Health::Outage(detail) => (CheckStatus::Outage, Some(detail)),
            Health::Misconfigured(detail) => (CheckStatus::Misconfigured, Some(detail)),
        };
        Self {
            name: check.name,
            status,
            detail,
            refuses_for_ms: check.refuses_for.map(millis),
        }
    }
}

// === impl CheckStatus ===

impl CheckStatus {
    fn is_ready(self) -> bool {
        !matches!(self, Self::Misconfigured | Self::Draining)
    }
}

/// The form that Prometheus asks for. Its text is also valid in the older form.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// What does the gateway count and measure?
///
/// Metrics in the text format of Prometheus. They hold no lock name, owner, token or key. With API keys
/// this needs one with the permission `metrics`; `metrics.listen` serves the same without a key on an
/// address of its own.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "health",
    responses(
        (status = 200, description = "The metrics.", content(
            (String = "text/plain"),
            (String = "application/openmetrics-text")
        )),
    )
)]
pub(in crate::http) async fn metrics(
    _: Caller<scope::Metrics>,
    gateway: State<Arc<AppState>>,
    headers: HeaderMap,
) -> Response {
    metrics_for_all(gateway, headers).await
}

/// The same for everybody who reaches an address that is for nothing else.
pub(in crate::http) async fn metrics_for_all(
    State(gateway): State<Arc<AppState>>,
    headers: HeaderMap,
) -> Response {
    let mut figures = gateway.engine.figures();
    let found = checks(&gateway).await;
    figures.checks = found
        .iter()
        .map(|check| (check.name, severity(&check.health)))
        .collect();
    figures.certificate_ends = gateway
        .certificates
        .as_ref()
        .and_then(|certificates| certificates.ends()?.duration_since(UNIX_EPOCH).ok())
        .map(|ends| ends.as_secs());
    let text = gateway.engine.metrics().text(&figures);
    let form = if wants_open_metrics(&headers) {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain; version=0.0.4; charset=utf-8"
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(form)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, text).into_response()
}

fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter();
    accepted.any(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.to_ascii_lowercase().contains(OPEN_METRICS))
    })
}

/// How bad it is, as `latchgate_check` says.
fn severity(health: &Health) -> u8 {
    match health {
        Health::Passing => 0,
        Health::Warning(_) => 1,
        Health::Outage(_) => 2,
        Health::Misconfigured(_) => 3,
    }
}

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
    let readiness = readiness(&gateway).await;
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

/// What a backup is called where it is restored.
const FILE: HeaderValue =
    HeaderValue::from_static("attachment; filename=\"latchgate.00000001.log\"");

/// Back up the embedded store
///
/// Everything that the embedded store of this gateway holds in one instant, with all that was acknowledged before
/// the request, as the one file of a data directory: `latchgate.00000001.log`. One backup is made at a time; another request meanwhile is answered with 503.
/// `latchgate backup FILE` asks for it, checks it and writes it to a file.
///
/// The file holds names of locks, owners and metadata, and of tokens and idempotency keys only hashes. With API keys
/// this takes one with `view` and `break` on every lock.
#[utoipa::path(
    get,
    path = "/backup",
    operation_id = "getBackup",
    tag = "health",
    responses(
        (status = 200, description = "The file.", content((String = "application/octet-stream"))),
    )
)]
pub(in crate::http) async fn backup(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::AnyKey>,
    provenance: Provenance,
    method: Method,
    _: NoQuery,
) -> Result<Response, Problem> {
    let all = NamePrefix::default();
    let needed = [Permission::View, Permission::Break];
    if !needed
        .iter()
        .all(|&needed| caller.permits_all(needed, &all))
    {
        let detail = "The API key does not have both `view` and `break` on every lock.";
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    let kind = HeaderValue::from_static("application/octet-stream");
    let headers = [(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, FILE)];
    if method == Method::HEAD && matches!(gateway.config.store, StoreUrl::Embedded(_)) {
        // Its length is not known without a copy.
        let unmeasured = Body::from_stream(empty::<Result<Bytes, Infallible>>());
        return Ok((headers, unmeasured).into_response());
    }
    let Some(made) = gateway.engine.backup().await else {
        return Err(Problem::new(
            ProblemCode::WrongStore,
            "The store of this gateway is Redis, which has backups of its own.",
        ));
    };
    let made = made?;
    let bytes = made.len;
    let requester = provenance.requester(caller.name());
    // Also where no audit log is kept.
    let (key, id) = (requester.key, requester.request_id);
    info!(key, bytes, id, "backup");
    gateway.audit.backed_up(&requester, bytes).await;
    let length = [(CONTENT_LENGTH, HeaderValue::from(bytes))];
    Ok((headers, length, Body::from_stream(parts(made))).into_response())
}

/// The file in parts. It fails if that takes so long that the engine gives up.
fn parts(made: BackupParts) -> impl Stream<Item = io::Result<Bytes>> {
    unfold(made, async |mut made| match made.parts.recv().await {
        Some(part) => {
            made.len -= part.len();
            Some((Ok(part), made))
        }
        None if made.len == 0 => None,
        None => {
            made.len = 0;
            Some((Err(ErrorKind::TimedOut.into()), made))
        }
    })
}
