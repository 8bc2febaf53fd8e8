//! How many connections are taken by requests that last: waits and streams.
//!
//! They must leave some to others: a holder whose renewal finds no connection loses its lock.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::http::problem::{Extra, Problem, ProblemCode};

/// The connections that requests may take for long. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::http) struct Lasting {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// A connection that is taken for long; dropped, it is not any more.
#[derive(Debug)]
pub(in crate::http) struct Stay(Arc<AtomicUsize>);

/// Which part of all connections is kept for requests that are answered at once: one of them serves
/// hundreds of renewals a second.
const KEPT: usize = 8;
/// Which part is kept even from those who go on with a lease that they have. They come all together
/// when another gateway drains, and must find room; who does not can still renew.
const KEPT_FROM_ALL: usize = 16;

/// After how long to ask again, in milliseconds: waits end all the time.
const RETRY_AFTER_MS: u64 = 2_000;

// === impl Lasting ===

impl Lasting {
    /// Of so many connections.
    pub(super) fn of(connections: usize) -> Self {
        Self {
            most: connections,
            taken: Arc::default(),
        }
    }

    /// Takes a connection for long, for something new.
    pub(in crate::http) fn stay(&self) -> Result<Stay, Problem> {
        self.take(self.most.div_ceil(KEPT))
    }

    /// The same for going on with a lease that somebody has.
    pub(in crate::http) fn stay_with_lease(&self) -> Result<Stay, Problem> {
        self.take(self.most.div_ceil(KEPT_FROM_ALL))
    }

    fn take(&self, kept: usize) -> Result<Stay, Problem> {
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        // Dropped at once if there is no room.
        let stay = Stay(Arc::clone(&self.taken));
        if before < self.most - kept {
            return Ok(stay);
        }
        let detail = "As many requests wait or listen at this gateway as leave connections to those \
             that are answered at once. Nothing happened.";
        let problem = Problem::new(ProblemCode::Overloaded, detail);
        Err(problem.with(Extra::RetryAfter { ms: RETRY_AFTER_MS }))
    }
}

impl<S: Sync> FromRequestParts<S> for Lasting {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let lasting = parts.extensions.get::<Self>().cloned();
        // A request that came through no connection takes none.
        Ok(lasting.unwrap_or_else(|| Self::of(usize::MAX)))
    }
}

// === impl Stay ===

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
