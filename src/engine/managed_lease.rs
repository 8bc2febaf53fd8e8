//! A lease that is being kept, and until when it is certainly ours.

use std::{sync::Arc, thread, time::Duration};

use tokio::time::Instant;

use crate::lock::{HeldLease, KeeperId, Lease, LockName, Token, renewal};

use super::{
    leases::KeeperEntry,
    loss::LossReason,
    reaper::{AbandonedBy, AbandonedLease},
    start::EngineShared,
};

/// A lease that is being kept.
pub(super) struct ManagedLease {
    pub(super) name: LockName,
    pub(super) token: Token,
    /// The keeper as which it is renewed, because other clients may have the same token.
    pub(super) keeper: KeeperId,
    /// Tells what ends it from outside.
    pub(super) entry: KeeperEntry,
    /// The lease, as long as its holder has not been told of it.
    pub(super) unannounced: Option<Lease>,
    /// Until when the lease is certainly ours, counted from before the store was asked.
    pub(super) valid_until: Instant,
    pub(super) renew_at: Instant,
    pub(super) ttl: Duration,
    /// Whether the lease ends with its hold limit.
    pub(super) at_limit: bool,
    /// When it is to be released, if its holder was asked to.
    pub(super) release_by: Option<Instant>,
    /// The same as the holder was told.
    pub(super) announced_release_by: Option<Instant>,
    /// Whether the lease has no time beyond the request, which is then what ends it.
    ends_by_request: bool,
    engine: Arc<EngineShared>,
}

/// How soon a renewal that failed is tried again, at most: often enough that a short outage of the
/// store costs nothing, seldom enough that it is not what keeps the store from recovering.
const RETRY: Duration = Duration::from_millis(500);

// === impl ManagedLease ===

impl ManagedLease {
    pub(super) fn new(
        lease: Lease,
        keeper: KeeperId,
        entry: KeeperEntry,
        since: Instant,
        engine: Arc<EngineShared>,
    ) -> Self {
        let held = lease.held.clone();
        let mut managed = Self {
            name: lease.name.clone(),
            token: lease.token.clone(),
            keeper,
            entry,
            unannounced: Some(lease),
            valid_until: since,
            renew_at: since,
            ttl: Duration::ZERO,
            at_limit: false,
            release_by: None,
            ends_by_request: false,
            announced_release_by: None,
            engine,
        };
        managed.renewed(&held, since);
        managed
    }

    /// A grant that was waited for may have been under way for a while before it got here. It is renewed
    /// before it is announced, because the renewal makes its expiry known.
    pub(super) fn renew_at_once(mut self) -> Self {
        self.renew_at = Instant::now();
        self
    }

    pub(super) fn renewed(&mut self, held: &HeldLease, sent: Instant) {
        self.ttl = held.ttl.duration();
        self.valid_until = renewal::certain_until(sent, held.expires_in);
        self.at_limit = held.is_at_limit();
        let request = held.release_requested.as_ref();
        self.release_by = request.map(|request| held.as_of + request.within);
        self.ends_by_request = request.is_some_and(|request| request.within <= held.expires_in);
        if let Some(request) = request.filter(|_| self.ends_by_request) {
            // The holder was promised this time, and goes by its own clock.
            self.valid_until = self.valid_until.max(sent + request.within);
        }
        // At its limit a lease does not get longer by renewing it.
        self.renew_at = if self.at_limit {
            self.valid_until
        } else {
            sent + renewal::spread(self.ttl / 3)
        };
    }

    pub(super) fn schedule_retry(&mut self) {
        self.renew_at = Instant::now() + RETRY.min(self.ttl / 10);
    }

    /// Leaves the lease to the reaper, which releases it unless it has another keeper by then. `lost` is the
    /// reason that the stream reported, if it reported the lease as lost.
    pub(super) fn abandon(&self, lost: Option<LossReason>) {
        let by = AbandonedBy::Keeper(self.keeper, lost);
        let lease = AbandonedLease::new(self.name.clone(), self.token.hash(), by);
        self.engine.reaper.submit(lease);
    }

    pub(super) fn loss_if_over(&self) -> Option<LossReason> {
        match (Instant::now() >= self.valid_until, self.at_limit) {
            (false, _) => None,
            // The gateway that asked for it has not broken it.
            (true, _) if self.ends_by_request => Some(LossReason::Broken),
            (true, true) => Some(LossReason::HoldLimit),
            (true, false) => Some(LossReason::Expired),
        }
    }
}

impl Drop for ManagedLease {
    /// A hold task that panics renews no more. A client that was sent the lease has the rest of its TTL to
    /// stop its work.
    fn drop(&mut self) {
        if thread::panicking() && self.unannounced.is_some() {
            self.abandon(Some(LossReason::Failed));
        }
    }
}
