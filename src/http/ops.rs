//! Routes for operators: health (`/healthz`, `/readyz`), counts and measurements (`/metrics`, `/stats`), and
//! a copy of the store (`/backup`).

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
    auth::{Access, Permission, scope},
    clock::rfc3339,
    config::StoreUrl,
    engine::{BackupParts, SAMPLE_INTERVAL, Sample, StoreChange},
    lock::{LockName, NamePrefix},
    release,
    store::{
        contract::{Check, Health},
        parking::NameWaiters,
    },
    telemetry::metrics::{RenewMargin, Totals},
};

use super::{
    extract::{AcceptsJson, Caller, NoQuery, Provenance},
    json_response::{JSON, JsonResponse, json},
    locks::millis,
    problem::{Problem, ProblemCode},
    state::AppState,
};

/// How long the store may take to report its health. Less than the second after which an orchestrator gives
/// up on a probe: a store that hangs must not take every gateway out of service at once.
const CHECK_TIMEOUT: Duration = Duration::from_millis(750);

/// The answer of a living process.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Alive {
    /// Always `ok`.
    #[schema(value_type = String, example = "ok")]
    status: &'static str,
    /// The version of the program.
    #[schema(value_type = String, example = "0.1.0")]
    version: &'static str,
    /// The commit that the program was built from; `unknown` if the build did not name one.
    #[schema(value_type = String, example = "0123456789ab")]
    commit: &'static str,
}

/// Whether this gateway should be sent requests.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Readiness {
    /// Whether this gateway should be sent requests.
    pub(in crate::http) status: ReadyStatus,
    /// The health checks, with their results.
    pub(in crate::http) checks: Vec<NamedCheck>,
}

/// Whether this gateway should be sent requests.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::http) enum ReadyStatus {
    /// The gateway should be sent requests.
    Ready,
    /// The gateway should not be sent requests.
    NotReady,
}

/// One health check of a gateway, with its result.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct NamedCheck {
    /// The name of the health check.
    #[schema(value_type = String, example = "connection")]
    name: &'static str,
    /// The result of the health check.
    status: CheckStatus,
    /// A note for operators about the result of this health check; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    detail: Option<String>,
    /// For how long at least acquires are refused because of this check: by a quorum of which no majority
    /// votes yet. Left out if that time is not known, or if no acquire is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false, example = 12_000)]
    refuses_for_ms: Option<u64>,
}

/// The result of a health check.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum CheckStatus {
    /// The health check found nothing wrong.
    Passing,
    /// Locks are safe, but an operator should look.
    Warning,
    /// The store does not answer. The gateway stays in service: every other gateway on the same store would
    /// see the same, and callers are told that nothing happened.
    Outage,
    /// The gateway cannot keep its promises as it is configured.
    Misconfigured,
    /// The gateway is about to stop.
    Draining,
}

/// Is the process alive?
///
/// Answers as long as the process runs. Never asks the store.
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
/// A gateway is ready if it is configured so that it can keep its promises, and is not about to stop. A store
/// that does not answer is reported but changes nothing: every other gateway on it would see the same, and
/// callers get a 503 that says that nothing happened.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "checkReadiness",
    tag = "health",
    responses(
        (status = 200, body = Readiness, description = "The gateway may get requests."),
        (status = 503, body = Readiness, description = "The gateway should get no requests; the \
                                                        checks say why.")
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
    Readiness::from_checks(checks, gateway.engine.is_withdrawn())
}

