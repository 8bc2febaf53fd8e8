//! How a lease was lost.

use crate::with_all::with_all;

with_all! {
    /// How a lease was lost.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LossReason {
        /// It could not be renewed in time.
        Expired => "expired",
        /// It was kept for as long as its hold limit allows.
        HoldLimit => "hold-limit",
        /// Somebody ended it.
        Ended => "ended",
        /// Whoever asked for it may not have it any more. It is not renewed any more, and ends with its
        /// TTL: until then there is time to stop the work.
        Revoked => "revoked",
        /// Somebody broke it.
        Broken => "broken",
        /// Another stream goes on with it.
        Adopted => "adopted",
        /// Whoever listens left too much unread.
        Unread => "unread",
        /// The gateway failed to keep it, which is a bug. It is released as soon as possible.
        Failed => "failed",
    }
}
