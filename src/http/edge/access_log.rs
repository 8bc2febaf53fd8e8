//! The log lines and the metrics of requests.
//!
//! A line has the route and not the path, and no header: neither a token nor a key can be in it. `key` is
//! the name of the key.

use std::time::Duration;

use http::StatusCode;
use tracing::{info, warn};

use crate::{
    config::LogRequests,
    http::problem::{Problem, ProblemCode},
};

use super::{context::RequestContext, request_id::RequestId, traced::Traced};

/// A request on which the gateway worked for longer is slow. A store answers within milliseconds and is
/// given up after a few seconds; a second is far from the first, and comes before the second.
const SLOW: Duration = Duration::from_secs(1);

/// A request has been answered.
pub(super) fn answered(
    context: &RequestContext,
    traced: &Traced,
    id: &RequestId,
    status: StatusCode,
    problem: Option<&Problem>,
) {
    let us = count(context, Some(status));
    if !is_logged(context.edge().logged, status, || context.worked_us(us)) {
        return;
    }
    let (method, route) = (context.method().as_str(), context.route().template());
    let (id, key, trace_id) = (id.as_str(), context.caller(), traced.trace_id());
    let status = status.as_u16();
    match problem {
        None => info!(method, route, status, us, id, key, trace_id, "request"),
        Some(problem) => {
            let code = problem.code.as_str();
            let cause = problem.cause.as_deref();
            let is_overload = problem.code == ProblemCode::Overloaded;
            if is_overload && let Some(refused) = context.edge().limits.note_refusal() {
                warn!(refused, "requests are refused: there is no room for them");
            }
            if status >= 500 && !is_overload && !problem.is_outage {
                warn!(
                    method,
                    route, status, us, id, key, trace_id, code, cause, "request"
                );
            } else {
                info!(
                    method,
                    route, status, us, id, key, trace_id, code, cause, "request"
                );
            }
        }
    }
}

/// A request ended without an answer: its caller hung up, or its connection was closed because the caller
/// does not read.
pub(super) fn hung_up(context: &RequestContext, traced: &Traced) {
    let us = count(context, None);
    let (method, route) = (context.method().as_str(), context.route().template());
    let id = context.request_id();
    let (id, key, trace_id) = (id.as_str(), context.caller(), traced.trace_id());
    info!(
        method,
        route, us, id, key, trace_id, "the caller hung up, or does not read, before the answer"
    );
}

/// Counts a request, and says how many microseconds it took.
fn count(context: &RequestContext, status: Option<StatusCode>) -> u64 {
    let took = context.began().elapsed();
    let metrics = context.route().metrics();
    metrics.request(context.method(), status, took);
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Whether the line of an answer is written. Time in which the request waited for a lock, or for the
/// rest of its own body, does not make it slow.
fn is_logged(requests: LogRequests, status: StatusCode, worked_us: impl FnOnce() -> u64) -> bool {
    match requests {
        LogRequests::All => true,
        LogRequests::Failed => {
            let is_usual = status.as_u16() < 400 || status == StatusCode::LOCKED;
            !is_usual || u128::from(worked_us()) >= SLOW.as_micros()
        }
    }
}