/// All health checks of the gateway except whether it is about to stop.
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
    // The detail does not say what exactly is wrong, because every caller may read it.
    if !gateway.gate.is_open() {
        let detail = "the keys file cannot be used; the API keys that were read before stay valid, \
                      and the log says what is wrong";
        checks.push(check("keys", gateway.gate.is_outdated().then_some(detail)));
    }
    let failing = gateway.gate.failing_issuers();
    if !failing.is_empty() {
        let detail = format!(
            "the keys of {} cannot be fetched; ID tokens are verified with the last ones for a day, and the log says \
             what is wrong",
            failing.join(", ")
        );
        checks.push(check("issuers", Some(&detail)));
    }
    if gateway.audit.is_kept() {
        let detail = "lines are missing from the audit log, and the log says why";
        checks.push(check("audit", gateway.audit.is_failing().then_some(detail)));
    }
    let declarations = gateway.declarations.as_ref();
    let differ = gateway.engine.declarations_differ();
    if declarations.is_some() || differ {
        let is_outdated = declarations.is_some_and(|it| it.read().is_outdated);
        let detail = "the locks file cannot be used; the declarations that were read before stay in \
                      force, and the log says what is wrong";
        let other = "another gateway on the store has other declarations of locks";
        let warning = is_outdated.then_some(detail).or(differ.then_some(other));
        checks.push(check("declared-locks", warning));
    }
    if let Some(certificates) = &gateway.certificates {
        let detail = "the certificate files cannot be used; the certificate that was read before \
                      stays in use, and the log says what is wrong";
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
    fn from_checks(checks: Vec<Check>, is_withdrawn: bool) -> Self {
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

/// The media type that Prometheus asks for.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// What does the gateway count and measure?
///
/// Metrics in the text format of Prometheus. They hold no lock name, owner, token or key. With API keys the
/// call needs a key with the permission `metrics`; `metrics.listen` serves the same without a key on an
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

/// The metrics for every caller that reaches the address for metrics alone.
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
    let metrics = gateway.engine.metrics();
    let (form, text) = if wants_open_metrics(&headers) {
        let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        (form, metrics.text(&figures))
    } else {
        let form = "text/plain; version=0.0.4; charset=utf-8";
        (form, metrics.plain_text(&figures))
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

/// The severity of a health check's result, as the metric `latchgate_check` has it.
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
/// The numbers that a person looks at, of **this gateway**: counts since its start, the requests that wait
/// through it now, the health of its store. For all gateways together, and over time, collect `/metrics`.
/// Rates are differences of two answers with the same `instance`.
///
/// With API keys the call needs a key with the permission `metrics`, or with `view` on every lock. The locks
/// named are those that the key may view.
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
    must_read_figures(&caller)?;
    let readiness = readiness(&gateway).await;
    Ok(JsonResponse(StatsBody::new(&gateway, readiness, |name| {
        caller.views(name)
    })))
}

/// Refuses a caller that may not read the figures of the gateway.
fn must_read_figures(access: &Access) -> Result<(), Problem> {
    if reads_figures(access) {
        return Ok(());
    }
    let detail = "The API key has neither the permission `metrics` nor `view` on every lock.";
    Err(Problem::new(ProblemCode::Forbidden, detail))
}

/// Whether a caller may read the figures of the gateway now; a stream asks again for each event.
pub(super) fn reads_figures(access: &Access) -> bool {
    access.still_permits(Permission::Metrics, None) || access.still_permits_all(Permission::View)
}

/// The numbers of one gateway.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub(in crate::http) struct StatsBody {
    /// The run of the gateway that answers: each run counts on its own.
    #[schema(example = "4f0c5b1e8d2a9c37")]
    instance: String,
    /// The version of the program.
    #[schema(value_type = String, example = "0.1.0")]
    version: &'static str,
    /// How long the gateway has run.
    uptime_ms: u64,
    /// The kind of store.
    store: StoreKind,
    /// Whether this gateway should be sent requests, as `GET /readyz` says.
    status: ReadyStatus,
    /// The health checks that decide `status`.
    checks: Vec<NamedCheck>,
    /// The number of leases that were granted through this gateway, or are kept by one of its hold streams,
    /// and live as far as it knows. No other gateway counts these leases.
    leases: usize,
    /// The number of these leases that share their lock.
    shared_leases: usize,
    /// How long the longest-held of these leases has been held; null if there is none.
    #[schema(required = true)]
    longest_hold_ms: Option<u64>,
    /// The number of requests that wait in a queue through this gateway.
    waiters: usize,
    /// How long the longest-waiting of these requests has waited; null if there is none.
    #[schema(required = true)]
    longest_wait_ms: Option<u64>,
    /// The number of streams that hold a lock through this gateway.
    held_streams: usize,
    /// The number of listeners to events at this gateway.
    event_streams: usize,
    /// Counts since the start of this gateway.
    totals: Totals,
    /// How much TTL was left, as the store knew it, when leases were renewed through this gateway, since its
    /// start.
    renew_margin: RenewMargin,
    /// The locks with the most waiters through this gateway, most first, among the locks that the key may
    /// view.
    #[schema(max_items = 10)]
    contended: Vec<ContendedBody>,
    /// The changes of the store that this gateway has noticed within a day, newest first.
    #[schema(max_items = 20)]
    store_changes: Vec<StoreChangeBody>,
}

/// A change of the store.
#[derive(Serialize, ToSchema)]
#[schema(as = StoreChange)]
struct StoreChangeBody {
    /// When the gateway noticed the change, by its clock.
    #[schema(format = DateTime)]
    at: String,
    /// `failed-over` (another server is the master), `moved` (the address leads to another server, or slots of a
    /// cluster have moved), `restarted`, `away` (the store does not answer), `back`.
    #[schema(value_type = String, example = "failed-over")]
    kind: &'static str,
    /// The change and what it means for locks, with the addresses of servers.
    #[schema(
        example = "master moved from 10.0.0.1:6379 to 10.0.0.2:6379; grants of the last second may be forgotten"
    )]
    text: String,
}

/// The kind of store in which leases live.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StoreKind {
    /// The data directory of the gateway.
    Embedded,
    /// Redis servers.
    Redis,
}

