//! Acquire, on the state in memory.

use crate::store::{
    StoreError, Unavailability,
    contract::{Acquisition, Attempt, Holder, Idempotency},
};

use super::{lease::Lease, moment::Moment, row_key::RowKey, state::State};

// === impl State ===

impl State {
    /// Grants the lock if it is free, or answers the lease that the attempt or its key has already.
    pub(super) fn acquire(
        &mut self,
        attempt: &Attempt,
        now: Moment,
    ) -> Result<Acquisition, StoreError> {
        let Attempt { name, token, .. } = attempt;
        if self.remembers(&RowKey::given_back(name, token), now) {
            return Err(Unavailability::Withdrawn.into());
        }
        let living = self.living(name, now).cloned();
        if let Some(lease) = &living {
            if lease.token == *token {
                return Ok(Acquisition::Granted(lease.held(now)));
            }
            if let Some(idempotency) = &attempt.idempotency
                && let Some(answer) = self.replay(attempt, lease, idempotency, now)
            {
                return Ok(answer);
            }
        }
        if let Some(idempotency) = &attempt.idempotency
            && self.remembers(&RowKey::used_key(&idempotency.hash), now)
        {
            return Ok(Acquisition::IdempotencyExpired);
        }
        if let Some(lease) = living {
            return Ok(Acquisition::Held(Holder::Lease(lease.held(now))));
        }
        let lease = Lease::grant(attempt, self.next_fence()?, now);
        let held = lease.held(now);
        self.set(name, lease);
        Ok(Acquisition::Granted(held))
    }

    /// The answer to an attempt under the key of the living lease. From then on somebody may have
    /// heard of the lease, so it is not given back any more.
    fn replay(
        &mut self,
        attempt: &Attempt,
        lease: &Lease,
        idempotency: &Idempotency,
        now: Moment,
    ) -> Option<Acquisition> {
        let key = lease.key.as_deref()?;
        if key.idempotency.hash != idempotency.hash {
            return None;
        }
        if key.idempotency.fingerprint != idempotency.fingerprint {
            return Some(Acquisition::IdempotencyMismatch);
        }
        if !key.settled {
            let mut settled = lease.clone();
            if let Some(key) = &mut settled.key {
                key.settled = true;
            }
            self.set(&attempt.name, settled);
        }
        Some(Acquisition::Replayed(lease.held(now), key.idempotency.salt))
    }
}
