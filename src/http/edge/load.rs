//! How many requests are worked on at once.
//!
//! Renew and release have room of their own, so that others who ask for too much cost nobody a lock.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use axum::extract::{FromRequestParts, Request};
use http::{HeaderName, Method, request::Parts};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    config::HttpConfig,
    http::problem::{Extra, Problem, ProblemCode},
};

/// The room there is.
#[derive(Debug, Clone)]
pub(super) struct Load {
    common: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
}

/// A request that is worked on, and does not count while it only waits. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::http) struct Turn(Option<Arc<Taken>>);

#[derive(Debug)]
struct Taken {
    load: Load,
    keeps: bool,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

/// After how long to ask again, in milliseconds: what is worked on takes much less.
const RETRY_AFTER_MS: u64 = 1_000;

// === impl Load ===

impl Load {
    pub(super) fn new(config: &HttpConfig) -> Self {
        Self {
            common: Arc::new(Semaphore::new(config.max_concurrent_requests)),
            reserved: Arc::new(Semaphore::new(config.reserved_requests)),
        }
    }

    /// Takes room for a request, or says that there is none.
    pub(super) fn admit(&self, route: &str, request: &Request) -> Result<Turn, Problem> {
        if is_probe(route) {
            return Ok(Turn(None));
        }
        let turn = Taken {
            load: self.clone(),
            keeps: keeps(route, request),
            permit: Mutex::new(None),
        };
        turn.take_up()?;
        Ok(Turn(Some(Arc::new(turn))))
    }

    fn room(&self, keeps: bool) -> Option<OwnedSemaphorePermit> {
        let common = || Arc::clone(&self.common).try_acquire_owned().ok();
        if keeps {
            let reserved = Arc::clone(&self.reserved).try_acquire_owned().ok();
            reserved.or_else(common)
        } else {
            common()
        }
    }
}

/// Whether it asks how the gateway is. Whoever looks after an overloaded gateway must be able to see
/// that it is alive.
pub(in crate::http) fn is_probe(route: &str) -> bool {
    matches!(route, "/healthz" | "/readyz")
}

/// Whether a request keeps a lease that somebody has, or ends it.
fn keeps(route: &str, request: &Request) -> bool {
    match (request.method(), route) {
        (&Method::PUT, "/locks/{name}/renew")
        | (&Method::DELETE, "/locks/{name}")
        | (&Method::POST, "/locks/{name}/release") => true,
        // It goes on with a lease.
        (&Method::POST, "/locks/{name}/hold") => request.headers().contains_key(LOCK_TOKEN),
        _ => false,
    }
}

// === impl Turn ===

impl Turn {
    /// Does not count from now on: the request waits for others.
    pub(in crate::http) fn put_down(&self) {
        if let Some(taken) = &self.0 {
            drop(taken.permit().take());
        }
    }

    /// Does not count while something waits for its caller, and counts again after it.
    pub(in crate::http) async fn put_down_for<T>(
        &self,
        waiting: impl Future<Output = T>,
    ) -> Result<T, Problem> {
        let mut waiting = pin!(waiting);
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await {
            return Ok(done);
        }
        self.put_down();
        let done = waiting.await;
        if let Some(taken) = &self.0 {
            taken.take_up()?;
        }
        Ok(done)
    }
}

impl<S: Sync> FromRequestParts<S> for Turn {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let turn = parts.extensions.get::<Self>().cloned();
        Ok(turn.expect("the edge around every route has given the request its turn"))
    }
}

// === impl Taken ===

impl Taken {
    fn take_up(&self) -> Result<(), Problem> {
        let permit = self.load.room(self.keeps).ok_or_else(overloaded)?;
        *self.permit() = Some(permit);
        Ok(())
    }

    fn permit(&self) -> std::sync::MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overloaded() -> Problem {
    Problem::new(
        ProblemCode::Overloaded,
        "As many requests are worked on as this gateway takes. Nothing happened.",
    )
    .with(Extra::RetryAfter { ms: RETRY_AFTER_MS })
}
