//! Acquire, on the state in memory.

use std::{sync::Arc, time::Duration};

use crate::{
    lock::{BreakTarget, KeeperId, LockName, TokenHash, Ttl},
    store::{
        StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, Breaking, Confirmation, Contention, GiveBack, Holder,
            Idempotency, Leaving, Loss, QueuePosition, Release, Renewal, Renewer, Waiting,
        },
        parking::News,
    },
};

use super::{
    lease::{Lease, Moment},
    queue::{Queued, UndeliveredGrant},
    row::RowKey,
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
                // Under its key a newer request may have been answered it meanwhile, and keeps it; or its place
                // was kept when it left, for whoever comes back.
                if lease.is_adopted() || lease.is_undelivered() {
                    return Ok(Acquisition::Superseded);
                }
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
        let replayed = lease.replayed(now).adopted(keeper);
        let held = replayed.held(now);
        self.set(&attempt.name, replayed);
        Some(if lease.is_undelivered() {
            Acquisition::Collected(held, salt)
        } else {
            Acquisition::Replayed(held, salt, Some(lease.keeper()))
        })
    }
}

// === Join ===
//
// Join the queue, or give a position in it up, on the state in memory.

/// How much longer than its patience an attempt is remembered: it leaves by itself, and only one
/// that could not say so is ever forgotten.
const MARGIN: Duration = Duration::from_secs(5);

// === impl State ===

impl State {
    /// Queues an attempt for a lock that is held, behind everybody or at the position that its
    /// idempotency key has already.
    pub(super) fn join(&mut self, attempt: &Attempt, waiting: Waiting, now: Moment) -> Acquisition {
        let name = &attempt.name;
        let mut queued = Queued {
            attempt: Arc::new(attempt.clone()),
            since: now,
            until: now.after(waiting.max_wait).after(MARGIN),
            attended: true,
            superseded: None,
        };
        let Some((order, before)) = self.position_of(attempt) else {
            if self.queues().len(name, now) >= waiting.longest_queue {
                return Acquisition::QueueFull;
            }
            let order = self.next_position();
            self.put_queued(name, order, Some(queued));
            return Acquisition::Queued(self.queue_position(name, order, now));
        };
        if differs(attempt, &before.attempt) {
            return Acquisition::IdempotencyMismatch;
        }
        if !before.attended && before.attempt.token == attempt.token {
            // It has left, and its place is kept for whoever comes back.
            return Acquisition::Superseded;
        }
        queued.since = before.since;
        if before.attended && before.attempt.token != attempt.token {
            queued.superseded = Some(before.attempt.token);
            self.announce(name, before.attempt.token, News::Superseded);
        }
        self.put_queued(name, order, Some(queued));
        Acquisition::Queued(self.queue_position(name, order, now))
    }

    /// Refuses an attempt that does not wait for a lock that is held. Whoever asked for it before under
    /// the same idempotency key does not want to wait any more.
    pub(super) fn refuse_held(&mut self, attempt: &Attempt, now: Moment) -> Acquisition {
        let name = &attempt.name;
        if attempt.idempotency.is_some()
            && let Some((order, before)) = self.position_of(attempt)
        {
            if differs(attempt, &before.attempt) {
                return Acquisition::IdempotencyMismatch;
            }
            if before.attended {
                self.announce(name, before.attempt.token, News::Superseded);
            }
            self.put_queued(name, order, None);
        }
        Acquisition::Held(self.contention(name, now))
    }

    /// What stands between an attempt and this lock.
    pub(super) fn contention(&self, name: &LockName, now: Moment) -> Contention {
        Contention {
            holder: self.held(name, now).map(Holder::Lease),
            waiters: self.queues().len(name, now),
        }
    }

    fn position_of(&self, attempt: &Attempt) -> Option<(u64, Queued)> {
        let queue = self.queues().of(&attempt.name)?;
        let (order, queued) = match &attempt.idempotency {
            Some(idempotency) => queue.under_key(&idempotency.hash),
            None => queue.of_token(&attempt.token),
        }?;
        Some((order, queued.clone()))
    }

    fn queue_position(&self, name: &LockName, order: u64, now: Moment) -> QueuePosition {
        let ahead = self
            .queues()
            .of(name)
            .map_or(0, |queue| queue.ahead_of(order));
        QueuePosition {
            ahead: u64::try_from(ahead).expect("a queue is shorter than 2^64"),
            contention: self.contention(name, now),
        }
    }
}

