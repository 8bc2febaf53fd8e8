//! How a lease was lost.

use crate::with_all::with_all;

/// The reason for the release of a lease whose caller is gone, if the lease was not lost.
pub(super) const ABANDONED: &str = "abandoned";

with_all! {
    /// How a lease was lost.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LossReason {
        /// The lease could not be renewed in time.
        Expired => "expired",
        /// The lease was kept for as long as its hold limit allows.
        HoldLimit => "hold-limit",
        /// The lease was ended before its time, for example with its token at another gateway.
        Ended => "ended",
        /// The caller is no longer authorized for the lock. The lease is not renewed any more and ends with its TTL:
        /// until then the holder has time to stop its work.
        Revoked => "revoked",
        /// The lease was broken.
        Broken => "broken",
        /// Another stream adopted the lease.
        Adopted => "adopted",
        /// The reader of the stream left too many events unread, which ends the stream.
        Unread => "unread",
        /// The gateway failed to keep the lease, which is a bug. The lease is released as soon as possible.
        Failed => "failed",
    }
}
