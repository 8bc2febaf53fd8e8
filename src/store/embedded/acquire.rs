//! Acquire, on the state in memory.

use crate::{
    lock::{HeldLease, KeeperId, LockName},
    store::{
        StoreError, Unavailability,
        contract::{Acquisition, Attempt, Idempotency},
    },
};

use super::{
    lease::{Lease, LeaseDelivery},
    moment::Moment,
    row_key::RowKey,
    state::State,
};

// === impl State ===

impl State {
    /// Grants the lock if it is free, answers the lease that the attempt or its key has already, or
    /// queues the attempt.
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
                // Under its key a newer request may have been answered it meanwhile, and keeps it.
                if lease.is_adopted() {
                    return Ok(Acquisition::Superseded);
                }
                return Ok(Acquisition::Granted(
                    self.answer_own_lease(name, lease, now),
                ));
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
        if living.is_some() {
            return Ok(match attempt.wait {
                Some(waiting) => self.join(attempt, waiting, now),
                None => self.refuse_held(attempt, now),
            });
        }
        let lease = Lease::grant(attempt, self.next_fence()?, now);
        let held = lease.held(now);
        self.set(name, lease);
        Ok(Acquisition::Granted(held))
    }

    /// The answer to an attempt under the key of the living lease. From then on somebody may have
    /// heard of the lease, so it is not given back any more, and is kept by this attempt.
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
        let salt = key.idempotency.salt;
        let keeper = KeeperId::of_attempt(&attempt.token);
        let replayed = lease.delivered(LeaseDelivery::Again, now).adopted(keeper);
        let held = replayed.held(now);
        self.set(&attempt.name, replayed);
        Some(if lease.is_undelivered() {
            Acquisition::Collected(held, salt)
        } else {
            Acquisition::Replayed(held, salt, Some(lease.keeper()))
        })
    }

    /// The answer to the attempt that has the living lease already.
    fn answer_own_lease(&mut self, name: &LockName, lease: &Lease, now: Moment) -> HeldLease {
        if !lease.is_undelivered() {
            return lease.held(now);
        }
        let delivered = lease.delivered(LeaseDelivery::Once, now);
        let held = delivered.held(now);
        self.set(name, delivered);
        held
    }
}
