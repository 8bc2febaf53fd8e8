//! Operations on the state in memory: acquire, leave, confirm, give back, release, renew, break and hand-off.

use std::{sync::Arc, time::Duration};

use crate::{
    lock::{BreakTarget, HeldLease, KeeperId, LockName, Mode, ReleaseRequest, TokenHash},
    store::{
        StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, Breaking, Confirmation, Contention, GiveBack, Holder,
            Idempotency, Leaving, Loss, QueuePosition, Release, Renewal, RenewalTtl, Renewer,
            Requesting, SharedHolders, Waiting,
        },
        embedded::records::RowKey,
        parking::News,
    },
};

use super::{
    State,
    held::{Held, count},
    lease::{Lease, Moment},
    queue::{Queue, Queued, UndeliveredGrant},
};

/// How much longer than its patience an attempt is remembered: it leaves by itself, and only one
/// that could not say so is ever forgotten.
const MARGIN: Duration = Duration::from_secs(5);

// === impl State ===

impl State {
    /// Grants the lock if it is free, answers the lease that the attempt or its key has already, or
    /// queues the attempt.
    pub(crate) fn acquire(
        &mut self,
        attempt: &Attempt,
        now: Moment,
    ) -> Result<Acquisition, StoreError> {
        let Attempt { name, token, .. } = attempt;
        self.check_room(u64::MAX)?;
        if self.remembers(&RowKey::given_back(name, token), now) {
            return Err(Unavailability::Withdrawn.into());
        }
        let key = attempt.idempotency.as_ref();
        let mut may_share = None;
        if let Some(held) = self.living(name, now) {
            if let Some(lease) = held.of_token(token) {
                // Under its key a newer request may have been answered it meanwhile, and keeps it; or its place
                // was kept when it left, for whoever comes back.
                if lease.is_adopted() || lease.is_undelivered() {
                    return Ok(Acquisition::Superseded);
                }
                return Ok(Acquisition::Granted(lease.held(now)));
            }
            if let Some(key) = key
                && let Some(lease) = held.under_key(&key.hash).cloned()
            {
                return Ok(self.replay(attempt, &lease, key, now));
            }
            may_share = Some(held.admits(attempt.sharing));
        }
        if let Some(key) = key
            && self.remembers(&RowKey::used_key(&key.hash), now)
        {
            return Ok(Acquisition::IdempotencyExpired);
        }
        // A lock that is free has no queue.
        let is_granted =
            may_share.is_none_or(|may_share| may_share && self.queues.of(name).is_none());
        if !is_granted {
            return Ok(match attempt.wait {
                Some(waiting) => self.join(attempt, waiting, now),
                None => self.refuse_held(attempt, now),
            });
        }
        let lease = self.grant(attempt, now)?;
        let held = lease.held(now);
        self.put(name, lease);
        Ok(Acquisition::Granted(held))
    }

    /// The lease that an attempt is granted now, beside those that are there.
    fn grant(&mut self, attempt: &Attempt, now: Moment) -> Result<Lease, StoreError> {
        let fence = self.next_fence()?;
        let mode = attempt.sharing.map_or(Mode::Exclusive, |sharing| {
            Held::mode_beside(self.held.get(&attempt.name), sharing)
        });
        Ok(Lease::grant(attempt, mode, fence, now))
    }

    /// The answer to an attempt under the key of a living lease. From then on somebody may have
    /// heard of the lease, so it is not given back any more, and is kept by this attempt.
    fn replay(
        &mut self,
        attempt: &Attempt,
        lease: &Lease,
        asked: &Idempotency,
        now: Moment,
    ) -> Acquisition {
        let key = lease.key.as_deref().map(|key| &key.idempotency);
        let Some(key) = key.filter(|key| key.fingerprint == asked.fingerprint) else {
            return Acquisition::IdempotencyMismatch;
        };
        let salt = key.salt;
        let keeper = KeeperId::of_attempt(&attempt.token);
        let replayed = lease.replayed(now).adopted(keeper);
        let held = replayed.held(now);
        self.put(&attempt.name, replayed);
        if lease.is_undelivered() {
            let queued_since = lease.key.as_deref().and_then(|key| key.queued_since);
            let waited = queued_since.map_or(Duration::ZERO, |since| now.since(since));
            Acquisition::Collected(held, salt, waited)
        } else {
            Acquisition::Replayed(held, salt)
        }
    }

