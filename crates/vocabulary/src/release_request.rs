//! That the holder of a lease was asked to release it.

use std::{sync::Arc, time::Duration};

use crate::Reason;

/// Somebody wants the lock: its holder is asked to release it within a time. Then the gateway that has asked breaks the
/// lease; if that gateway has died, the lease ends by itself soon after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The name of the API key that asked, if any.
    pub by: Option<Arc<str>>,
    /// Why, for people to read.
    pub reason: Reason,
    /// How much time the holder has. No renewal goes beyond it, and [`ReleaseRequest::BACKSTOP`].
    pub within: Duration,
}

// === impl ReleaseRequest ===

impl ReleaseRequest {
    /// How much longer than its holder was told a lease lasts at most. The scripts have it as a number, too.
    pub const BACKSTOP: Duration = Duration::from_secs(1);
    /// A request whose end is at most so much sooner than that of the last one counts as the same request: each answer
    /// takes another time, so the same end seems to come a little sooner or later. The clients in JavaScript and Python
    /// have it as a number, too.
    pub const SAME_WITHIN: Duration = Duration::from_millis(500);
    /// The longest time that a holder may be given: whoever wants a lock later than that can ask again.
    pub const LONGEST: Duration = Duration::from_hours(1);
}
