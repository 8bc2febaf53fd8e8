//! How an attempt ends: with the answer to its caller, and with the release of an undelivered lease.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::{Clock, SystemClock},
    lock::{HeldLease, Lease, RecipientId, Salt, Token, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{
            Acquisition, Attempt, Contention, QueuePosition, Releaser, Renewal, RenewalTtl, Renewer,
        },
    },
};

use super::{
    AcquireError, Delivery, Granted,
    acquire::{AcquireAttempt, AcquireResult},
    delivery::ReplyKind,
    facts::Fact,
    leases::Opening,
    reaper::{AbandonedBy, AbandonedLease},
};

// === impl AcquireAttempt ===

impl AcquireAttempt {
    /// Turns the store's answer into the outcome of the attempt, or into its position in the queue.
    pub(super) fn decided(
        &self,
        answer: Result<Acquisition, StoreError>,
    ) -> ControlFlow<AcquireResult, QueuePosition> {
        ControlFlow::Break(match answer {
            Ok(Acquisition::Queued(place)) => return ControlFlow::Continue(place),
            Ok(Acquisition::Held(contention)) => Err(self.held(contention)),
            Ok(Acquisition::Granted(held)) => Ok(self.granted(held)),
            Ok(Acquisition::Replayed(held, salt)) => Ok(self.replayed(held, &salt, false)),
            Ok(Acquisition::Collected(held, salt, waited)) => {
                let mut collected = self.replayed(held, &salt, true);
                if !self.wait.is_zero() {
                    collected.lease.waited = waited.max(collected.lease.waited);
                    self.engine.metrics.waited(collected.lease.waited, true);
                }
                self.tell_acquired(&collected);
                Ok(collected)
            }
            Ok(Acquisition::QueueFull) => Err(AcquireError::TooManyWaiters),
            Ok(Acquisition::Replaced) => Err(AcquireError::Replaced),
            Ok(Acquisition::NewerWaiter) => Err(AcquireError::NewerWaiter),
            Ok(Acquisition::ReservationOver) => Err(AcquireError::ReservationOver),
            Ok(Acquisition::IdempotencyMismatch) => Err(AcquireError::IdempotencyMismatch),
            Ok(Acquisition::IdempotencyExpired) => Err(AcquireError::IdempotencyExpired),
            Err(error) => Err(self.failed(error)),
        })
    }

    /// The refusal of an attempt whose lock is held. After the time of a reservation a grant would be refused, too: the
    /// attempt is not told to ask again.
    pub(super) fn held(&self, contention: Contention) -> AcquireError {
        if self.is_reservation_over() {
            return AcquireError::ReservationOver;
        }
        AcquireError::Held {
            contention,
            waited: self.waited(),
            sharing: self.attempt.terms.sharing,
        }
    }

    /// Whether the attempt is for a reservation that has ended, by the clock of this gateway: only the words of the
    /// refusal depend on it.
    fn is_reservation_over(&self) -> bool {
        let reservation = self.attempt.terms.reservation();
        reservation.is_some_and(|it| it.until() <= SystemClock.wall())
    }

    /// Turns a store error of one command into the error of the attempt, and releases a lease that the attempt may
    /// have been granted.
    pub(super) fn failed(&self, error: StoreError) -> AcquireError {
        if !self.is_part && self.may_hold(&error) {
            // No caller has the token: dropping the guard releases the lease.
            drop(self.delivery_of_ours());
        }
        AcquireError::Store(match error {
            StoreError::Unavailable(why @ (Unavailability::Withdrawn | Unavailability::RanOut)) => {
                why.into()
            }
            // The error is certain for the command, but not for the attempt: the attempt may still stand in the
            // queue, or in the queue of a replica that becomes the master.
            StoreError::Unavailable(why) if self.was_queued => Uncertainty::LeftQueued(why).into(),
            error => error,
        })
    }

    /// Whether the attempt may hold the lock, or be granted it later, after this answer to one of its commands.
    fn may_hold(&self, error: &StoreError) -> bool {
        self.was_queued || matches!(error, StoreError::Indeterminate(_))
    }

    /// Returns a delivery guard for the lease of a part of a group, if the part may have been granted despite its
    /// error.
    pub(super) fn in_doubt(&self, error: &AcquireError) -> Option<Delivery> {
        let in_doubt = match error {
            AcquireError::Store(error) => self.may_hold(error),
            // The newer request may have taken over only the position, and then this attempt may still be granted a
            // lease.
            AcquireError::Replaced => true,
            _ => false,
        };
        in_doubt.then(|| self.delivery_of_ours())
    }

    pub(super) fn granted(&self, held: HeldLease) -> Granted {
        let token = (self.token.clone(), self.attempt.token);
        let lease = (token.1, &self.attempt.name);
        let opening = self.opening(&held);
        self.engine
            .leases
            .insert_as(true, lease, &held, Some(opening));
        self.charge(&token.1);
        let delivery = self.delivery_of_ours();
        let granted = self.answer(token, held, delivery);
        self.tell_acquired(&granted);
        granted
    }

    fn tell_acquired(&self, Granted { lease, hash, .. }: &Granted) {
        let fact = Fact::Acquired(lease);
        self.engine.facts.tell(&lease.name, Some(hash.into()), fact);
    }

