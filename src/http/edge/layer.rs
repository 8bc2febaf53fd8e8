//! One layer around every route, matched or not.
//!
//! It sits in front of every lock, so it is one future and not a stack of them.

use std::{
    any::Any,
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, header::CACHE_CONTROL};
use tower::{Layer, Service};

use crate::{
    audit::Audit,
    config::Config,
    http::{
        base_path::BasePath,
        problem::{Problem, ProblemCode, render},
    },
    telemetry::{
        metrics::Metrics,
        trace::{self, Tracer},
    },
};

use super::{
    access_log::AccessLog,
    hosts::{self, Hosts},
    load::{Load, Turn, is_probe},
    origins::{Listed, Origins},
    refused::Asked,
    request_id::{RequestId, RequestIds, X_REQUEST_ID},
    shown,
    traced::Traced,
};

/// Puts the edge around a service.
#[derive(Clone)]
pub(in crate::http) struct EdgeLayer {
    edge: Arc<Edge>,
    route: Arc<str>,
}

/// A service with the edge around it.
#[derive(Clone)]
pub(in crate::http) struct EdgeService<S> {
    edge: Arc<Edge>,
    route: Arc<str>,
    inner: S,
}

struct Edge {
    base_path: BasePath,
    max_uri_bytes: usize,
    max_header_bytes: usize,
    hosts: Hosts,
    origins: Origins,
    load: Load,
    audit: Audit,
    metrics: Metrics,
    tracer: Tracer,
    scheme: &'static str,
    request_ids: RequestIds,
}

// === impl EdgeLayer ===

impl EdgeLayer {
    /// `open` says that there are no API keys.
    pub(in crate::http) fn new(
        base_path: BasePath,
        config: &Config,
        open: bool,
        audit: Audit,
        metrics: Metrics,
        tracer: Tracer,
    ) -> Self {
        let edge = Edge {
            base_path,
            max_uri_bytes: config.http.max_uri_bytes,
            max_header_bytes: config.http.max_header_bytes,
            hosts: Hosts::new(config, open),
            origins: Origins::new(config.http.allowed_origins.clone(), config.http.tls.is_on()),
            load: Load::new(&config.http),
            audit,
            metrics,
            tracer,
            scheme: if config.http.tls.is_on() {
                "https"
            } else {
                "http"
            },
            request_ids: RequestIds::new(),
        };
        Self {
            edge: Arc::new(edge),
            route: "".into(),
        }
    }

    /// The same edge around a route, which it names in the log.
    pub(in crate::http) fn at(&self, route: &str) -> Self {
        Self {
            edge: Arc::clone(&self.edge),
            route: route.into(),
        }
    }
}

impl<S> Layer<S> for EdgeLayer {
    type Service = EdgeService<S>;

    fn layer(&self, inner: S) -> EdgeService<S> {
        EdgeService {
            edge: Arc::clone(&self.edge),
            route: Arc::clone(&self.route),
            inner,
        }
    }
}

// === impl EdgeService ===

impl<S> Service<Request> for EdgeService<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let edge = Arc::clone(&self.edge);
        let route = Arc::clone(&self.route);
        let ready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready);
        let private = edge.is_private(&route, request.uri().path());
        let log = edge.begin(&request, route);
        let asked = edge.audit.is_kept().then(|| Asked::of(&request));
        let extensions = request.extensions_mut();
        extensions.insert(log.request_id().clone());
        extensions.insert(log.caller().clone());
        let mut listed = None;
        let admitted = edge.admit(&request, log.route(), &mut listed).map(|turn| {
            request.extensions_mut().insert(turn.clone());
            let handled = trace::within(log.traced().span(), inner.call(request));
            (turn, AssertUnwindSafe(handled).catch_unwind())
        });
        // Nothing of the request is kept here: there may be many who wait for a lock.
        Box::pin(async move {
            let response = match admitted {
                Err(problem) => problem.into_response(),
                Ok((turn, handled)) => {
                    let handled = handled.await;
                    // A stream that goes on is bounded by others.
                    turn.put_down();
                    match handled {
                        Ok(Ok(response)) => response,
                        Ok(Err(never)) => match never {},
                        Err(panic) => panicked(&*panic).into_response(),
                    }
                }
            };
            Ok(edge.finish(response, private, listed, asked.as_ref(), log))
        })
    }
}

// === impl Edge ===

impl Edge {
    fn begin(&self, request: &Request, route: Arc<str>) -> AccessLog {
        let id = RequestId::sent(request.headers()).unwrap_or_else(|| self.request_ids.mint());
        let traced = Traced::begin(&self.tracer, self.scheme, request, &route, &id);
        let metrics = self.metrics.clone();
        AccessLog::begin(request.method().clone(), route, id, traced, metrics)
    }

    /// Whether an answer must not be kept by anybody on its way. Only what has no route is judged by
    /// its path: a route below a base path sees its path without it.
    fn is_private(&self, route: &str, path: &str) -> bool {
        if route.is_empty() {
            let path = self.base_path.strip(path);
            path.is_some_and(|path| path.starts_with("/locks"))
        } else {
            is_private(route)
        }
    }

    /// Lets a request through to its handler, if it may come from where it comes from and there is
    /// room. Nothing of its body has been read.
    fn admit(
        &self,
        request: &Request,
        route: &str,
        listed: &mut Option<Listed>,
    ) -> Result<Turn, Problem> {
        let host = hosts::named(request.headers(), request.uri(), request.version())?;
        // Probes know the address of a gateway, and learn nothing that a page could use.
        if !is_probe(route) {
            self.hosts.check(host.as_ref())?;
        }
        *listed = self.origins.check(request, route, host.as_ref())?;
        self.measure(request)?;
        self.load.admit(route, request)
    }

    fn measure(&self, request: &Request) -> Result<(), Problem> {
        let uri = request.uri();
        let target = uri
            .path_and_query()
            .map_or(0, |target| target.as_str().len());
        if target > self.max_uri_bytes {
            let detail = format!(
                "The request target has {target} bytes; at most {} are allowed.",
                self.max_uri_bytes
            );
            return Err(Problem::new(ProblemCode::UriTooLong, detail));
        }
        let headers = bytes_of(request.headers());
        if headers > self.max_header_bytes {
            let detail = format!(
                "The request headers have {headers} bytes; at most {} are allowed.",
                self.max_header_bytes
            );
            return Err(Problem::new(ProblemCode::HeadersTooLarge, detail));
        }
        Ok(())
    }

    fn finish(
        &self,
        mut response: Response,
        private: bool,
        listed: Option<Listed>,
        asked: Option<&Asked>,
        log: AccessLog,
    ) -> Response {
        let problem = response.extensions_mut().remove::<Problem>();
        if let Some(problem) = &problem {
            if let Some(asked) = asked {
                asked.tell(&self.audit, &log, problem);
            }
            render(
                problem,
                &self.base_path,
                log.request_id().as_str(),
                &mut response,
            );
        }
        let headers = response.headers_mut();
        headers.insert(X_REQUEST_ID, log.request_id().header());
        shown::tell(!private, headers);
        self.origins.tell(listed, log.method(), headers);
        if private {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        log.end(response.status(), problem.as_ref());
        response
    }
}

/// Whether an answer of a route is of one caller and one moment.
pub(in crate::http) fn is_private(route: &str) -> bool {
    route.starts_with("/locks") || matches!(route, "/events" | "/session" | "/stats")
}

/// The bytes of all headers as they were on the wire: name, colon, space, value, line end.
fn bytes_of(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum()
}

/// A handler panicked: the caller learns that, the log why, and the process goes on.
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
