//! Routes that take no query.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::http::problem::{FieldError, Problem};

/// The request has no query. A parameter that is ignored (`?ttl_ms=1000`) would be an outage later.
pub(in crate::http) struct NoQuery;

/// How many parameters an answer names.
const NAMED: usize = 16;

// === impl NoQuery ===

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let errors = parts
            .uri
            .query()
            .into_iter()
            .flat_map(|query| query.split('&'))
            .filter(|parameter| !parameter.is_empty())
            .take(NAMED)
            .map(unknown)
            .collect::<Vec<_>>();
        if errors.is_empty() {
            Ok(Self)
        } else {
            Err(Problem::invalid(errors))
        }
    }
}

fn unknown(parameter: &str) -> FieldError {
    // The name only: the value may be a token that somebody put in the wrong place.
    let name = parameter.split('=').next().unwrap_or_default();
    FieldError::new(
        format!("query.{name}"),
        "is not known; this call takes no query parameters, only fields of the JSON body",
    )
}
