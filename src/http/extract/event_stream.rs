//! A request whose answer is a stream of events.

use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::http::{
    edge::{RequestContext, RequestId},
    problem::Problem,
    serve::{Lasting, SilenceLimit, Stay},
};

use super::{accept, lock_token::LOCK_TOKEN};

/// The request accepts a stream of events. With what a handler must know of it to give one.
///
/// Dropped, it lets the caller be silent for as long as any other.
pub(in crate::http) struct EventStream {
    /// What the request is called in the log.
    request_id: RequestId,
    /// For how long the caller may be silent.
    silence_limit: SilenceLimit,
    /// The connection that it takes for as long as it lasts.
    _stay: Stay,
}

// === impl EventStream ===

impl EventStream {
    /// What the request is called in the log.
    pub(in crate::http) fn request_id(&self) -> &str {
        self.request_id.as_str()
    }

    /// For how long the caller may leave unacknowledged what it is sent, until it counts as gone.
    pub(in crate::http) fn limit_silence(&self, limit: Duration) {
        self.silence_limit.set(limit);
    }
}

impl<S: Sync> FromRequestParts<S> for EventStream {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        accept::event_stream(&parts.headers)?;
        let Ok(lasting) = Lasting::from_request_parts(parts, state).await;
        let stay = if parts.headers.contains_key(LOCK_TOKEN) {
            lasting.stay_with_lease()?
        } else {
            lasting.stay()?
        };
        Ok(Self {
            request_id: RequestContext::of(parts).request_id(),
            silence_limit: SilenceLimit::of(&parts.extensions),
            _stay: stay,
        })
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.silence_limit.lift();
    }
}