/// Whether two attempts under one idempotency key ask for different things.
fn differs(attempt: &Attempt, before: &Attempt) -> bool {
    let fingerprint = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.fingerprint);
    fingerprint(attempt) != fingerprint(before)
}

// === Leave ===
//
// Leave the queue, on the state in memory.

// === impl State ===

impl State {
    /// Takes an attempt out of the queue, or keeps its place for a request that asks again.
    pub(super) fn leave(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
        now: Moment,
    ) -> Leaving {
        if let Some(lease) = self.living(name, now)
            && lease.token == *token
            && !lease.is_undelivered()
        {
            return if lease.is_adopted() {
                Leaving::Superseded
            } else {
                Leaving::Granted(lease.held(now))
            };
        }
        let position = self
            .queues()
            .of(name)
            .and_then(|queue| queue.of_token(token));
        if let Some((order, queued)) = position {
            if queued.attempt.token != *token {
                return Leaving::Superseded;
            }
            let keep_for = keep_for.filter(|_| queued.attempt.idempotency.is_some());
            let kept = keep_for.map(|keep_for| Queued {
                until: now.after(keep_for),
                attended: false,
                ..queued.clone()
            });
            self.put_queued(name, order, kept);
        }
        Leaving::Left(self.contention(name, now))
    }

    /// Takes an attempt out of the queue for good.
    pub(super) fn remove_waiter(&mut self, name: &LockName, token: &TokenHash) {
        let position = self
            .queues()
            .of(name)
            .and_then(|queue| queue.of_token(token));
        if let Some((order, queued)) = position
            && queued.attempt.token == *token
        {
            self.put_queued(name, order, None);
        }
    }
}

// === Confirm ===
//
// Confirm, on the state in memory.

// === impl State ===

impl State {
    /// Nothing is ever provisional here: a grant is the attempt's own from the beginning.
    pub(super) fn confirm(&self, name: &LockName, token: &TokenHash, now: Moment) -> Confirmation {
        match self.durable(name, now) {
            Some(lease) if lease.token == *token && lease.is_adopted() => Confirmation::Superseded,
            Some(lease) if lease.token == *token && !lease.is_undelivered() => {
                Confirmation::Confirmed(lease.held(now))
            }
            _ => Confirmation::Lost,
        }
    }
}

// === Give back ===
//
// Give-back, on the state in memory.

// === impl State ===

impl State {
    /// Ends the grant of an attempt, or sees to it that there will be none.
    pub(super) fn give_back(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        uses_key: bool,
        now: Moment,
    ) -> GiveBack {
        match self.living(name, now) {
            Some(lease) if lease.token == *token => {
                let kept = lease.was_replayed() || lease.is_adopted();
                if kept {
                    return GiveBack::NothingHeld;
                }
                if !uses_key {
                    // As if it had been granted to a place that is kept: then the key is as good as new.
                    let end = lease.expires_at;
                    let unanswered = lease.clone().kept_until(end);
                    self.set(name, unanswered);
                }
                self.end(name, false, now);
                self.withdraw(name, token, now);
                self.hand_off(name, now);
                GiveBack::GivenBack
            }
            _ => {
                self.remove_waiter(name, token);
                self.withdraw(name, token, now);
                GiveBack::NothingHeld
            }
        }
    }
}

// === Release ===
//
// Release, on the state in memory.

// === impl State ===

impl State {
    /// Ends the living lease of this token, if it is kept by whoever releases it as its keeper.
    pub(super) fn release(
        &mut self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
        now: Moment,
    ) -> Release {
        let held = self.living(name, now);
        if let Some(lease) = held.filter(|lease| lease.token == *token) {
            if keeper.is_some_and(|keeper| !lease.is_kept_by(keeper)) {
                return Release::Adopted;
            }
            self.end(name, true, now);
            self.hand_off(name, now);
            Release::Released
        } else if self.remembers(&RowKey::released(name, token), now) {
            Release::Released
        } else {
            Release::Lost(self.loss(name, token, now))
        }
    }
}

// === Renew ===
//
// Renew, on the state in memory.

// === impl State ===

impl State {
    /// Makes the living lease of this token last from now, at most to its hold limit.
    pub(super) fn renew(
        &mut self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
        now: Moment,
    ) -> Renewal {
        match self.living(name, now) {
            Some(lease) if lease.token == *token => {
                let margin = lease.expires_at.since(now);
                let mut lease = lease.renewed(ttl, now);
                match renewer {
                    Renewer::Keeper(keeper) if !lease.is_kept_by(keeper) => {
                        return Renewal::Adopted;
                    }
                    Renewer::Adopter(keeper) => lease = lease.adopted(keeper),
                    Renewer::Keeper(_) | Renewer::Bearer => {}
                }
                let held = lease.held(now);
                self.set(name, lease);
                Renewal::Renewed(held, Some(margin))
            }
            _ => Renewal::Lost(self.loss(name, token, now)),
        }
    }
}

