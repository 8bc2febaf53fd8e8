//! One that stands in the line of a lock.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    lock::TokenHash,
    store::contract::{Attempt, Waiter},
};

/// One that stands in the line of a lock at this gateway.
#[derive(Debug, Clone)]
pub(super) struct LocalWaiter {
    pub(super) attempt: Arc<Attempt>,
    /// When the place was first taken.
    pub(super) since: Instant,
    /// When the place is given up if nothing else happens.
    pub(super) until: Instant,
    /// Whether somebody waits for the news. If not, the place is kept for a request that asks again.
    pub(super) attended: bool,
    /// Whose place it was last, if that one was still waiting. It may have been about to leave.
    pub(super) superseded: Option<TokenHash>,
}

// === impl LocalWaiter ===

impl LocalWaiter {
    /// What an inspect shows of it.
    pub(super) fn to_waiter(&self, now: Instant) -> Waiter {
        Waiter {
            owner: self.attempt.owner.clone(),
            waited: now.saturating_duration_since(self.since),
        }
    }

    /// Whether it stands under the idempotency key of this attempt.
    pub(super) fn is_under_key_of(&self, attempt: &Attempt) -> bool {
        let key = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.hash);
        key(attempt).is_some() && key(attempt) == key(&self.attempt)
    }

    /// Whether another attempt under its key asks for something else.
    pub(super) fn is_same_request(&self, attempt: &Attempt) -> bool {
        let fingerprint = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.fingerprint);
        fingerprint(attempt) == fingerprint(&self.attempt)
    }
}
