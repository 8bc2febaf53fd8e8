//! A problem on its way to the edge, where it becomes a document.

use std::borrow::Cow;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::HeaderValue;

use crate::lock::LockName;

use super::{FieldError, PartResult, ProblemCode, locked::Locked};

/// What a handler answers instead of success.
///
/// It becomes a response without a side effect: the edge renders it, because only the edge knows the
/// request id, and logs it there, once.
#[derive(Debug, Clone)]
pub(in crate::http) struct Problem {
    pub(in crate::http) code: ProblemCode,
    /// What happened here, in whole sentences.
    pub(in crate::http) detail: Cow<'static, str>,
    pub(in crate::http) extra: Extra,
    /// For the log only: what an operator needs and a caller must not see.
    pub(in crate::http) cause: Option<String>,
    /// Whether the cause is an outage of the store, which the store logs itself, once.
    pub(in crate::http) is_outage: bool,
}

/// What a problem carries besides the fields that all have.
#[derive(Debug, Clone)]
pub(in crate::http) enum Extra {
    /// Nothing.
    None,
    /// `errors`.
    Fields(Vec<FieldError>),
    /// `holders`, `holder_count`, `waited_ms`, `waiters`, `retry_after_ms`, and the header `Retry-After`.
    Locked(Box<Locked>),
    /// `retry_after_ms`, and the header `Retry-After`.
    RetryAfter {
        /// After how long to ask again, in milliseconds.
        ms: u64,
    },
    /// `held`.
    Lost {
        /// Whether somebody else holds the lock now.
        held: bool,
    },
    /// `results`.
    Parts(Vec<PartResult>),
    /// The header `Allow`.
    Allow(HeaderValue),
    /// The header `WWW-Authenticate`.
    Challenge(HeaderValue),
}

// === impl Problem ===

impl Problem {
    pub(in crate::http) fn new(code: ProblemCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            extra: Extra::None,
            cause: None,
            is_outage: false,
        }
    }

    /// 400: everything that is wrong with the request. There is at least one error.
    pub(in crate::http) fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [FieldError { field, reason }] => format!("`{field}` {reason}."),
            _ => format!("{} things are wrong with the request.", errors.len()),
        };
        Self::new(ProblemCode::InvalidRequest, detail).with(Extra::Fields(errors))
    }

    /// 400: one thing that is wrong with the request.
    pub(in crate::http) fn invalid_field(
        field: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) -> Self {
        Self::invalid(vec![FieldError::new(field, reason)])
    }

    pub(in crate::http) fn with(mut self, extra: Extra) -> Self {
        self.extra = extra;
        self
    }

    /// The problem as that of one of several leases.
    pub(in crate::http) fn of_part(&self, name: &LockName) -> PartResult {
        let held = match self.extra {
            Extra::Lost { held } => Some(held),
            _ => None,
        };
        PartResult::failed(name, self.code, self.detail.clone(), held)
    }

    /// After how long to ask again, if the problem says so.
    pub(super) fn retry_after_ms(&self) -> Option<u64> {
        match &self.extra {
            Extra::Locked(locked) => Some(locked.retry_after_ms),
            Extra::RetryAfter { ms } => Some(*ms),
            _ => None,
        }
    }

    pub(in crate::http) fn caused_by(mut self, cause: String) -> Self {
        self.cause = Some(cause);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.code.status();
        response.extensions_mut().insert(self);
        response
    }
}
