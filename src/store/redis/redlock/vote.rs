//! How a node votes in the first round.

use crate::{lock::TokenHash, store::StoreError};

use super::record::NodeHolder;

/// Which vote of a node it is: another one in another life of its data, and when another node has learnt from
/// it meanwhile.
pub(super) type VoteId = Box<str>;

/// How a node votes in the first round of a try. That a node refuses and that it does not answer are
/// different votes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vote {
    /// It has reserved the lock, and proposes this fence by this vote.
    Reserved(u64, VoteId),
    /// The lock is free, and was not asked for.
    Free,
    /// The attempt has the lock there, by an earlier try.
    Again,
    /// The lease of this token lives there under the idempotency key.
    Replay(TokenHash),
    /// Somebody else has the lock there.
    Taken(NodeHolder),
    /// A lease lives under the idempotency key, and was asked for in other words.
    Mismatch,
    /// The lease under the idempotency key has ended.
    Expired,
    /// A newer request with the idempotency key keeps the lease of this attempt.
    Superseded,
    /// The try, or the attempt, was withdrawn.
    Withdrawn,
    /// It has no vote: it does not answer, may not vote yet, or is not fit to.
    None(StoreError),
}

// === impl Vote ===

impl Vote {
    /// Whether the node has said something about the lock.
    pub(super) fn counts(&self) -> bool {
        !matches!(self, Self::None(_))
    }

    /// Whether somebody else has the lock there.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Taken(_))
    }

    /// Whether the lock may be reserved there although nobody knows.
    pub(super) fn may_be_reserved(&self) -> bool {
        matches!(
            self,
            Self::Reserved(..) | Self::None(StoreError::Indeterminate(_))
        )
    }
}