    /// Queues an attempt for a lock that is held, behind everybody or at the position that its
    /// idempotency key has already.
    pub(crate) fn join(&mut self, attempt: &Attempt, waiting: Waiting, now: Moment) -> Acquisition {
        let name = &attempt.name;
        let mut queued = Queued {
            attempt: Arc::new(attempt.clone()),
            since: now,
            until: now.after(waiting.max_wait).after(MARGIN),
            attended: true,
            superseded: None,
        };
        let Some((order, before)) = self.position_of(attempt) else {
            if self.queues.len(name) >= waiting.longest_queue {
                return Acquisition::QueueFull;
            }
            let order = self.queues.next_position();
            self.queues.put(name, order, Some(queued));
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
        self.queues.put(name, order, Some(queued));
        Acquisition::Queued(self.queue_position(name, order, now))
    }

    /// Refuses an attempt that does not wait for a lock that is held. Whoever asked for it before under
    /// the same idempotency key does not want to wait any more.
    pub(crate) fn refuse_held(&mut self, attempt: &Attempt, now: Moment) -> Acquisition {
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
            self.queues.put(name, order, None);
            // Those behind it may share the lock.
            self.hand_off(name, now);
        }
        Acquisition::Held(self.contention(name, now))
    }

    /// What stands between an attempt and this lock.
    pub(crate) fn contention(&self, name: &LockName, now: Moment) -> Contention {
        Contention {
            holder: self.held.get(name).map(|held| held.holder(now)),
            waiters: self.queues.len(name),
        }
    }

    fn position_of(&self, attempt: &Attempt) -> Option<(u64, Queued)> {
        let queue = self.queues.of(&attempt.name)?;
        let (order, queued) = match &attempt.idempotency {
            Some(idempotency) => queue.under_key(&idempotency.hash),
            None => queue.of_token(&attempt.token),
        }?;
        Some((order, queued.clone()))
    }

    fn queue_position(&self, name: &LockName, order: u64, now: Moment) -> QueuePosition {
        let queue = self.queues.of(name);
        let ahead = queue.map_or(0, |queue| queue.ahead_of(order));
        let queued = queue.and_then(|queue| queue.at(order));
        QueuePosition {
            ahead: count(ahead),
            waited: queued.map_or(Duration::ZERO, |queued| now.since(queued.since)),
            contention: Contention {
                holder: self.held.get(name).map(|held| held.holder_in_brief(now)),
                waiters: self.queues.len(name),
            },
        }
    }

