//! The one service around all routes; it also answers requests that match no route.

use std::{
    any::Any,
    convert::Infallible,
    future::ready,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method,
    header::{CACHE_CONTROL, CONTENT_LENGTH, TRANSFER_ENCODING},
};

use crate::{
    auth::Access,
    http::{
        problem::{Problem, ProblemCode, render},
        state::{AppState, BasePath},
    },
    telemetry::trace,
};

use super::{
    context::{Edge, RequestContext},
    headers::{self, RequestIds, X_REQUEST_ID},
    origins::{Hosts, ListedOrigin, Origins, named_host},
    permit::{ConcurrencyLimits, overloaded},
    record::RequestRecord,
    routes::{Class, Handled, Operation, Routes, Target},
};

/// All routes, and the edge around them. Cheap to clone.
#[derive(Clone)]
pub struct EdgeService(Arc<Edge>);

/// Future of the answer to a request. If it is dropped before the answer, the caller hung up or does not
/// read.
pub struct EdgeFuture {
    handled: Result<Handled, Option<Problem>>,
    /// State needed to finish the answer; `None` once the request has been answered.
    pending: Option<PendingResponse>,
}

/// State needed to finish the answer to a request and to record it.
struct PendingResponse {
    record: RequestRecord,
    listed: Option<ListedOrigin>,
}

// === impl EdgeService ===

impl EdgeService {
    /// Puts the edge around these operations. Operations of one path must stand next to each other.
    pub(in crate::http) fn new(
        gateway: Arc<AppState>,
        base_path: &BasePath,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Self {
        let config = &gateway.config;
        let over_tls = config.http.tls.is_on();
        let metrics = gateway.engine.metrics();
        Self(Arc::new(Edge {
            routes: Routes::new(operations, base_path, metrics),
            limits: ConcurrencyLimits::new(&config.http),
            request_ids: RequestIds::new(),
            logged: config.log.requests,
            hosts: Hosts::new(config, gateway.gate.is_open()),
            origins: Origins::new(config.http.allowed_origins.clone(), over_tls),
            scheme: if over_tls { "https" } else { "http" },
            gateway,
        }))
    }

    /// Finds the route, the operation and the class of a request.
    pub(in crate::http) fn find<B>(&self, request: &http::Request<B>) -> Target {
        self.0.routes.find(request)
    }

    /// Answers a request. If the gateway `is_full`, the answer is 503 `overloaded`, and nothing happens.
    pub(in crate::http) fn answer<B>(
        &self,
        request: http::Request<B>,
        target: Target,
        is_full: bool,
    ) -> EdgeFuture
    where
        B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        // Most requests have no body, and an empty body costs nothing.
        let mut request = request.map(|body| {
            if body.is_end_stream() {
                Body::empty()
            } else {
                Body::new(body)
            }
        });
        let edge = &self.0;
        let context = RequestContext::begin(edge, target, &request);
        let mut pending = PendingResponse {
            record: RequestRecord::begin(&request, context),
            listed: None,
        };
        let admitted = edge.admit(&request, &mut pending, is_full);
        let handled = admitted.and_then(|()| {
            let context = &pending.record.context;
            request.extensions_mut().insert(context.clone());
            let handled = edge.handle(request, context)?;
            Ok(match pending.record.span() {
                None => handled,
                span => Box::pin(trace::within(span, handled)),
            })
        });
        EdgeFuture {
            handled: handled.map_err(Some),
            pending: Some(pending),
        }
    }

    /// Answers a request that came through no connection.
    pub fn ask<B>(&self, request: http::Request<B>) -> EdgeFuture
    where
        B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let target = self.find(&request);
        self.answer(request, target, false)
    }
}

// === impl EdgeFuture ===

impl Future for EdgeFuture {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match &mut self.handled {
            Ok(handled) => match catch_unwind(AssertUnwindSafe(|| handled.as_mut().poll(cx))) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(response)) => response,
                Err(panic) => panicked(&*panic).into_response(),
            },
            Err(problem) => problem
                .take()
                .expect("not polled after completion")
                .into_response(),
        };
        let pending = self.pending.take();
        let pending = pending.expect("not polled after completion");
        // The request gives up its permit, because its answer is ready. A stream that the answer begins is
        // bounded by other limits than permits.
        pending.record.context.end_work();
        Poll::Ready(Ok(pending.finish(response)))
    }
}

