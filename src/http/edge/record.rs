//! Records of a request: a span of its trace, its metrics, a line in the log, and an audit entry if a
//! permission was refused.
//!
//! A log line has the route and not the path, and no header: neither a token nor an API key can be in it. Its
//! field `key` is the name of the key.

use std::{net::IpAddr, time::Duration};

use axum::extract::Request;
use http::{HeaderName, StatusCode};
use percent_encoding::percent_decode_str;
use tracing::{field::display, info, warn};

use crate::{
    audit::{Refused, Requester},
    auth::may_hold_secret,
    config::LogRequests,
    http::{
        extract::single,
        problem::{Problem, ProblemCode},
        serve::peer,
    },
    lock::{LockName, Token},
    telemetry::trace::Span,
    trace_context::{TraceContext, TraceId, TraceParent},
};

use super::{context::RequestContext, headers::RequestId, routes::Class};

/// The record of a request, written with the answer. If it is dropped before the answer, the caller hung up
/// or does not read.
///
/// The record keeps none of the memory of the request's head: many requests may wait for a lock at the same
/// time.
pub(super) struct RequestRecord {
    pub(super) context: RequestContext,
    /// The trace that the request is part of, if there is one.
    trace_id: Option<TraceId>,
    /// The gateway's own span in the trace of the request, if spans are recorded.
    span: Option<Span>,
    /// Data for the audit entry in case the request is refused, if there is an audit log.
    audited: Option<Box<AuditedRequest>>,
    is_answered: bool,
}

/// The lock that a request names, and the address that it came from.
struct AuditedRequest {
    name: Option<LockName>,
    remote: Option<IpAddr>,
}

/// A request is slow if the gateway worked on it for longer. A store answers within milliseconds and is given
/// up after a few seconds: one second is far above the first and below the second.
const SLOW: Duration = Duration::from_secs(1);

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

// === impl RequestRecord ===

impl RequestRecord {
    pub(super) fn begin(request: &Request, context: RequestContext) -> Self {
        let edge = context.edge();
        let audited = edge.gateway.audit.is_kept().then(|| {
            let name = lock_name(&context, request.uri().path());
            let remote = peer(request.extensions());
            Box::new(AuditedRequest { name, remote })
        });
        let mut record = Self {
            trace_id: None,
            span: None,
            audited,
            is_answered: false,
            context,
        };
        // Probes and scrapes come every few seconds, and belong to no caller's trace.
        if !matches!(record.context.class(), Class::Probes | Class::Scrapes) {
            record.begin_span(request);
        }
        record
    }

    fn begin_span(&mut self, request: &Request) {
        let (context, headers) = (&self.context, request.headers());
        let (edge, route) = (context.edge(), context.route().template.as_str());
        let parent = single(headers, &TRACEPARENT).ok().flatten();
        let parent = parent.and_then(TraceParent::parse);
        let sent = || {
            let parent = parent?;
            // Several `tracestate` headers of a request count as one list.
            let states = headers.get_all(TRACESTATE).iter();
            let states: Vec<_> = states.filter_map(|state| state.to_str().ok()).collect();
            TraceContext::parse(&parent.to_string(), Some(&states.join(",")))
        };
        let name = || {
            format!("{} {route}", request.method())
                .trim_end()
                .to_owned()
        };
        let mut span = edge.gateway.tracer.server_span(name, sent);
        if let Some(span) = &mut span {
            span.set("http.request.method", request.method().to_string());
            // The span of a request has neither path nor query: lock names are recorded only if that is
            // configured.
            span.set("url.scheme", edge.scheme);
            if !route.is_empty() {
                span.set("http.route", route.to_owned());
            }
            let id = context.request_id();
            span.set("latchgate.request_id", id.as_str().to_owned());
            if span.records_lock_names()
                && let Some(name) = lock_name(context, request.uri().path())
            {
                span.set("latchgate.lock", name.to_string());
            }
        }
        let own = span.as_ref().map(Span::trace_id);
        let of_caller = || parent.map(|parent| parent.trace_id);
        self.trace_id = own.or_else(of_caller).map(TraceId);
        self.span = span;
    }

    pub(super) fn span(&self) -> Option<&Span> {
        self.span.as_ref()
    }

