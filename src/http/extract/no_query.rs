//! Routes that take no query.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::http::problem::Problem;

use super::Parameters;

/// The request has no query. A parameter that is ignored (`?ttl_ms=1000`) would be an outage later.
pub(in crate::http) struct NoQuery;

// === impl NoQuery ===

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let parameters = Parameters::of(parts.uri.query().unwrap_or_default());
        parameters.finish(&parts.method)?;
        Ok(Self)
    }
}
