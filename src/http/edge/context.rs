//! The context of a request, which the edge and the handlers share while the request is answered.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::Poll,
};

use axum::extract::FromRequestParts;
use http::{Method, Request, request::Parts};

use crate::{
    auth::Access,
    config::LogRequests,
    http::{problem::Problem, state::AppState},
};

use super::{
    headers::{RequestId, RequestIds},
    origins::{Hosts, Origins},
    permit::{ConcurrencyLimits, RequestPermit},
    routes::{Class, Operation, Route, Routes, Target},
};

/// State that the edge shares between all requests, such as the routes and the limits.
pub(super) struct Edge {
    pub(super) gateway: Arc<AppState>,
    pub(super) routes: Routes,
    pub(super) limits: ConcurrencyLimits,
    pub(super) request_ids: RequestIds,
    /// Which requests get a line in the log.
    pub(super) logged: LogRequests,
    pub(super) hosts: Hosts,
    pub(super) origins: Origins,
    pub(super) scheme: &'static str,
}

/// Context of a request while it is answered: the only value that the edge adds to a request for its handler.
/// Cheap to clone.
///
/// The context keeps none of the memory of the request's head: many requests may wait for a lock at the same
/// time.
#[derive(Clone)]
pub(in crate::http) struct RequestContext(Arc<Context>);

struct Context {
    edge: Arc<Edge>,
    target: Target,
    method: Method,
    /// The request id that the caller sent, if it is safe to repeat in the answer and in the log.
    sent_id: Option<RequestId>,
    /// The number of the request in this process. If the caller has sent no id, this number becomes a part of
    /// the id.
    number: u64,
    permit: RequestPermit,
    /// The access (the permissions) of the caller, once the caller is known.
    caller: OnceLock<Access>,
}

// === impl RequestContext ===

impl RequestContext {
    /// The context of a request on which the gateway begins to work now.
    pub(super) fn begin<B>(edge: &Arc<Edge>, target: Target, request: &Request<B>) -> Self {
        Self(Arc::new(Context {
            permit: RequestPermit::new(target.class),
            target,
            method: request.method().clone(),
            sent_id: RequestId::sent(request.headers()),
            number: edge.request_ids.next(),
            caller: OnceLock::new(),
            edge: Arc::clone(edge),
        }))
    }

    pub(super) fn edge(&self) -> &Arc<Edge> {
        &self.0.edge
    }

    pub(super) fn route(&self) -> &Route {
        self.0.edge.routes.route(self.0.target.route)
    }

    /// The operation that the request is for. `None`: no route has the path, or the path does not take the
    /// method.
    pub(super) fn operation(&self) -> Option<&Operation> {
        let at = self.0.target.operation?;
        Some(&self.route().operations[at])
    }

    /// The class of the request, which says how the request is treated.
    pub(super) fn class(&self) -> Class {
        self.0.target.class
    }

    pub(super) fn method(&self) -> &Method {
        &self.0.method
    }

    pub(super) fn permit(&self) -> &RequestPermit {
        &self.0.permit
    }

    /// The request id in the answer and in the log.
    pub(in crate::http) fn request_id(&self) -> RequestId {
        let own = || self.0.edge.request_ids.format(self.0.number);
        self.0.sent_id.clone().unwrap_or_else(own)
    }

    /// The variable part of the request's path, such as a lock name, as the caller sent it.
    pub(in crate::http) fn parameter<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.get(self.0.target.parameter.clone()?)
    }

    /// The lock name in the request's path, as the caller sent it, if the route has a lock name.
    pub(in crate::http) fn lock<'a>(&self, path: &'a str) -> Option<&'a str> {
        self.parameter(path).filter(|_| self.route().names_lock())
    }

    /// The access (the permissions) of the caller, once the caller is known.
    pub(in crate::http) fn caller(&self) -> Option<&Access> {
        self.0.caller.get()
    }

    /// The name of the caller's API key, if the caller is known and has a key.
    pub(super) fn key_name(&self) -> Option<&str> {
        self.caller()?.name().map(|name| &**name)
    }

    /// Records the caller of the request. If a caller is recorded already, this has no effect.
    pub(in crate::http) fn set_caller(&self, caller: &Access) {
        let _ = self.0.caller.set(caller.clone());
    }

    /// Takes the permit that a request needs to be worked on, if this request has none yet. Renewals have a
    /// reserve that only admitted callers reach.
    pub(in crate::http) fn take_permit(&self) -> Result<(), Problem> {
        self.0.permit.take(&self.0.edge.limits)
    }

    /// Gives up the permit of the request, because the work on the request is done.
    pub(super) fn end_work(&self) {
        self.0.permit.give_up(&self.0.edge.limits);
    }

    /// Gives up the permit of the request, because the request waits for a lock from now on.
    pub(in crate::http) fn wait(&self) {
        self.0.permit.wait(&self.0.edge.limits);
    }

    /// Waits for something that the caller must do, such as sending its body. If that takes time, the request
    /// gives up its permit meanwhile.
    pub(in crate::http) async fn wait_for<T>(
        &self,
        mut waiting: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Problem> {
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await {
            return Ok(done);
        }
        self.wait();
        let done = waiting.await;
        self.0.permit.resume(&self.0.edge.limits)?;
        Ok(done)
    }

    /// The context that the edge has put into a request.
    pub(in crate::http) fn from_parts(parts: &Parts) -> &Self {
        let context = parts.extensions.get();
        context.expect("the edge is around every route that has handlers with extractors")
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::from_parts(parts).clone())
    }
}
