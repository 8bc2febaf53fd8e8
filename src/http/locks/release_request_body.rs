//! That a holder is asked to release its lease, as answers and streams say it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::lock::{HeldLease, ReleaseRequest};

use super::millis::millis;

/// Somebody wants the lock: its holder is asked to release it in time. What is left of the lease then is broken.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ReleaseRequest)]
pub(in crate::http) struct ReleaseRequestBody {
    /// The name of the API key that asked; null if the gateway has none.
    #[schema(required = true)]
    by: Option<String>,
    /// Why, as whoever asked has said it.
    reason: String,
    /// How much time is left, rounded down. Release the lock before it is over.
    within_ms: u64,
}

// === impl ReleaseRequestBody ===

impl ReleaseRequestBody {
    pub(in crate::http) fn of(request: &ReleaseRequest) -> Self {
        Self {
            by: request.by.as_deref().map(str::to_owned),
            reason: request.reason.as_str().to_owned(),
            within_ms: millis(request.within),
        }
    }

    /// What was asked of the holder of a lease, if anything.
    pub(in crate::http) fn of_lease(lease: &HeldLease) -> Option<Self> {
        lease.release_requested.as_deref().map(Self::of)
    }
}