    /// Takes an attempt out of the queue, or keeps its place for a request that asks again.
    pub(crate) fn leave(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
        now: Moment,
    ) -> Leaving {
        if let Some(lease) = self.living_of(name, token, now)
            && !lease.is_undelivered()
        {
            return if lease.is_adopted() {
                Leaving::Superseded
            } else {
                Leaving::Granted(lease.held(now))
            };
        }
        let queue = self.queues.of(name);
        let position = queue.and_then(|queue| queue.of_token(token));
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
            self.queues.put(name, order, kept);
            self.hand_off(name, now);
        }
        Leaving::Left(self.contention(name, now))
    }

    /// Nothing is ever provisional here: a grant is the attempt's own from the beginning.
    pub(crate) fn confirm(&self, name: &LockName, token: &TokenHash, now: Moment) -> Confirmation {
        match self.durable_lease(name, token, now) {
            Some(lease) if lease.is_adopted() => Confirmation::Superseded,
            Some(lease) if !lease.is_undelivered() => Confirmation::Confirmed(lease.held(now)),
            Some(_) | None => Confirmation::Lost,
        }
    }

    /// Ends the grant of an attempt, or sees to it that there will be none. `unanswered`: its keeper, who knows
    /// that it was answered to nobody.
    pub(crate) fn give_back(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        unanswered: Option<KeeperId>,
        now: Moment,
    ) -> GiveBack {
        let mut given_back = GiveBack::NothingHeld;
        if let Some(lease) = self.living_of(name, token, now) {
            let fence = lease.fence;
            let kept = match unanswered {
                Some(keeper) => !lease.is_kept_by(keeper),
                None => lease.was_replayed() || lease.is_adopted(),
            };
            if kept {
                return GiveBack::Kept;
            }
            if unanswered.is_some() {
                // As if it had been granted to a place that is kept: then the key is as good as new.
                let end = lease.expires_at;
                let unanswered = lease.clone().kept_until(end, None);
                self.put(name, unanswered);
            }
            self.end(name, fence, false, now);
            given_back = GiveBack::GivenBack;
        } else if let Some((order, queued)) = self.queues.of(name).and_then(|it| it.of_token(token))
            && queued.attempt.token == *token
        {
            self.queues.put(name, order, None);
        }
        self.withdraw(name, token, now);
        self.hand_off(name, now);
        given_back
    }

    /// Ends the living lease of this token, if it is kept by whoever releases it as its keeper.
    pub(crate) fn release(
        &mut self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
        now: Moment,
    ) -> Release {
        if let Some(lease) = self.living_of(name, token, now) {
            let fence = lease.fence;
            if keeper.is_some_and(|keeper| !lease.is_kept_by(keeper)) {
                return Release::Adopted;
            }
            self.end(name, fence, true, now);
            self.hand_off(name, now);
            Release::Released
        } else if self.remembers(&RowKey::released(name, token), now) {
            Release::Released
        } else {
            Release::Lost(self.loss(name, token, now))
        }
    }

    /// Makes the living lease of this token last from now, at most until its hold limit.
    pub(crate) fn renew(
        &mut self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
        now: Moment,
    ) -> Renewal {
        let Some(lease) = self.living_of(name, token, now) else {
            return Renewal::Lost(self.loss(name, token, now));
        };
        let margin = lease.expires_at.since(now);
        let mut lease = lease.renewed(ttl, now);
        match renewer {
            Renewer::Keeper(keeper) if !lease.is_kept_by(keeper) => return Renewal::Adopted,
            Renewer::Adopter(keeper) => lease = lease.adopted(keeper),
            Renewer::Keeper(_) | Renewer::Bearer => {}
        }
        let held = lease.held(now);
        self.put(name, lease);
        Renewal::Renewed(held, margin)
    }

    /// Ends the living leases that were meant, and passes the lock on. Answers the tokens of those that were broken
    /// as well. No foreign client writes here.
    pub(crate) fn break_lock(
        &mut self,
        name: &LockName,
        target: Option<BreakTarget>,
        now: Moment,
    ) -> (Breaking, Vec<TokenHash>) {
        let Some(held) = self.living(name, now) else {
            return (Breaking::NotHeld, Vec::new());
        };
        let meant = match meant(held, target, now) {
            Ok(meant) => meant,
            Err(holders) => return (Breaking::Ambiguous(holders), Vec::new()),
        };
        if meant.is_empty() {
            return (Breaking::HolderChanged(held.holder(now)), Vec::new());
        }
        let is_shared = held.sharers().is_some();
        let holder = told(
            meant.iter().map(|lease| lease.held(now)).collect(),
            is_shared,
        );
        for lease in &meant {
            self.end(name, lease.fence, false, now);
            self.add_tombstone(&RowKey::broken(name, &lease.token), now);
            if !lease.is_undelivered() {
                // A copy of its acquire that is still on its way must not take the lock again.
                self.withdraw(name, &lease.token, now);
            }
        }
        self.hand_off(name, now);
        let tokens = meant.iter().map(|lease| lease.token).collect();
        (Breaking::Broken(holder), tokens)
    }

    /// Asks the holders of the living leases that were meant to release them. Answers the tokens of those leases as
    /// well. No foreign client writes here.
    pub(crate) fn request_release(
        &mut self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
        now: Moment,
    ) -> Result<(Requesting, Vec<TokenHash>), StoreError> {
        self.check_room(self.longest_request(name))?;
        let Some(held) = self.living(name, now) else {
            return Ok((Requesting::NotHeld, Vec::new()));
        };
        let meant = match meant(held, target, now) {
            Ok(meant) => meant,
            Err(holders) => return Ok((Requesting::Ambiguous(holders), Vec::new())),
        };
        if meant.is_empty() {
            return Ok((Requesting::HolderChanged(held.holder(now)), Vec::new()));
        }
        let is_shared = held.sharers().is_some();
        let mut asked = Vec::new();
        for lease in &meant {
            let requested = lease.requested(request, now);
            asked.push(requested.as_ref().unwrap_or(lease).held(now));
            if let Some(requested) = requested {
                self.put(name, requested);
            }
        }
        let tokens = meant.iter().map(|lease| lease.token).collect();
        Ok((Requesting::Requested(told(asked, is_shared)), tokens))
    }

    /// What a token that does not hold the lock is told.
    pub(crate) fn loss(&self, name: &LockName, token: &TokenHash, now: Moment) -> Loss {
        let held = self.held.contains_key(name);
        if self.remembers(&RowKey::broken(name, token), now) {
            return Loss::Broken { held };
        }
        if held {
            Loss::HeldByAnother
        } else {
            Loss::Free
        }
    }

    /// Grants a lock to the first in its queue that still wants it, and then to the next, for as long as they may
    /// hold it together.
    ///
    /// Everything that may have freed a lock or a place of it, or removes the head of its queue, ends with this, so
    /// that nobody is queued who might be granted the lock.
    pub(crate) fn hand_off(&mut self, name: &LockName, now: Moment) {
        loop {
            let held = self.held.get(name);
            if held.is_some_and(|held| held.sharers().is_none()) {
                return;
            }
            let Some((order, first)) = self.queues.of(name).and_then(Queue::head) else {
                return;
            };
            let is_over = first.until <= now;
            if !is_over && held.is_some_and(|held| !held.admits(first.attempt.sharing)) {
                return;
            }
            let wanted =
                !is_over && (!first.attended || self.parking.contains(&first.attempt.token));
            if wanted && self.is_full() {
                self.hold_back(name);
                return;
            }
            let Some(queued) = self.queues.put(name, order, None) else {
                return;
            };
            if !wanted {
                self.announce_forgotten(name, &queued);
                continue;
            }
            let Ok(lease) = self.grant(&queued.attempt, now) else {
                // There will never be another fence: those who ask again are told so.
                self.announce_forgotten(name, &queued);
                continue;
            };
            let lease = if queued.attended {
                let news = News::Granted(lease.held(now));
                self.announce(name, queued.attempt.token, news);
                lease
            } else {
                lease.kept_until(queued.until, Some(queued.since))
            };
            self.put(name, lease);
        }
    }

    /// Ends grants of which nobody could be told. As nobody has heard of them, nothing is left of
    /// them, not even a used idempotency key. One that was answered under its key meanwhile, or adopted,
    /// has somebody who has heard of it.
    pub(crate) fn take_back(&mut self, orphans: &[UndeliveredGrant], now: Moment) {
        for UndeliveredGrant { name, token } in orphans {
            let lease = self.living_of(name, token, now);
            let orphaned = lease.filter(|lease| !lease.was_replayed() && !lease.is_adopted());
            if let Some(fence) = orphaned.map(|lease| lease.fence) {
                self.remove(name, fence);
                self.hand_off(name, now);
            }
        }
    }

    /// Gives up a position whose time is over.
    pub(crate) fn drop_position(&mut self, name: &LockName, order: u64, now: Moment) {
        if let Some(queued) = self.queues.put(name, order, None) {
            self.announce_forgotten(name, &queued);
        }
        self.hand_off(name, now);
    }

    /// Gives up every position.
    pub(crate) fn drop_all_positions(&mut self) {
        while let Some((name, order)) = self.queues.over(Moment::MAX) {
            if let Some(queued) = self.queues.put(&name, order, None) {
                self.announce_forgotten(&name, &queued);
            }
        }
    }

    /// Whoever is still there must ask again.
    fn announce_forgotten(&mut self, name: &LockName, queued: &Queued) {
        if queued.attended {
            self.announce(name, queued.attempt.token, News::Forgotten);
        }
    }
}

