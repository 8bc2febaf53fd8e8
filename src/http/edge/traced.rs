//! A request as a part of a trace.

use axum::extract::Request;
use http::{HeaderMap, HeaderName, StatusCode};
use tracing::field::{DisplayValue, display};

use crate::{
    http::problem::Problem,
    lock::{LockName, Token},
    telemetry::trace::{Span, Tracer},
    trace_context::{TraceContext, TraceId, TraceParent},
};

use super::{context::RequestContext, operation::Class};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace that a request is part of, if it is part of one.
#[derive(Default)]
pub(super) struct Traced {
    trace_id: Option<TraceId>,
    span: Option<Span>,
}

// === impl Traced ===

impl Traced {
    /// Begins the gateway's part.
    pub(super) fn begin(
        tracer: &Tracer,
        scheme: &'static str,
        request: &Request,
        context: &RequestContext,
    ) -> Self {
        // Probes and scrapes come every few seconds, and belong to no caller's trace.
        let class = context.operation().map(|operation| operation.class);
        if let Some(Class::Probes | Class::Scrapes) = class {
            return Self::default();
        }
        let route = context.route().template();
        let parent = only(request.headers(), &TRACEPARENT).and_then(TraceParent::parse);
        let sent = || {
            let parent = parent?;
            // Several are one list.
            let states = request.headers().get_all(TRACESTATE).iter();
            let states: Vec<_> = states.filter_map(|state| state.to_str().ok()).collect();
            TraceContext::parse(&parent.to_string(), Some(&states.join(",")))
        };
        let name = || match route {
            "" => request.method().to_string(),
            route => format!("{} {route}", request.method()),
        };
        let mut span = tracer.server_span(name, sent);
        if let Some(span) = &mut span {
            span.set("http.request.method", request.method().to_string());
            // Neither path nor query: what names a lock is told only if that is wanted.
            span.set("url.scheme", scheme);
            if !route.is_empty() {
                span.set("http.route", route.to_owned());
            }
            span.set(
                "latchgate.request_id",
                context.request_id().as_str().to_owned(),
            );
            if span.records_lock_names()
                && let Some(name) = lock_name(context, request.uri().path())
            {
                span.set("latchgate.lock", name.to_string());
            }
        }
        let of_span = span.as_ref().map(Span::trace_id);
        Self {
            trace_id: of_span
                .or_else(|| parent.map(|parent| parent.trace_id))
                .map(TraceId),
            span,
        }
    }

    /// For the log.
    pub(super) fn trace_id(&self) -> Option<DisplayValue<TraceId>> {
        self.trace_id.map(display)
    }

    pub(super) fn span(&self) -> Option<&Span> {
        self.span.as_ref()
    }

    /// It has been answered.
    pub(super) fn end(&mut self, status: StatusCode, problem: Option<&Problem>, key: Option<&str>) {
        let Some(mut span) = self.span.take() else {
            return;
        };
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
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(span) = &mut self.span {
            // The caller hung up or does not read, which is no failure of the gateway.
            span.set("latchgate.hung_up", true);
        }
    }
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// The lock that a path names, if it does.
fn lock_name(context: &RequestContext, path: &str) -> Option<LockName> {
    let name = context.lock(path)?;
    // Somebody may have put a secret in the wrong place.
    if Token::parse(name).is_ok() {
        return None;
    }
    LockName::new(name).ok()
}
