//! What came of one of several leases.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    http::locks::{ReleaseRequestBody, millis},
    lock::{HeldLease, LockName},
};

use super::ProblemCode;

/// What came of one of several leases.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct PartResult {
    /// The lock.
    #[schema(value_type = String)]
    name: String,
    /// Why it was not done: `lease-lost`, or a code of the store. Null: it was done.
    #[schema(required = true)]
    code: Option<ProblemCode>,
    /// What happened to one that was not done, in a sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    detail: Option<Cow<'static, str>>,
    /// With `lease-lost`: whether somebody else holds the lock now. A release without an API key is told only if the lease was broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    held: Option<bool>,
    /// The fencing token of a lease that was renewed; else null.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64, required = true)]
    fencing_token: Option<u64>,
    /// What is left of a lease that was renewed; else null.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// What is left until `max_hold_ms` of a lease that was renewed; null if it has none.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Only of a lease that was renewed and is to be released: somebody has asked for the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ReleaseRequestBody, required = false)]
    release_requested: Option<ReleaseRequestBody>,
}

// === impl PartResult ===

impl PartResult {
    /// It was done. `lease`: what the lease is then, if it has not ended.
    pub(in crate::http) fn done(name: &LockName, lease: Option<&HeldLease>) -> Self {
        Self {
            name: name.as_str().to_owned(),
            code: None,
            detail: None,
            held: None,
            fencing_token: lease.map(|lease| lease.fence.get()),
            expires_in_ms: lease.map(|lease| millis(lease.good_for())),
            hold_expires_in_ms: lease.and_then(|lease| lease.hold_expires_in).map(millis),
            release_requested: lease.and_then(ReleaseRequestBody::of_lease),
        }
    }

    /// It was not done.
    pub(super) fn failed(
        name: &LockName,
        code: ProblemCode,
        detail: Cow<'static, str>,
        held: Option<bool>,
    ) -> Self {
        Self {
            code: Some(code),
            detail: Some(detail),
            held,
            ..Self::done(name, None)
        }
    }

    /// Whether somebody else holds the lock of one of them now; `None`: it is not told of any.
    pub(super) fn any_held(results: &[Self]) -> Option<bool> {
        results.iter().filter_map(|it| it.held).max()
    }
}
