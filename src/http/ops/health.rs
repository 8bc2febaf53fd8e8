//! `GET /healthz`, `/readyz` and `/metrics`: is the process alive, can it keep its promises, and what did it count.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::{
    auth::scope,
    http::{
        extract::{AcceptsJson, Caller},
        json_response::{JSON, JsonResponse, json},
        locks::millis,
        problem::Problem,
        state::AppState,
    },
    release,
    store::contract::{Check, Health},
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
