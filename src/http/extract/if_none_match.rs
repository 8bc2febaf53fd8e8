//! `If-None-Match`: what a caller has seen already.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::{HeaderValue, header::IF_NONE_MATCH, request::Parts};

use crate::http::file::lists;

use super::field::{Form, declare_fields};

/// The header `If-None-Match`. Costs nothing where it is not sent.
pub(in crate::http) struct IfNoneMatch(Vec<HeaderValue>);

declare_fields! {
    /// The `ETag` of an earlier answer: if it is still that of the lock, the answer is 304.
    Header IfNoneMatch: "If-None-Match" => Form::TEXT;
}

// === impl IfNoneMatch ===

impl IfNoneMatch {
    /// Whether the caller has what this tag stands for.
    pub(in crate::http) fn names(&self, tag: &HeaderValue) -> bool {
        let tag = tag.to_str();
        tag.is_ok_and(|tag| lists(self.0.iter(), tag))
    }
}

impl<S: Sync> FromRequestParts<S> for IfNoneMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let values = parts.headers.get_all(IF_NONE_MATCH).iter();
        Ok(Self(values.cloned().collect()))
    }
}
