//! `GET /healthz` and `GET /readyz`: is the process alive, and can it keep its promises.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::{
    release,
    store::contract::{Check, Health},
};

use super::{
    extract::AcceptsJson,
    json_response::{JSON, JsonResponse, json},
    locks::millis,
    problem::Problem,
    state::AppState,
};

/// How long the store may take to say how it is. Less than the second after which an orchestrator
/// gives up on a probe: a store that hangs must not take every gateway out of service at once.
const CHECK_TIMEOUT: Duration = Duration::from_millis(750);

/// The process answers.
#[derive(Serialize, ToSchema)]
pub(super) struct Alive {
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
pub(super) struct Readiness {
    /// Whether it should.
    pub(super) status: ReadyStatus,
    /// What was looked at, in which state it is.
    pub(super) checks: Vec<NamedCheck>,
}

/// Whether this gateway should be sent requests.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReadyStatus {
    /// It should.
    Ready,
    /// It should not.
    NotReady,
}

/// One thing that was looked at.
#[derive(Serialize, ToSchema)]
pub(super) struct NamedCheck {
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
pub(super) async fn healthz(_: AcceptsJson) -> Result<JsonResponse<Alive>, Problem> {
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
pub(super) async fn readyz(
    State(gateway): State<Arc<AppState>>,
    _: AcceptsJson,
) -> Result<Readiness, Problem> {
    Ok(readiness(&gateway).await)
}

/// Whether this gateway should be sent requests now.
pub(super) async fn readiness(gateway: &AppState) -> Readiness {
    let checks = checks(gateway).await;
    Readiness::of(checks, gateway.engine.is_withdrawn())
}

/// Everything that is looked at, but whether the gateway is about to stop.
pub(super) async fn checks(gateway: &AppState) -> Vec<Check> {
    let mut checks = timeout(CHECK_TIMEOUT, gateway.engine.check())
        .await
        .unwrap_or_else(|_elapsed| vec![no_answer()]);
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
        checks.push(check(
            "certificate",
            certificates.is_outdated().then_some(detail),
        ));
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

fn no_answer() -> Check {
    let detail = format!("no answer within {} ms", CHECK_TIMEOUT.as_millis());
    Check {
        health: Health::Outage(detail),
        ..check("store", None)
    }
}

// === impl Readiness ===

impl Readiness {
    fn of(checks: Vec<Check>, is_withdrawn: bool) -> Self {
        let mut checks = checks.into_iter().map(NamedCheck::from).collect::<Vec<_>>();
        checks.push(NamedCheck::draining(is_withdrawn));
        let ready = checks.iter().all(|check| check.status.is_ready());
        Self {
            status: if ready {
                ReadyStatus::Ready
            } else {
                ReadyStatus::NotReady
            },
            checks,
        }
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

impl NamedCheck {
    fn draining(is_withdrawn: bool) -> Self {
        Self {
            name: "draining",
            status: if is_withdrawn {
                CheckStatus::Draining
            } else {
                CheckStatus::Passing
            },
            detail: is_withdrawn.then(|| "the gateway is about to stop".to_owned()),
            refuses_for_ms: None,
        }
    }
}

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
        match self {
            Self::Passing | Self::Warning | Self::Outage => true,
            Self::Misconfigured | Self::Draining => false,
        }
    }
}
