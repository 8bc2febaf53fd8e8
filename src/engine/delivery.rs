//! Whether a lease reached its holder.

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use crate::lock::{KeeperId, LockName};

use super::{
    reaper::{AbandonedBy, AbandonedLease, GivenBack},
    start::EngineShared,
};

/// Gives a lease back unless it is told that the lease was delivered.
#[must_use = "dropping it gives the lease back"]
pub struct Delivery {
    engine: Arc<EngineShared>,
    /// The lease, until the answer has arrived.
    pending: Option<AbandonedLease>,
    answer: ReplyKind,
}

/// Which of the answers of a lease this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The only one there will be.
    Once,
    /// The first one under an idempotency key, which was made then: there may be others.
    First(Instant),
    /// The first one of a lease that was granted under an idempotency key while its caller was away.
    Collected(Instant),
    /// One of a lease that was answered under its idempotency key before. If this answer is lost the lease is kept, because the
    /// caller may have received the one before.
    Again,
    /// None yet: the keeper of the lease collects its group, and nobody else can finish it.
    Unfinished,
}

// === impl Delivery ===

impl Delivery {
    /// Watches over an answer.
    pub(super) fn of(engine: Arc<EngineShared>, lease: AbandonedLease, answer: ReplyKind) -> Self {
        Self {
            engine,
            pending: Some(lease),
            answer,
        }
    }

    /// Whether the lease lived already, under the same idempotency key.
    pub fn is_replay(&self) -> bool {
        matches!(self.answer, ReplyKind::Again | ReplyKind::Collected(_))
    }

    /// Whether the lease decides about the others of its group, because it has an idempotency key.
    pub(super) fn decides(&self) -> bool {
        self.answer != ReplyKind::Once
    }

    /// Watches over another lease of the same token and answer, too. Whether all of them are given back is
    /// decided by the one that has an idempotency key, if one has.
    pub(super) fn join(&mut self, mut other: Self) {
        if self.answer == ReplyKind::Once {
            std::mem::swap(self, &mut other);
        }
        if let (Some(lease), Some(added)) = (&mut self.pending, other.pending.take()) {
            lease.add_names([added.name]);
            lease.add_names(added.others);
        }
    }

    /// Watches over leases with the same token, too.
    pub(super) fn join_names(&mut self, names: impl IntoIterator<Item = LockName>) {
        if let Some(lease) = &mut self.pending {
            lease.add_names(names);
        }
    }

    /// Somebody waits until the leases are given back, if that is what becomes of them.
    pub(super) fn await_with(&mut self, awaited: &GivenBack) {
        if let Some(lease) = &mut self.pending {
            lease.awaited = Some(awaited.clone());
        }
    }

    /// The group is complete, and about to be answered for the first time.
    pub(super) fn finished(&mut self) {
        if let (ReplyKind::Unfinished, Some(lease)) = (self.answer, &mut self.pending)
            && let AbandonedBy::UnansweredAttempt(keeper) = lease.by
        {
            lease.may_come_back = true;
            lease.by = if keeper == KeeperId::of_attempt(&lease.token) {
                AbandonedBy::Attempt
            } else {
                AbandonedBy::Keeper(keeper, None)
            };
            let answered = self.engine.leases.answered(&lease.name, &lease.token);
            self.answer = ReplyKind::First(answered);
        }
    }

    /// The answer has left for the caller: the lease is theirs.
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
            // A later answer under the key decides. Of one at another gateway the store knows.
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