// === impl Edge ===

impl Edge {
    /// Admits a request to its handler, if its host and its web page may use the gateway and the gateway has
    /// room. Nothing of the body has been read yet.
    fn admit(
        &self,
        request: &Request,
        pending: &mut PendingResponse,
        is_full: bool,
    ) -> Result<(), Problem> {
        let context = &pending.record.context;
        check_coding(request.headers())?;
        let host = named_host(request.headers(), request.uri(), request.version())?;
        // The host is not checked for health probes: they know only the address of a gateway, and their
        // answers tell a web page nothing that it could use.
        if context.class() != Class::Probes {
            self.hosts.check(host.as_deref())?;
        }
        let origins = &self.origins;
        pending.listed = origins.check(request, context.class(), host.as_deref())?;
        self.measure(request)?;
        if is_full {
            return Err(overloaded());
        }
        context.permit().begin(&self.limits)
    }

    fn measure(&self, request: &Request) -> Result<(), Problem> {
        let http = &self.gateway.config.http;
        let target = request.uri().path_and_query();
        let target = target.map_or(0, |target| target.as_str().len());
        let headers = bytes_of(request.headers());
        let (code, what, bytes, most) = if target > http.max_uri_bytes {
            (
                ProblemCode::UriTooLong,
                "target has",
                target,
                http.max_uri_bytes,
            )
        } else if headers > http.max_header_bytes {
            (
                ProblemCode::HeadersTooLarge,
                "headers have",
                headers,
                http.max_header_bytes,
            )
        } else {
            return Ok(());
        };
        let detail = format!("The request {what} {bytes} bytes; at most {most} are allowed.");
        Err(Problem::new(code, detail))
    }

    fn handle(&self, request: Request, context: &RequestContext) -> Result<Handled, Problem> {
        if let Some(operation) = context.operation() {
            return Ok((operation.handle)(request, Arc::clone(&self.gateway)));
        }
        let answer = context
            .route()
            .no_operation(request.method(), request.uri().path())?;
        Ok(Box::pin(ready(answer)))
    }
}

// === impl PendingResponse ===

impl PendingResponse {
    fn finish(mut self, mut response: Response) -> Response {
        let context = &self.record.context;
        let (edge, route) = (context.edge(), context.route());
        let problem = response.extensions_mut().remove::<Problem>();
        let id = context.request_id();
        if let Some(problem) = &problem {
            render(problem, &edge.gateway.base_path, id.as_str(), &mut response);
        }
        if context.method() == Method::HEAD {
            leave_body_out(&mut response);
        }
        let headers = response.headers_mut();
        if let Some(reading) = context.caller().and_then(Access::rate) {
            headers::insert_rate(reading, headers);
        }
        headers::insert_security(route.is_page(), headers);
        edge.origins
            .insert_headers(self.listed, context.method(), headers);
        if !route.is_public() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        let status = response.status();
        self.record.answered(&id, status, problem.as_ref());
        let headers = response.headers_mut();
        headers.insert(X_REQUEST_ID, id.into_header());
        response
    }
}

/// Turns the answer to `GET` into the answer to `HEAD`: without its body, but with the body's length if that
/// is known.
fn leave_body_out(response: &mut Response) {
    let body = std::mem::take(response.body_mut());
    let headers = response.headers_mut();
    if let Some(length) = body.size_hint().exact() {
        headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
}

/// Refuses a body in any coding but `chunked` alone: hyper looks at the last coding only, and a proxy that ignores a
/// coding that it does not know may have seen another end of the request.
fn check_coding(headers: &HeaderMap) -> Result<(), Problem> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            let reason = "is not chunked; the gateway takes no other coding";
            Err(Problem::invalid_field("Transfer-Encoding", reason))
        }
    }
}

/// The bytes of all headers as they were on the wire: name, colon, space, value, line end.
fn bytes_of(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum()
}

/// The problem of a handler that panicked: the caller learns of the failure, the log has the cause, and the
/// process goes on.
fn panicked(panic: &(dyn Any + Send)) -> Problem {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Problem::new(
        ProblemCode::Internal,
        "The gateway failed while it handled the request. It is not known what happened.",
    )
    .caused_by(format!("panic: {message}"))
}