    /// Records the answer to the request in the metrics, the log, the trace and, if it is a refusal, the
    /// audit log.
    pub(super) fn answered(
        &mut self,
        id: &RequestId,
        status: StatusCode,
        problem: Option<&Problem>,
    ) {
        self.is_answered = true;
        let key = self.context.key_name();
        if let Some(mut span) = self.span.take() {
            span.set("http.response.status_code", status.as_u16());
            if let Some(key) = key {
                span.set("latchgate.key", key.to_owned());
            }
            if let Some(problem) = problem {
                let code = problem.code.as_str();
                span.set("latchgate.problem", code);
                if status.is_server_error() {
                    span.fail(code);
                }
            }
        }
        if let (Some(audited), Some(problem)) = (&self.audited, problem)
            && is_about_permission(problem.code)
        {
            self.context.edge().gateway.audit.refused(&Refused {
                requester: Requester {
                    key,
                    request_id: id.as_str(),
                    remote: audited.remote,
                },
                method: self.context.method().as_str(),
                route: self.context.route().template.as_str(),
                name: audited.name.as_ref(),
                outcome: problem.code.as_str(),
                // The reason in the audit entry is the cause or the title of the problem, not its detail: the
                // detail may repeat text that the caller sent in place of a name.
                reason: problem.cause.as_deref().unwrap_or(problem.code.title()),
            });
        }
        let us = self.count(Some(status));
        if self.is_logged(status, us, problem) {
            self.log(id, Some(status.as_u16()), us, problem);
        }
    }

    /// Counts the request in the metrics. Returns how many microseconds the request took.
    fn count(&self, status: Option<StatusCode>) -> u64 {
        let took = self.context.permit().began().elapsed();
        let metrics = &self.context.route().metrics;
        metrics.request(self.context.method(), status, took);
        u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
    }

    /// Whether the line of an answer is written. Time in which the request waited for a lock, or for the
    /// rest of its own body, does not make it slow. A gateway that stops says once how many requests it sends away.
    fn is_logged(&self, status: StatusCode, us: u64, problem: Option<&Problem>) -> bool {
        match self.context.edge().logged {
            LogRequests::All => true,
            LogRequests::Failed => {
                let is_usual =
                    status.as_u16() < 400 || status == StatusCode::LOCKED || is_sent_away(problem);
                !is_usual || u128::from(self.context.permit().worked_us(us)) >= SLOW.as_micros()
            }
        }
    }

    /// Writes the log line of the request. Without a `status` the caller hung up, or its connection was
    /// closed because the caller does not read.
    fn log(&self, id: &RequestId, status: Option<u16>, us: u64, problem: Option<&Problem>) {
        let context = &self.context;
        let (method, route) = (context.method().as_str(), context.route().template.as_str());
        let (id, key, trace_id) = (id.as_str(), context.key_name(), self.trace_id.map(display));
        let code = problem.map(|problem| problem.code.as_str());
        let cause = problem.and_then(|problem| problem.cause.as_deref());
        let is_overload = problem.is_some_and(|it| it.code == ProblemCode::Overloaded);
        if is_overload && let Some(refused) = context.edge().limits.refusals.note() {
            warn!(refused, "requests are refused: there is no room for them");
        }
        let is_failure = status >= Some(500)
            && !is_overload
            && !is_sent_away(problem)
            && problem.is_some_and(|problem| !problem.is_outage);
        let message = match status {
            Some(_) => "request",
            None => "the caller hung up, or does not read, before the answer",
        };
        if is_failure {
            warn!(
                method,
                route, status, us, id, key, trace_id, code, cause, "{message}"
            );
        } else {
            info!(
                method,
                route, status, us, id, key, trace_id, code, cause, "{message}"
            );
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        self.context.end_work();
        let us = self.count(None);
        self.log(&self.context.request_id(), None, us, None);
        if let Some(span) = &mut self.span {
            // The span is not marked as failed, because a caller that hangs up is no failure of the gateway.
            span.set("latchgate.hung_up", true);
        }
    }
}

/// The lock that a path names. `None` also if the name looks like a token or holds a secret: a caller
/// may have sent its secret in the wrong place.
fn lock_name(context: &RequestContext, path: &str) -> Option<LockName> {
    let text = percent_decode_str(context.lock(path)?);
    let text = text.decode_utf8().ok()?;
    if Token::parse(&text).is_ok() || may_hold_secret(&text) {
        return None;
    }
    LockName::new(&text).ok()
}

/// Whether the request was refused because the gateway is about to stop.
fn is_sent_away(problem: Option<&Problem>) -> bool {
    problem.is_some_and(|problem| problem.code == ProblemCode::Draining)
}

fn is_about_permission(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::Unauthorized
            | ProblemCode::Forbidden
            | ProblemCode::LimitExceeded
            | ProblemCode::OriginRefused
            | ProblemCode::WrongHost
    )
}
