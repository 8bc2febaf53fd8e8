//! That a holder is asked to release its lease, as answers and streams say it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::lock::ReleaseRequest;

use super::lease_body::millis;

/// Somebody wants the lock: its holder is asked to release it in time. What is left of the lease then is broken.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ReleaseRequest)]
pub(in crate::http) struct ReleaseRequestBody {
    /// The name of the API key that asked; null if the gateway has none.
    #[schema(required = true)]
    by: Option<String>,
    /// Why, as whoever asked has said it.
    reason: String,
    /// How much time is left.
    within_ms: u64,
}

// === impl ReleaseRequestBody ===

impl From<ReleaseRequest> for ReleaseRequestBody {
    fn from(request: ReleaseRequest) -> Self {
        Self {
            by: request.by.map(|by| by.to_string()),
            reason: request.reason.as_str().to_owned(),
            within_ms: millis(request.within),
        }
    }
}
