//! What a handler may know of the exchange it is part of.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::http::{edge::RequestId, problem::Problem, serve::SilenceLimit};

/// The request and the connection, for a handler whose answer goes on for long.
pub(in crate::http) struct Exchange {
    /// What the request is called in the log.
    pub(in crate::http) request_id: RequestId,
    /// For how long the caller may be silent.
    pub(in crate::http) silence_limit: SilenceLimit,
}

// === impl Exchange ===

impl<S: Sync> FromRequestParts<S> for Exchange {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let request_id = parts.extensions.get::<RequestId>().cloned();
        let silence_limit = parts.extensions.get::<SilenceLimit>().cloned();
        Ok(Self {
            request_id: request_id.expect("the edge around every route has named the request"),
            // A request that came through no connection has nobody who could be silent.
            silence_limit: silence_limit.unwrap_or_default(),
        })
    }
}
