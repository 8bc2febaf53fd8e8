//! How a lease that is being kept stands.

use tokio::time::Instant;

use super::Problem;

/// How a lease that is being kept stands.
#[derive(Debug, Clone)]
pub enum LeaseState {
    /// It was renewed in time.
    Kept {
        /// Until when it certainly lasts.
        until: Instant,
    },
    /// It was renewed as far as its hold limit allows, and will not be renewed again.
    AtLimit {
        /// Until when it certainly lasts.
        until: Instant,
    },
    /// A renewal failed. It is tried again, but whoever needs time to stop should watch the clock.
    AtRisk {
        /// Until when it certainly lasts.
        until: Instant,
        /// Why the renewal failed.
        reason: String,
    },
    /// It is lost, for good.
    Lost(Loss),
}

/// How a lease was lost.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Loss {
    /// It could not be renewed for as long as it lasted.
    #[error("it could not be renewed in time: {reason}")]
    Expired {
        /// Why the last renewal failed.
        reason: String,
    },
    /// It was kept for as long as its hold limit allows.
    #[error("its hold limit is reached")]
    HoldLimit,
    /// The gateway says that its token does not hold the lock any more. Somebody else may hold it
    /// already.
    #[error("the gateway says that it has ended: {0}")]
    Ended(Box<Problem>),
}

// === impl LeaseState ===

impl LeaseState {
    /// Until when the lease certainly lasts; `None` once it is lost.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Self::Kept { until } | Self::AtLimit { until } | Self::AtRisk { until, .. } => {
                Some(*until)
            }
            Self::Lost(_) => None,
        }
    }
}
