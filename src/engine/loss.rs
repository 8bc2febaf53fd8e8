//! How a lease was lost.

use crate::with_all::with_all;

with_all! {
    /// How a lease was lost.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LossReason {
        /// It could not be renewed in time.
        Expired,
        /// It was kept for as long as its hold limit allows.
        HoldLimit,
        /// Somebody ended it.
        Ended,
        /// Whoever asked for it may not have it any more. It is not renewed any more, and ends with its
        /// TTL: until then there is time to stop the work.
        Revoked,
        /// Somebody broke it.
        Broken,
        /// Another stream goes on with it.
        Adopted,
        /// Whoever listens left too much unread.
        Unread,
        /// The gateway failed to keep it, which is a bug. It is released as soon as possible.
        Failed,
    }
}

// === impl LossReason ===

impl LossReason {
    /// The reason in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::HoldLimit => "hold-limit",
            Self::Ended => "ended",
            Self::Revoked => "revoked",
            Self::Broken => "broken",
            Self::Adopted => "adopted",
            Self::Unread => "unread",
            Self::Failed => "failed",
        }
    }
}
