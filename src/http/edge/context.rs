//! What is known of a request while it is answered.

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

/// What the edge works with: the same for every request.
pub(super) struct Edge {
    pub(super) gateway: Arc<AppState>,
    pub(super) routes: Routes,
    pub(super) limits: ConcurrencyLimits,
    pub(super) request_ids: RequestIds,
    /// Which requests are logged.
    pub(super) logged: LogRequests,
    pub(super) hosts: Hosts,
    pub(super) origins: Origins,
    pub(super) scheme: &'static str,
}

/// What is known of a request while it is answered: the only thing that the edge puts into a request for
/// its handler. Cheap to clone.
///
/// It keeps nothing of the memory of the request's head: there may be many that wait for a lock.
#[derive(Clone)]
pub(in crate::http) struct RequestContext(Arc<Context>);

struct Context {
    edge: Arc<Edge>,
    target: Target,
    method: Method,
    /// What the caller calls the request.
    sent_id: Option<RequestId>,
    /// The number of the request in this process, of which an id is made if the caller has sent none.
    number: u64,
    permit: RequestPermit,
    /// Who calls, once that is known.
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

    /// The operation that the request is for. `None`: the path, if there is one, does not take the method.
    pub(super) fn operation(&self) -> Option<&Operation> {
        let at = self.0.target.operation?;
        Some(&self.route().operations[at])
    }

    /// How the request is treated.
    pub(super) fn class(&self) -> Class {
        self.0.target.class
    }

    pub(super) fn method(&self) -> &Method {
        &self.0.method
    }

    pub(super) fn permit(&self) -> &RequestPermit {
        &self.0.permit
    }

    /// What the request is called in its answer and in the log.
    pub(in crate::http) fn request_id(&self) -> RequestId {
        let own = || self.0.edge.request_ids.of(self.0.number);
        self.0.sent_id.clone().unwrap_or_else(own)
    }

    /// The variable part of the path, as it was sent.
    pub(in crate::http) fn parameter<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.get(self.0.target.parameter.clone()?)
    }

    /// What stands where the path names a lock, as it was sent, if it names one.
    pub(in crate::http) fn lock<'a>(&self, path: &'a str) -> Option<&'a str> {
        self.parameter(path).filter(|_| self.route().names_lock())
    }

    /// Who calls, if that is known.
    pub(in crate::http) fn caller(&self) -> Option<&Access> {
        self.0.caller.get()
    }

    /// The name of the caller's API key, if it is known.
    pub(super) fn key_name(&self) -> Option<&str> {
        self.caller()?.name().map(|name| &**name)
    }

    /// Says who calls. The first one counts.
    pub(in crate::http) fn set_caller(&self, caller: &Access) {
        let _ = self.0.caller.set(caller.clone());
    }

    /// Takes the room that is kept for callers who have been let in.
    pub(in crate::http) fn take_permit(&self) -> Result<(), Problem> {
        self.0.permit.take(&self.0.edge.limits)
    }

    /// The request is not worked on any more.
    pub(super) fn end_work(&self) {
        self.0.permit.give_up(&self.0.edge.limits);
    }

    /// The request waits for others from now on, and counts no more among those that are worked on.
    pub(in crate::http) fn wait(&self) {
        self.0.permit.wait(&self.0.edge.limits);
    }

    /// Waits for something that the caller is to do. If that takes time, the request does not count
    /// meanwhile among those that are worked on.
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
    pub(in crate::http) fn of(parts: &Parts) -> &Self {
        let context = parts.extensions.get();
        context.expect("the edge is around every route that has handlers with extractors")
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(parts).clone())
    }
}
