//! An attempt that stands in the queue.

use std::sync::Arc;

use crate::{
    lock::TokenHash,
    store::contract::{Attempt, Waiter},
};

use super::moment::Moment;

/// An attempt that stands in the queue.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) attempt: Arc<Attempt>,
    /// When the position was first taken.
    pub(super) since: Moment,
    /// When the position is given up if nothing else happens.
    pub(super) until: Moment,
    /// Whether somebody waits for the news. If not, the place is kept for a request that asks again.
    pub(super) attended: bool,
    /// Whose place it was last, if that one was still waiting. Only the last one: it may have been
    /// about to leave when it was superseded.
    pub(super) superseded: Option<TokenHash>,
}

// === impl Queued ===

impl Queued {
    /// What an inspect shows of it.
    pub(super) fn to_waiter(&self, now: Moment) -> Waiter {
        Waiter {
            owner: self.attempt.owner.clone(),
            waited: now.since(self.since),
        }
    }
}
