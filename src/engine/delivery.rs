//! Delivery guard: releases a lease that did not reach its holder.

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use crate::{
    lock::{LockName, RecipientId},
    store::contract::Releaser,
};

use super::{
    reaper::{AbandonedBy, AbandonedLease, GivenBack},
    start::EngineShared,
};

/// Releases a lease when dropped, unless [`Delivery::delivered`] was called.
#[must_use = "dropping it releases the lease"]
pub struct Delivery {
    engine: Arc<EngineShared>,
    /// The lease to release on drop; `None` once its answer has left for the caller.
    pending: Option<AbandonedLease>,
    answer: ReplyKind,
}

/// Which of several possible answers about a lease a delivery guard watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The only answer: the request has no idempotency key.
    Once,
    /// The first answer under an idempotency key, with its time. Other answers may follow.
    First(Instant),
    /// The first answer about a lease that was granted under an idempotency key while its caller was away, with the
    /// time of the answer.
    Collected(Instant),
    /// A repeated answer about a lease that was answered under its idempotency key before. If this answer is lost the
    /// lease is kept, because the caller may have received the earlier answer.
    Again,
    /// No answer yet: the recipient of the lease is still acquiring the other locks of its group, and no other request
    /// can complete the group.
    Unfinished,
}

// === impl Delivery ===

impl Delivery {
    /// Creates the guard for an answer about `lease`.
    pub(super) fn new(engine: Arc<EngineShared>, lease: AbandonedLease, answer: ReplyKind) -> Self {
        Self {
            engine,
            pending: Some(lease),
            answer,
        }
    }

    /// Whether the lease already lived under the same idempotency key before this request.
    pub fn is_replay(&self) -> bool {
        matches!(self.answer, ReplyKind::Again | ReplyKind::Collected(_))
    }

    /// Whether an earlier answer under the same idempotency key may have told a caller of the lease.
    pub(super) fn may_be_known(&self) -> bool {
        self.answer == ReplyKind::Again
    }

    /// Whether this lease decides about the other leases of its group, because its request has an idempotency key.
    pub(super) fn decides(&self) -> bool {
        self.answer != ReplyKind::Once
    }

    /// Adds the lease of another guard, which has the same token and answer. If one of the two has an idempotency
    /// key, its guard decides whether all leases are released.
    pub(super) fn join(&mut self, mut other: Self) {
        if self.answer == ReplyKind::Once {
            std::mem::swap(self, &mut other);
        }
        if let (Some(lease), Some(added)) = (&mut self.pending, other.pending.take()) {
            lease.add_names([added.name]);
            lease.add_names(added.others);
        }
    }

    /// Adds leases of other locks with the same token to this guard.
    pub(super) fn join_names(&mut self, names: impl IntoIterator<Item = LockName>) {
        if let Some(lease) = &mut self.pending {
            lease.add_names(names);
        }
    }

    /// Makes the receiver of `awaited` wait until the leases of this guard are released, if the guard releases them.
    pub(super) fn await_with(&mut self, awaited: &GivenBack) {
        if let Some(lease) = &mut self.pending {
            lease.awaited = Some(awaited.clone());
        }
    }

    /// Marks the group as complete and about to be answered for the first time.
    pub(super) fn finished(&mut self) {
        if let (ReplyKind::Unfinished, Some(lease)) = (self.answer, &mut self.pending)
            && let AbandonedBy::UnansweredAttempt(recipient) = lease.by
        {
            lease.may_come_back = true;
            lease.by = if recipient == RecipientId::of_attempt(&lease.token) {
                AbandonedBy::Attempt
            } else {
                AbandonedBy::Recipient(Releaser::Undelivered(recipient), None)
            };
            let answered = self.engine.leases.answered(&lease.name, &lease.token);
            self.answer = ReplyKind::First(answered);
        }
    }

    /// Ends the guard: the answer has left for the caller, who has the lease now.
    pub fn delivered(mut self) {
        self.pending = None;
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(lease) = self.pending.take() else {
            return;
        };
        let EngineShared { leases, reaper, .. } = &*self.engine;
        let is_theirs = match self.answer {
            ReplyKind::Once | ReplyKind::Unfinished => false,
            // A later answer under the idempotency key decides. The store knows of a later answer at another gateway.
            ReplyKind::First(since) | ReplyKind::Collected(since) => {
                leases.was_answered_since(&lease.name, &lease.token, since)
            }
            ReplyKind::Again => true,
        };
        if !is_theirs {
            reaper.submit(lease);
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("pending", &self.pending)
            .field("answer", &self.answer)
            .finish_non_exhaustive()
    }
}
