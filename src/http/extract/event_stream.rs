//! A request whose answer is a stream of events.

use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::http::{
    edge::{RequestContext, RequestId},
    problem::Problem,
    serve::{LongRequestPermit, LongRequests, UserTimeout},
};

use super::{accept, lock_token::LOCK_TOKEN};

/// The request accepts a stream of events. With what a handler must know of it to give one.
///
/// Dropped, it lets the caller be silent for as long as any other.
pub(in crate::http) struct EventStream {
    /// What the request is called in the log.
    request_id: RequestId,
    /// For how long the caller may be silent.
    user_timeout: UserTimeout,
    /// The connection that it takes for as long as it lasts.
    _permit: LongRequestPermit,
}

// === impl EventStream ===

impl EventStream {
    /// What the request is called in the log.
    pub(in crate::http) fn request_id(&self) -> &str {
        self.request_id.as_str()
    }

    /// For how long the caller may leave unacknowledged what it is sent, until it counts as gone.
    pub(in crate::http) fn set_user_timeout(&self, limit: Duration) {
        self.user_timeout.set(limit);
    }
}

impl<S: Sync> FromRequestParts<S> for EventStream {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        accept::event_stream(&parts.headers)?;
        let Ok(long_requests) = LongRequests::from_request_parts(parts, state).await;
        let permit = if parts.headers.contains_key(LOCK_TOKEN) {
            long_requests.acquire_with_lease()?
        } else {
            long_requests.acquire()?
        };
        Ok(Self {
            request_id: RequestContext::of(parts).request_id(),
            user_timeout: UserTimeout::of(&parts.extensions),
            _permit: permit,
        })
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.user_timeout.reset();
    }
}