/// A lock that has waiters.
#[derive(Serialize, ToSchema)]
#[schema(as = Contended)]
struct ContendedBody {
    /// The name of the lock.
    name: String,
    /// The number of requests that wait for the lock through this gateway.
    waiters: usize,
    /// How long the longest-waiting of these requests has waited.
    longest_wait_ms: u64,
}

/// The largest number of names in an answer: as many as a person looks at.
const MOST_CONTENDED: usize = 10;

// === impl StatsBody ===

impl StatsBody {
    /// The numbers of a gateway. `views` says which lock names the caller may see.
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
            store: StoreKind::from_url(&gateway.config.store),
            status: readiness.status,
            checks: readiness.checks,
            leases: figures.leases,
            shared_leases: figures.shared_leases,
            longest_hold_ms: engine.longest_hold().map(millis),
            waiters: figures.waiters,
            longest_wait_ms: figures.longest_wait.map(millis),
            held_streams: figures.held_streams,
            event_streams: figures.event_streams,
            totals: engine.metrics().totals(),
            renew_margin: engine.metrics().renew_margin(),
            store_changes: engine
                .store_changes()
                .iter()
                .map(|it| it.as_ref().into())
                .collect(),
            contended: contended(crowds, views),
        }
    }
}

fn contended(
    mut crowds: Vec<NameWaiters>,
    views: impl Fn(&LockName) -> bool,
) -> Vec<ContendedBody> {
    crowds.retain(|crowd| views(&crowd.name));
    // Among equal numbers of waiters the longest wait comes first, and then the name, so that the order of
    // the list is stable.
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

// === impl StoreChangeBody ===

impl From<&StoreChange> for StoreChangeBody {
    fn from(change: &StoreChange) -> Self {
        Self {
            at: rfc3339(Some(change.at)).to_string(),
            kind: change.kind.as_str(),
            text: change.text.clone(),
        }
    }
}

// === impl StoreKind ===

impl StoreKind {
    fn from_url(url: &StoreUrl) -> Self {
        match url {
            StoreUrl::Embedded(_) => Self::Embedded,
            StoreUrl::Servers(_) => Self::Redis,
        }
    }
}

/// What were the numbers of the last hour?
///
/// Samples of **this gateway**, one every ten seconds, kept in its memory: the numbers of `GET /stats` of which a chart is
/// made. Counts are those since the start of the gateway; rates are differences of two samples.
///
/// With API keys the call needs a key with the permission `metrics`, or with `view` on every lock.
#[utoipa::path(
    get,
    path = "/samples",
    operation_id = "getSamples",
    tag = "health",
    responses((status = 200, body = SamplesBody, description = "The samples."))
)]
pub(in crate::http) async fn samples(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::AnyKey>,
    _: AcceptsJson,
    _: NoQuery,
) -> Result<JsonResponse<SamplesBody>, Problem> {
    must_read_figures(&caller)?;
    Ok(JsonResponse(SamplesBody {
        instance: gateway.engine.instance().to_owned(),
        interval_ms: millis(SAMPLE_INTERVAL),
        samples: gateway.engine.samples(),
    }))
}

/// The samples of one gateway.
#[derive(Serialize, ToSchema)]
#[schema(as = Samples)]
pub(in crate::http) struct SamplesBody {
    /// The run of the gateway that answers.
    #[schema(example = "4f0c5b1e8d2a9c37")]
    instance: String,
    /// The time between two samples.
    interval_ms: u64,
    /// The samples, oldest first.
    #[schema(max_items = 360)]
    samples: Vec<Sample>,
}

/// Header with the file name of a backup: the name under which the file is restored.
const FILE: HeaderValue =
    HeaderValue::from_static("attachment; filename=\"latchgate.00000001.log\"");

/// Back up the embedded store
///
/// Everything that the embedded store of this gateway holds in one instant, with all that was acknowledged
/// before the request, as the one file of a data directory: `latchgate.00000001.log`. One backup is made at a
/// time; another request meanwhile is answered 503. `latchgate backup FILE` requests a backup, checks it and
/// writes it to a file.
///
/// The file holds names of locks, owners and metadata, and only hashes of tokens and idempotency keys. With
/// API keys the call needs a key with `view` and `break` on every lock.
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
        // The answer to HEAD has no length, because the length of a backup is known only once the backup is
        // made.
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
    // The ordinary log records the backup too, because an audit log may not be configured.
    let (key, id) = (requester.key, requester.request_id);
    info!(key, bytes, id, "backup");
    gateway.audit.backed_up(&requester, bytes).await;
    let length = [(CONTENT_LENGTH, HeaderValue::from(bytes))];
    Ok((headers, length, Body::from_stream(parts(made))).into_response())
}

/// Streams a backup in parts. The stream fails if reading it takes so long that the engine gives up.
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
