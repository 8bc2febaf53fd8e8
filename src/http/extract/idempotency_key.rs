//! The header `Idempotency-Key`.

use axum::extract::FromRequestParts;
use http::{HeaderName, request::Parts};

use crate::{
    http::problem::Problem,
    lock::{IdempotencyKey, IdempotencyKeyError},
};

use super::lock_token::single;

/// The header `Idempotency-Key`, if there is one.
pub(in crate::http) struct IdempotencyKeyHeader(pub(in crate::http) Option<IdempotencyKey>);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// As it is written in answers.
const FIELD: &str = "Idempotency-Key";

// === impl IdempotencyKeyHeader ===

impl<S: Sync> FromRequestParts<S> for IdempotencyKeyHeader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let text = single(&parts.headers, &IDEMPOTENCY_KEY)
            .map_err(|reason| Problem::invalid_field(FIELD, reason))?;
        text.map(IdempotencyKey::new)
            .transpose()
            .map(Self)
            .map_err(|error: IdempotencyKeyError| Problem::invalid_field(FIELD, error.to_string()))
    }
}
