//! What came of one of several leases.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    http::locks::ReleaseRequestBody,
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
        let millis =
            |left: std::time::Duration| u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Self {
            name: name.as_str().to_owned(),
            code: None,
            fencing_token: lease.map(|lease| lease.fence.get()),
            expires_in_ms: lease.map(|lease| millis(lease.expires_in)),
            hold_expires_in_ms: lease.and_then(|lease| lease.hold_expires_in).map(millis),
            release_requested: lease.and_then(ReleaseRequestBody::of_lease),
        }
    }

    /// It was not done.
    pub(in crate::http) fn failed(name: &LockName, code: ProblemCode) -> Self {
        Self {
            code: Some(code),
            ..Self::done(name, None)
        }
    }
}
