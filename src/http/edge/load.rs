//! How many requests are worked on at once.
//!
//! Renew has room of its own, and release too, so that others who ask for too much cost nobody a lock.
//! They do not share it: anybody may try to release, and only who has been let in may renew.

use std::{
    future::poll_fn,
    pin::Pin,
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
    renewing: Arc<Semaphore>,
    releasing: Arc<Semaphore>,
    scraping: Arc<Semaphore>,
}

/// Which room a request has besides the common one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reserve {
    None,
    /// It keeps a lease: it renews it, or adopts it.
    Renewing,
    /// It ends a lease.
    Releasing,
    /// It asks for metrics, which say what an overloaded gateway is at.
    Scraping,
}

/// A request that is worked on, and does not count while it only waits. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::http) struct Turn(Option<Arc<Taken>>);

#[derive(Debug)]
struct Taken {
    load: Load,
    reserve: Reserve,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

/// How many may ask for metrics at once although there is no room: a pair of Prometheus servers, and a
/// person.
const SCRAPES: usize = 4;

/// After how long to ask again, in milliseconds: what is worked on takes much less.
const RETRY_AFTER_MS: u64 = 1_000;

// === impl Load ===

impl Load {
    pub(super) fn new(config: &HttpConfig) -> Self {
        Self {
            common: Arc::new(Semaphore::new(config.max_concurrent_requests)),
            renewing: Arc::new(Semaphore::new(config.reserved_requests)),
            releasing: Arc::new(Semaphore::new(config.reserved_requests)),
            scraping: Arc::new(Semaphore::new(SCRAPES)),
        }
    }

    /// Takes room for a request, or says that there is none. One that keeps a lease, or asks for
    /// metrics, takes its room when its caller has been let pass: [`Turn::begin`].
    pub(super) fn admit(&self, route: &str, request: &Request) -> Result<Turn, Problem> {
        // A preflight is answered on the spot. Refused, the browser would not send the renewal that
        // comes after it, and which has room.
        if is_probe(route) || request.method() == Method::OPTIONS {
            return Ok(Turn(None));
        }
        let turn = Taken {
            load: self.clone(),
            reserve: Reserve::of(route, request),
            permit: Mutex::new(None),
        };
        if !matches!(turn.reserve, Reserve::Renewing | Reserve::Scraping) {
            turn.take_up()?;
        }
        Ok(Turn(Some(Arc::new(turn))))
    }

    fn room(&self, reserve: Reserve) -> Option<OwnedSemaphorePermit> {
        let room = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_owned().ok();
        let reserved = match reserve {
            Reserve::None => None,
            Reserve::Renewing => room(&self.renewing),
            Reserve::Releasing => room(&self.releasing),
            Reserve::Scraping => room(&self.scraping),
        };
        reserved.or_else(|| room(&self.common))
    }
}

/// Whether it asks how the gateway is. Whoever looks after an overloaded gateway must be able to see
/// that it is alive.
pub(in crate::http) fn is_probe(route: &str) -> bool {
    matches!(route, "/healthz" | "/readyz")
}

// === impl Reserve ===

impl Reserve {
    fn of(route: &str, request: &Request) -> Self {
        match (request.method(), route) {
            (&Method::PUT, "/locks/{name}/renew") => Self::Renewing,
            // It goes on with a lease.
            (&Method::POST, "/locks/{name}/hold") if request.headers().contains_key(LOCK_TOKEN) => {
                Self::Renewing
            }
            (&Method::DELETE, "/locks/{name}") | (&Method::POST, "/locks/{name}/release") => {
                Self::Releasing
            }
            (_, "/metrics") => Self::Scraping,
            _ => Self::None,
        }
    }
}

// === impl Turn ===

impl Turn {
    /// Takes the room of a request that has none yet: its caller has been let pass.
    pub(in crate::http) fn begin(&self) -> Result<(), Problem> {
        match &self.0 {
            Some(taken) if taken.permit().is_none() => taken.take_up(),
            _ => Ok(()),
        }
    }

    /// Does not count from now on: the request waits for others.
    pub(in crate::http) fn put_down(&self) {
        if let Some(taken) = &self.0 {
            drop(taken.permit().take());
        }
    }

    /// Does not count while something waits for its caller, and counts again after it.
    pub(in crate::http) async fn put_down_for<T>(
        &self,
        mut waiting: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Problem> {
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
        let permit = self.load.room(self.reserve).ok_or_else(overloaded)?;
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