/// Whether two attempts under one idempotency key ask for different things.
fn differs(attempt: &Attempt, before: &Attempt) -> bool {
    let fingerprint = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.fingerprint);
    fingerprint(attempt) != fingerprint(before)
}

/// The leases that are meant, if any of those there are is; who they are if it is not said which.
fn meant(
    held: &Held,
    target: Option<BreakTarget>,
    now: Moment,
) -> Result<Vec<Lease>, SharedHolders> {
    Ok(match (held, target) {
        (Held::Exclusive(lease), None | Some(BreakTarget::All)) => vec![lease.clone()],
        (Held::Shared(sharers), None) => return Err(sharers.shown(now)),
        (Held::Shared(sharers), Some(BreakTarget::All)) => sharers.living(now).cloned().collect(),
        (held, Some(BreakTarget::Lease(fence))) => {
            held.with_fence(fence).cloned().into_iter().collect()
        }
        (_, Some(BreakTarget::Foreign(_))) => Vec::new(),
    })
}

/// What is told of leases that were meant.
fn told(mut leases: Vec<HeldLease>, is_shared: bool) -> Holder {
    match leases.pop() {
        Some(lease) if !is_shared => Holder::Lease(lease),
        last => {
            leases.extend(last);
            Holder::Shared(SharedHolders {
                count: count(leases.len()),
                leases,
            })
        }
    }
}
