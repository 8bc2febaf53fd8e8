//! `GET /metrics`: what the gateway counts and measures.

use std::{sync::Arc, time::UNIX_EPOCH};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
};

use crate::{auth::scope, store::contract::Health};

use super::{extract::Caller, health, state::AppState};

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
pub(super) async fn metrics(
    _: Caller<scope::Metrics>,
    gateway: State<Arc<AppState>>,
    headers: HeaderMap,
) -> Response {
    metrics_for_all(gateway, headers).await
}

/// The same for everybody who reaches an address that is for nothing else.
pub(super) async fn metrics_for_all(
    State(gateway): State<Arc<AppState>>,
    headers: HeaderMap,
) -> Response {
    let mut figures = gateway.engine.figures();
    let checks = health::checks(&gateway).await;
    figures.checks = checks
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
