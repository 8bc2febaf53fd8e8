//! An answer with what is said of the request besides.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::{
    http::{extract::AppliedWait, problem::Problem},
    lock::IdempotencyKey,
};

/// What came of a request, with notes on how it was understood.
pub(in crate::http) struct Annotated<T> {
    pub(super) answer: Result<T, Problem>,
    pub(super) notes: Notes,
}

/// What a caller is told of its request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Notes {
    /// That it waits because it preferred to.
    pub(super) wait: Option<AppliedWait>,
    /// That its `Idempotency-Key` may be guessed.
    pub(super) has_short_key: bool,
}

/// In a header, so that the body stays the same: nobody has to handle it, and it is seen with `curl -i`.
const LATCHGATE_WARNING: HeaderName = HeaderName::from_static("latchgate-warning");
const SHORT_KEY: HeaderValue = HeaderValue::from_static(
    "Idempotency-Key has fewer than 22 characters; who guesses it gets the lease. Use a random UUID.",
);

// === impl Notes ===

impl Notes {
    pub(super) fn has_short(key: Option<&IdempotencyKey>) -> Self {
        Self {
            wait: None,
            has_short_key: key.is_some_and(IdempotencyKey::is_short),
        }
    }

    /// What was preferred is applied where the request was let wait: with a grant, and with the refusal after the
    /// wait.
    fn insert(self, response: &mut Response) {
        let status = response.status();
        if let Some(wait) = self.wait
            && (status.is_success() || status == StatusCode::LOCKED)
        {
            wait.insert(response.headers_mut());
        }
        if self.has_short_key && status.is_success() {
            response.headers_mut().insert(LATCHGATE_WARNING, SHORT_KEY);
        }
    }
}

impl<T: IntoResponse> IntoResponse for Annotated<T> {
    fn into_response(self) -> Response {
        let mut response = self.answer.into_response();
        self.notes.insert(&mut response);
        response
    }
}