    /// The outcome of an attempt that was granted the lock after a wait; `None` if the grant is lost.
    ///
    /// A waiter asks for a whole TTL, and cannot tell when the TTL began. If this gateway or the store stood still
    /// since the grant, so that less than half of the TTL is left, the lease is renewed before it is answered. The
    /// lease is renewed only once, because a store that is so slow would be no faster the next time.
    pub(super) async fn granted_after_wait(&self, held: HeldLease) -> Option<AcquireResult> {
        let left = held.left_at(Instant::now());
        // A renewal does not extend a lease that is at its hold limit.
        let renews = !held.is_at_limit() && left < held.ttl.duration() / 2;
        if !renews {
            return (!left.is_zero()).then(|| Ok(self.granted(held)));
        }
        let Attempt { name, token, .. } = &self.attempt;
        let recipient = Renewer::Recipient(RecipientId::of_attempt(token));
        let renewal = self
            .engine
            .store
            .renew_as(recipient, name, token, RenewalTtl::default());
        match renewal.await {
            Ok(Renewal::Renewed(held, _)) => {
                let lives = !held.left_at(Instant::now()).is_zero();
                lives.then(|| Ok(self.granted(held)))
            }
            // A newer request under the same idempotency key was answered with this lease meanwhile, and keeps the
            // lease.
            Ok(Renewal::Adopted) => Some(Err(AcquireError::Replaced)),
            Ok(Renewal::Lost(_)) => None,
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    /// Creates the delivery guard for the lease of this attempt.
    fn delivery_of_ours(&self) -> Delivery {
        let mut lease = self.abandoned();
        let answer = if self.repeatable.is_none() {
            ReplyKind::Once
        } else if self.is_part {
            lease.by = AbandonedBy::UnansweredAttempt(RecipientId::of_attempt(&lease.token));
            lease.may_come_back = false;
            ReplyKind::Unfinished
        } else {
            ReplyKind::First(self.engine.leases.answered(&lease.name, &lease.token))
        };
        Delivery::new(Arc::clone(&self.engine), lease, answer)
    }

    /// Answers with the lease that lives under the idempotency key. `is_new`: the lease was granted while its caller
    /// was away, so this is the first answer.
    fn replayed(&self, held: HeldLease, salt: &Salt, is_new: bool) -> Granted {
        let repeatable = self.repeatable.as_ref();
        let (caller, key) =
            repeatable.expect("only an attempt with a key is answered with a replay");
        let token = key.derive_token(caller, &self.attempt.name, salt);
        let hash = token.hash();
        let recipient = RecipientId::of_attempt(&self.attempt.token);
        // The lease that decides about a group has another TTL until the group is complete. With that TTL, no caller
        // was answered the group, and only the recipient of the lease can complete it.
        let is_unfinished = self.is_part && held.ttl == self.attempt.terms.ttl();
        let (name, leases) = (&self.attempt.name, &self.engine.leases);
        let opening = Some(self.opening(&held));
        leases.insert_as(is_new, (hash, name), &held, opening);
        leases.adopted_by(name, &hash, recipient);
        self.charge(&hash);
        let (by, kind) = if is_unfinished {
            (
                AbandonedBy::UnansweredAttempt(recipient),
                ReplyKind::Unfinished,
            )
        } else {
            let answered = leases.answered(name, &hash);
            let kind = if is_new {
                ReplyKind::Collected(answered)
            } else {
                ReplyKind::Again
            };
            (
                AbandonedBy::Recipient(Releaser::Undelivered(recipient), None),
                kind,
            )
        };
        let lease = AbandonedLease {
            token: hash,
            by,
            may_come_back: !is_unfinished,
            ..self.abandoned()
        };
        let delivery = Delivery::new(Arc::clone(&self.engine), lease, kind);
        self.answer((token, hash), held, delivery)
    }

    fn opening(&self, held: &HeldLease) -> Opening {
        Opening {
            by: self.by.clone(),
            waited: Some(self.waited()),
            metadata: held.said.metadata.clone(),
            may_rest: self.attempt.terms.min_hold.is_some(),
        }
    }

    /// Counts the lease for the API key, and the rest that it may leave.
    fn charge(&self, token: &TokenHash) {
        if let Some(slot) = &self.slot {
            let (leases, name) = (&self.engine.leases, &self.attempt.name);
            leases.charge(name, token, Some(slot.clone()));
            leases.rest(name, token, self.attempt.terms.min_hold);
        }
    }

    fn answer(
        &self,
        (token, hash): (Token, TokenHash),
        held: HeldLease,
        delivery: Delivery,
    ) -> Granted {
        Granted {
            lease: Lease {
                name: self.attempt.name.clone(),
                token,
                held,
                waited: self.waited(),
            },
            hash,
            delivery,
            recipient: RecipientId::of_attempt(&self.attempt.token),
        }
    }

    /// How long the caller has waited; zero if its request does not wait.
    pub(super) fn waited(&self) -> Duration {
        if self.wait.is_zero() {
            Duration::ZERO
        } else {
            self.waits_since.elapsed()
        }
    }

    fn abandoned(&self) -> AbandonedLease {
        let Attempt { name, token, .. } = &self.attempt;
        AbandonedLease {
            may_come_back: self.attempt.idempotency.is_some(),
            ..AbandonedLease::new(name.clone(), *token, AbandonedBy::Attempt)
        }
    }
}

impl Drop for AcquireAttempt {
    /// Leaves the lease to the reaper after a panic: the panic may have come after the grant, and then the token is
    /// lost.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.reaper.submit(self.abandoned());
        }
    }
}
