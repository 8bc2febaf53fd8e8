//! A grant that was waited for, and what is left of it when its caller is told.

use tokio::time::Instant;

use crate::{
    lock::{HeldLease, KeeperId},
    store::{
        Store,
        contract::{Attempt, Renewal, RenewalTtl, Renewer},
    },
};

use super::{
    AcquireError,
    acquire::{AcquireAttempt, AcquireResult},
};

// === impl AcquireAttempt ===

impl AcquireAttempt {
    /// The outcome of an attempt that was granted the lock after a wait; `None` if the grant is lost.
    ///
    /// Whoever waits asks for a whole TTL, and cannot tell when it began. If this gateway or the store stood still since
    /// the grant, so that less than half of it is left, the lease is renewed before it is answered: once, because
    /// a store that is so slow would be no faster the next time.
    pub(super) async fn granted_after_wait(&self, held: HeldLease) -> Option<AcquireResult> {
        let left = held.left_at(Instant::now());
        // At its limit a lease does not get longer by renewing it.
        let renews = !held.is_at_limit() && left < held.ttl.duration() / 2;
        if !renews {
            return (!left.is_zero()).then(|| Ok(self.granted(held)));
        }
        let Attempt { name, token, .. } = &self.attempt;
        let keeper = Renewer::Keeper(KeeperId::of_attempt(token));
        let renewal = self
            .engine
            .store
            .renew_as(keeper, name, token, RenewalTtl::default());
        match renewal.await {
            Ok(Renewal::Renewed(held, _)) => {
                let lives = !held.left_at(Instant::now()).is_zero();
                lives.then(|| Ok(self.granted(held)))
            }
            // A newer request under its idempotency key was answered it meanwhile, and keeps it.
            Ok(Renewal::Adopted) => Some(Err(AcquireError::Superseded)),
            Ok(Renewal::Lost(_)) => None,
            Err(error) => Some(Err(self.failed(error))),
        }
    }
}
