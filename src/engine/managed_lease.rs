//! A lease that a hold task keeps, and the time until which the lease is certainly valid.

use std::{sync::Arc, thread, time::Duration};

use tokio::time::Instant;

use crate::{
    lock::{FencingToken, HeldLease, Lease, LockName, RecipientId, Token, renewal},
    store::contract::Releaser,
};

use super::{
    leases::RecipientEntry,
    loss::LossReason,
    reaper::{AbandonedBy, AbandonedLease},
    start::EngineShared,
};

/// A lease that a hold task keeps with renewals.
pub(super) struct ManagedLease {
    pub(super) name: LockName,
    pub(super) token: Token,
    pub(super) fence: FencingToken,
    /// The recipient id for renewals, because other clients may have the same token.
    pub(super) recipient: RecipientId,
    /// The registration that tells the hold task when another client ends or adopts the lease.
    pub(super) entry: RecipientEntry,
    /// The granted lease, as long as its holder has not been told of the grant; then `None`.
    pub(super) unannounced: Option<Lease>,
    /// Until when the lease is certainly valid, counted from before the store was asked.
    pub(super) valid_until: Instant,
    pub(super) renew_at: Instant,
    pub(super) ttl: Duration,
    /// Whether the lease ends with its hold limit.
    pub(super) at_limit: bool,
    /// When the lease must be released, if its holder was asked to release it.
    pub(super) release_by: Option<Instant>,
    /// The release deadline that the holder was told last.
    pub(super) announced_release_by: Option<Instant>,
    /// Whether the lease ends at the deadline of a release request, so that the end counts as a break.
    ends_by_request: bool,
    engine: Arc<EngineShared>,
}

/// How soon a failed renewal is tried again, at most: often enough that a short outage of the store costs no lease,
/// seldom enough that retries do not keep the store from recovering.
const RETRY: Duration = Duration::from_millis(500);

// === impl ManagedLease ===

impl ManagedLease {
    pub(super) fn new(
        lease: Lease,
        recipient: RecipientId,
        entry: RecipientEntry,
        since: Instant,
        engine: Arc<EngineShared>,
    ) -> Self {
        let held = lease.held.clone();
        let mut managed = Self {
            name: lease.name.clone(),
            token: lease.token.clone(),
            fence: held.fence,
            recipient,
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

    /// Makes the next renewal due now. A grant after a wait may have been under way for a while, so it is renewed
    /// before it is announced: the renewal makes its expiry known.
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
            // The holder was promised the time until the deadline, and measures it by its own clock.
            self.valid_until = self.valid_until.max(sent + request.within);
        }
        // A renewal does not extend a lease that is at its hold limit.
        self.renew_at = if self.at_limit {
            self.valid_until
        } else {
            sent + renewal::spread(self.ttl / 3)
        };
    }

    pub(super) fn schedule_retry(&mut self) {
        self.renew_at = Instant::now() + RETRY.min(self.ttl / 10);
    }

    /// Leaves the lease to the reaper, which releases it unless it has another recipient by then. `lost` is the
    /// reason that the stream reported, if it reported the lease as lost.
    pub(super) fn abandon(&self, releaser: Releaser, lost: Option<LossReason>) {
        let by = AbandonedBy::Recipient(releaser, lost);
        let lease = AbandonedLease::new(self.name.clone(), self.token.hash(), by);
        self.engine.reaper.submit(lease);
    }

    pub(super) fn loss_if_over(&self) -> Option<LossReason> {
        match (Instant::now() >= self.valid_until, self.at_limit) {
            (false, _) => None,
            // The release request ended the lease before the requesting gateway broke it.
            (true, _) if self.ends_by_request => Some(LossReason::Broken),
            (true, true) => Some(LossReason::HoldLimit),
            (true, false) => Some(LossReason::Expired),
        }
    }
}

impl Drop for ManagedLease {
    /// Leaves an unannounced lease to the reaper if the hold task panics, because no task renews it any more. A
    /// client that was sent the lease has the rest of its TTL to stop its work.
    fn drop(&mut self) {
        if thread::panicking() && self.unannounced.is_some() {
            let releaser = Releaser::Undelivered(self.recipient);
            self.abandon(releaser, Some(LossReason::Failed));
        }
    }
}