// === Break lock ===
//
// Break, on the state in memory.

// === impl State ===

impl State {
    /// Ends the living lease, if it is the one that was meant, and passes the lock on. Answers the
    /// token of a lease that was broken as well. No foreign client writes here.
    pub(super) fn break_lock(
        &mut self,
        name: &LockName,
        target: Option<BreakTarget>,
        now: Moment,
    ) -> (Breaking, Option<TokenHash>) {
        let Some(lease) = self.living(name, now) else {
            return (Breaking::NotHeld, None);
        };
        let (token, delivered) = (lease.token, !lease.is_undelivered());
        let holder = Holder::Lease(lease.held(now));
        if target.is_some_and(|target| {
            ![BreakTarget::Lease(lease.fence), BreakTarget::All].contains(&target)
        }) {
            return (Breaking::HolderChanged(holder), None);
        }
        self.end(name, false, now);
        self.add_tombstone(&RowKey::broken(name, &token), now);
        if delivered {
            // A copy of its acquire that is still on its way must not take the lock again.
            self.withdraw(name, &token, now);
        }
        self.hand_off(name, now);
        (Breaking::Broken(holder), Some(token))
    }

    /// What a token that does not hold the lock is told.
    pub(super) fn loss(&self, name: &LockName, token: &TokenHash, now: Moment) -> Loss {
        let held = self.is_held(name);
        if self.remembers(&RowKey::broken(name, token), now) {
            return Loss::Broken { held };
        }
        if held {
            Loss::HeldByAnother
        } else {
            Loss::Free
        }
    }
}

// === Hand off ===
//
// Hand-off: the lock passes to the head of the queue, on the state in memory.

// === impl State ===

impl State {
    /// Grants a free lock to the first in its queue that still wants it.
    ///
    /// Everything that may have freed a lock ends with this, so that no lock is free while anybody
    /// is queued for it.
    pub(super) fn hand_off(&mut self, name: &LockName, now: Moment) {
        if self.is_held(name) {
            return;
        }
        while let Some(queued) = self.take_head(name) {
            let wanted = queued.until > now
                && (!queued.attended || self.parking().contains(&queued.attempt.token));
            if !wanted {
                self.announce_forgotten(name, &queued);
                continue;
            }
            let Ok(fence) = self.next_fence() else {
                // There will never be another: those who ask again are told so.
                self.announce_forgotten(name, &queued);
                continue;
            };
            let lease = Lease::grant(&queued.attempt, fence, now);
            let lease = if queued.attended {
                let news = News::Granted(lease.held(now));
                self.announce(name, queued.attempt.token, news);
                lease
            } else {
                lease.kept_until(queued.until)
            };
            self.put(name, Some(lease));
            return;
        }
    }

    /// Ends grants of which nobody could be told. As nobody has heard of them, nothing is left of
    /// them, not even a used idempotency key. One that was answered under its key meanwhile, or adopted,
    /// has somebody who has heard of it.
    pub(super) fn take_back(&mut self, orphans: &[UndeliveredGrant], now: Moment) {
        for UndeliveredGrant { name, token } in orphans {
            let orphaned = self.living(name, now).is_some_and(|lease| {
                lease.token == *token && !lease.was_replayed() && !lease.is_adopted()
            });
            if orphaned {
                self.put(name, None);
                self.hand_off(name, now);
            }
        }
    }

    /// Gives up a position whose time is over.
    pub(super) fn drop_position(&mut self, name: &LockName, order: u64) {
        if let Some(queued) = self.put_queued(name, order, None) {
            self.announce_forgotten(name, &queued);
        }
    }

    /// Gives up every position.
    pub(super) fn drop_all_positions(&mut self) {
        for name in self.queues().names() {
            while let Some(queued) = self.take_head(&name) {
                self.announce_forgotten(&name, &queued);
            }
        }
    }

    fn take_head(&mut self, name: &LockName) -> Option<Queued> {
        let head = self.queues().of(name)?.head()?;
        self.put_queued(name, head, None)
    }

    /// Whoever is still there must ask again.
    fn announce_forgotten(&mut self, name: &LockName, queued: &Queued) {
        if queued.attended {
            self.announce(name, queued.attempt.token, News::Forgotten);
        }
    }
}
