//! Operations of the embedded store on its state in memory: acquire, leave, confirm, give back, release, renew, break
//! and hand-off.

use std::{sync::Arc, time::Duration};

use crate::{
    lock::{
        BreakTarget, HeldLease, LockName, Mode, RecipientId, ReleaseRequest, SupersedeHash, Terms,
        TokenHash,
    },
    store::{
        StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, Breaking, Confirmation, Contention, GiveBack, Holder,
            Idempotency, Leaving, Loss, QueuePosition, Release, Releaser, Renewal, RenewalTtl,
            Renewer, Requesting, SharedHolders,
        },
        embedded::records::RowKey,
        history::EndedLease,
        parking::News,
    },
};

use super::{
    State,
    held::{Held, count},
    lease::{Lease, Moment},
    queue::{Queue, Queued, UndeliveredGrant},
};

/// How long a position is kept after the longest wait of its attempt is over. An attempt leaves the queue when its wait
/// is over, so this time only ends positions of attempts whose leave did not arrive.
const MARGIN: Duration = Duration::from_secs(5);

// === impl State ===

impl State {
    /// Brings the lock up to date, and answers the first case that applies. The cases are those of `acquire.lua`, in
    /// the same order and under the names of its replies. (The script refuses an attempt whose position was taken over:
    /// here no copy of its command comes late.)
    pub(crate) fn acquire(
        &mut self,
        attempt: &Attempt,
        now: Moment,
    ) -> Result<Acquisition, StoreError> {
        let Attempt { name, token, .. } = attempt;
        self.check_room(u64::MAX)?;
        self.clear_what_is_over(name, now);
        let key = attempt.idempotency.as_ref();
        let held = self.held.get(name);
        // A free lock never has a queue.
        let position = held.and_then(|_| self.position_of(attempt));

        // replaced: the attempt has left, and its position is kept. A grant for it belongs to the caller that comes
        // back.
        let own = held.and_then(|held| held.of_token(token));
        let is_kept = |queued: &Queued| !queued.attended && queued.attempt.token == *token;
        if own.is_some_and(Lease::is_undelivered)
            || position.as_ref().is_some_and(|(_, it)| is_kept(it))
        {
            return Ok(Acquisition::Replaced);
        }
        // again; replaced: a newer request with the same idempotency key was answered the lease meanwhile.
        if let Some(own) = own {
            return Ok(if own.is_adopted() {
                Acquisition::Replaced
            } else {
                Acquisition::Granted(own.held(now))
            });
        }
        // newer, withdrawn: how the attempt ended.
        let is_outdated = |key: &Idempotency| self.remembers(&RowKey::outdated_key(&key.hash), now);
        if self.remembers(&RowKey::outdated(name, token), now) || key.is_some_and(is_outdated) {
            return Ok(Acquisition::NewerWaiter);
        }
        if self.remembers(&RowKey::given_back(name, token), now) {
            return Err(Unavailability::Withdrawn.into());
        }
        // mismatch, collected, replayed: the living lease of the key.
        if let Some(key) = key
            && let Some(kept) = held.and_then(|held| held.under_key(&key.hash))
        {
            return Ok(self.replay(attempt, &kept.clone(), key, now));
        }
        // expired
        if key.is_some_and(|key| self.remembers(&RowKey::used_key(&key.hash), now)) {
            return Ok(Acquisition::IdempotencyExpired);
        }
        // outdated: the position of the attempt, or of its key, is given up; orders.
        if let Some(refusal) = self.refuse_order(attempt, position.as_ref(), now) {
            return Ok(refusal);
        }
        // granted, over
        let held = self.held.get(name);
        let admits = |held: &Held| held.admits(attempt.terms.sharing);
        if held.is_none_or(|held| admits(held) && self.queues.get(name).is_none()) {
            if (self.reservation_end(attempt)).is_some_and(|end| end <= now) {
                return Ok(Acquisition::ReservationOver);
            }
            let lease = self.grant(attempt, now)?;
            let held = lease.held(now);
            self.remember_order(name, &lease, now);
            self.put(name, lease);
            return Ok(Acquisition::Granted(held));
        }
        // held, mismatch: an attempt that does not wait gives up the position of its key.
        if (position.as_ref()).is_some_and(|(_, before)| differs(attempt, &before.attempt)) {
            return Ok(Acquisition::IdempotencyMismatch);
        }
        let Some(waiting) = attempt.wait else {
            if let Some((order, before)) = position.filter(|_| key.is_some()) {
                self.mark_replaced(name, &before);
                self.queues.put(name, order, None);
                // Without the removed position, the waiters behind that position may be able to share the lock.
                self.hand_off(name, now);
            }
            return Ok(Acquisition::Held(self.contention(name, now)));
        };
        // queued, at the position of the key or of the attempt
        let supersedes = waiting.supersedes.as_ref();
        let mut queued = Queued {
            attempt: Arc::new(attempt.clone()),
            since: now,
            arrived: now.before(supersedes.map_or(Duration::ZERO, |it| it.waited_before)),
            until: now.after(waiting.max_wait).after(MARGIN),
            attended: true,
            replaced: None,
        };
        if let Some((order, before)) = position {
            queued.since = before.since;
            queued.arrived = queued.arrived.min(before.since);
            if before.attempt.token != *token {
                queued.replaced = self.mark_replaced(name, &before);
            }
            self.queues.put(name, order, Some(queued));
            if before.attempt.terms.sharing != attempt.terms.sharing {
                // The lock was declared with another limit in between, so the waiter may be able to share the lock now.
                self.hand_off(name, now);
            }
            return Ok(Acquisition::Queued(self.queue_position(name, order, now)));
        }
        // newer: a waiter with the same key has a higher order, or has arrived later.
        let queue = self.queues.get(name);
        let rival = queue.and_then(|queue| queue.to_supersede(&supersedes?.hash));
        if rival.is_some_and(|(_, rival)| self.stays(rival, &queued, now)) {
            return Ok(Acquisition::NewerWaiter);
        }
        // full; queued, at the end
        if self.queues.len(name) >= waiting.longest_queue {
            return Ok(Acquisition::QueueFull);
        }
        let removed = supersedes.is_some_and(|it| self.remove_outdated(name, &it.hash, now));
        let order = self.queues.next_position();
        self.queues.put(name, order, Some(queued));
        if removed {
            // Without the older waiter, the waiters behind it may be able to share the lock.
            self.hand_off(name, now);
        }
        Ok(Acquisition::Queued(self.queue_position(name, order, now)))
    }

    /// Creates the lease that an attempt is granted now, beside the existing leases.
    fn grant(&mut self, attempt: &Attempt, now: Moment) -> Result<Lease, StoreError> {
        let fence = self.next_fence()?;
        let mode = attempt.terms.sharing.map_or(Mode::Exclusive, |sharing| {
            Held::mode_beside(self.held.get(&attempt.name), sharing)
        });
        Ok(Lease::grant(attempt, mode, fence, now, self.wall))
    }

    /// Answers an attempt whose idempotency key has a living lease. The attempt becomes the recipient of the
    /// lease, which is not given back from now on, because a caller may know of it.
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
        if lease.is_undelivered()
            && let Some(newer) = self.newer_order(&attempt.name, &lease.said, now)
        {
            // A caller has set the order meanwhile.
            self.remove(&attempt.name, lease.fence);
            self.hand_off(&attempt.name, now);
            return Acquisition::OutdatedOrder(newer);
        }
        let salt = key.salt;
        let recipient = RecipientId::of_attempt(&attempt.token);
        let replayed = lease.replayed(now).adopted(recipient);
        let held = replayed.held(now);
        if lease.is_undelivered() {
            self.remember_order(&attempt.name, &replayed, now);
        }
        self.put(&attempt.name, replayed);
        if lease.is_undelivered() {
            let queued_since = lease.key.as_deref().and_then(|key| key.queued_since);
            let waited = queued_since.map_or(Duration::ZERO, |since| now.since(since));
            Acquisition::Collected(held, salt, waited)
        } else {
            Acquisition::Replayed(held, salt)
        }
    }

    /// Tells the attempt that had a position that a newer request has taken it over, and answers the token of the
    /// attempt; `None` if nobody waits at the position.
    fn mark_replaced(&mut self, name: &LockName, before: &Queued) -> Option<TokenHash> {
        let token = before.attended.then_some(before.attempt.token)?;
        self.announce(name, token, News::Replaced);
        Some(token)
    }

    /// Takes the waiter with this hash of `supersedes` out of the queue, because a newer waiter is about to be queued.
    /// Answers whether there was one.
    fn remove_outdated(&mut self, name: &LockName, hash: &SupersedeHash, now: Moment) -> bool {
        let queue = self.queues.get(name);
        let position = queue.and_then(|queue| queue.to_supersede(hash));
        let older = position.map(|(order, _)| order);
        let older = older.and_then(|order| self.queues.put(name, order, None));
        if let Some(older) = &older {
            let token = older.attempt.token;
            for gone in [Some(token), older.replaced].into_iter().flatten() {
                self.add_tombstone(&RowKey::outdated(name, &gone), now);
            }
            if let Some(key) = &older.attempt.idempotency {
                self.add_tombstone(&RowKey::outdated_key(&key.hash), now);
            }
            if older.attended {
                self.announce(name, token, News::NewerWaiter);
            }
        }
        older.is_some()
    }

    /// The holder and the queue that stand between an attempt and this lock.
    pub(crate) fn contention(&self, name: &LockName, now: Moment) -> Contention {
        let mut holder = self.held.get(name).map(|held| held.holder(now));
        if let Some(Holder::Shared(shared)) = &mut holder {
            let first = self.queues.get(name).and_then(Queue::head);
            shared.first = first.map(|(_, queued)| queued.to_waiter(now));
        }
        Contention {
            holder,
            waiters: self.queues.len(name),
        }
    }

    fn position_of(&self, attempt: &Attempt) -> Option<(u64, Queued)> {
        let queue = self.queues.get(&attempt.name)?;
        let (order, queued) = match &attempt.idempotency {
            Some(idempotency) => queue.under_key(&idempotency.hash),
            None => queue.of_token(&attempt.token),
        }?;
        Some((order, queued.clone()))
    }

    fn queue_position(&self, name: &LockName, order: u64, now: Moment) -> QueuePosition {
        let queue = self.queues.get(name);
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

    /// Takes an attempt out of the queue, or keeps its position for a later request with the same idempotency
    /// key.
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
                Leaving::Replaced
            } else {
                Leaving::Granted(lease.held(now))
            };
        }
        let queue = self.queues.get(name);
        let position = queue.and_then(|queue| queue.of_token(token));
        if let Some((order, queued)) = position {
            if queued.attempt.token != *token {
                return Leaving::Replaced;
            }
            let keep_for = keep_for.filter(|_| queued.attempt.idempotency.is_some());
            let end = self.reservation_end(&queued.attempt);
            let kept = keep_for.map(|keep_for| Queued {
                until: now.after(keep_for).min(end.unwrap_or(Moment::MAX)),
                attended: false,
                ..queued.clone()
            });
            self.queues.put(name, order, kept);
            self.hand_off(name, now);
        } else if self.remembers(&RowKey::outdated(name, token), now) {
            return Leaving::NewerWaiter;
        }
        Leaving::Left(self.contention(name, now))
    }

    /// Answers whether the attempt holds the lock durably. This store makes no provisional grants.
    pub(crate) fn confirm(&self, name: &LockName, token: &TokenHash, now: Moment) -> Confirmation {
        match self.durable_lease(name, token, now) {
            Some(lease) if lease.is_adopted() => Confirmation::Replaced,
            Some(lease) if !lease.is_undelivered() => Confirmation::Confirmed(lease.held(now)),
            Some(_) | None => Confirmation::Lost,
        }
    }

    /// Ends the grant of an attempt, and refuses the attempt from now on. `unanswered` is the recipient, if it
    /// knows that the grant was answered to no caller.
    pub(crate) fn give_back(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        unanswered: Option<RecipientId>,
        now: Moment,
    ) -> GiveBack {
        let mut given_back = GiveBack::NothingHeld;
        if let Some(lease) = self.living_of(name, token, now) {
            let fence = lease.fence;
            let kept = match unanswered {
                Some(recipient) => !lease.is_kept_by(recipient),
                None => lease.was_replayed() || lease.is_adopted(),
            };
            if kept {
                return GiveBack::Kept;
            }
            if unanswered.is_some() {
                // The lease ends like a lease that no caller knows of, so that its idempotency key stays usable.
                let end = lease.expires_at;
                let unanswered = lease.clone().kept_until(end, None);
                self.put(name, unanswered);
            }
            self.forget_order(name, token);
            self.end(name, fence, false, now);
            given_back = GiveBack::GivenBack;
        } else if let Some((order, queued)) =
            self.queues.get(name).and_then(|it| it.of_token(token))
            && queued.attempt.token == *token
        {
            self.queues.put(name, order, None);
        }
        self.withdraw(name, token, now);
        self.hand_off(name, now);
        given_back
    }

    /// Ends the living lease of this token; if a recipient releases it, only if that recipient still keeps it. Before
    /// the minimum hold is over, a rest takes its place.
    pub(crate) fn release(
        &mut self,
        releaser: Releaser,
        name: &LockName,
        token: &TokenHash,
        now: Moment,
    ) -> Release {
        if let Some(lease) = self.living_of(name, token, now) {
            let (fence, held_for) = (lease.fence, now.since(lease.granted_at));
            let recipient = releaser.recipient();
            if recipient.is_some_and(|recipient| !lease.is_kept_by(recipient)) {
                return Release::Adopted(lease.recipient());
            }
            let rest = releaser.may_rest().then(|| lease.rest(now)).flatten();
            let untold = lease.is_undelivered().then(|| lease.clone());
            if !releaser.may_rest() {
                self.forget_order(name, token);
            } else if let Some(lease) = untold {
                // Whoever has the token was told of the lease, and has used it.
                self.remember_order(name, &lease, now);
            }
            // The end of the lease is remembered until a minute after its rest.
            let over = rest.as_ref().map_or(now, |rest| rest.expires_at);
            self.end(name, fence, true, over);
            if let Some(rest) = rest {
                self.put(name, rest);
            }
            self.hand_off(name, now);
            Release::Released(Some(EndedLease {
                fence,
                held_for: Some(held_for),
                may_rest: false,
            }))
        } else if self.remembers(&RowKey::released(name, token), now) {
            Release::Released(None)
        } else {
            Release::Lost(self.loss(name, token, now))
        }
    }

    /// Renews the living lease of this token for a TTL from now, at most until the lease's hold limit.
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
            Renewer::Recipient(recipient) if !lease.is_kept_by(recipient) => {
                return Renewal::Adopted;
            }
            Renewer::Adopter(recipient)
                if self.remembers(&RowKey::given_back(name, &recipient.attempt()), now) =>
            {
                return Renewal::Adopted;
            }
            Renewer::Adopter(recipient) => lease = lease.adopted(recipient),
            Renewer::Recipient(_) | Renewer::Bearer => {}
        }
        let held = lease.held(now);
        self.put(name, lease);
        Renewal::Renewed(held, margin)
    }

    /// Ends the living leases that the target names, and passes the lock on. Also returns the tokens of the
    /// broken leases. This store has no foreign clients.
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
            if !lease.is_undelivered() {
                self.add_tombstone(&RowKey::broken(name, &lease.token), now);
                // A late copy of the lease's acquire must not be granted the lock again.
                self.withdraw(name, &lease.token, now);
            }
        }
        self.hand_off(name, now);
        let tokens = meant.iter().map(|lease| lease.token).collect();
        (Breaking::Broken(holder), tokens)
    }

    /// Asks the holders of the living leases that the target names to release them. Also returns the tokens of
    /// these leases. This store has no foreign clients.
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

    /// The answer to a command whose token does not hold the lock.
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

    /// Grants a lock to the first waiter that still wants it, and then to the next waiters for as long as they
    /// may hold the lock together.
    ///
    /// Every operation that may free a lock or end one of its shared leases, or removes the head of its queue,
    /// ends with this call. Otherwise a waiter could stay queued for a lock that it may hold.
    pub(crate) fn hand_off(&mut self, name: &LockName, now: Moment) {
        loop {
            let held = self.held.get(name);
            if held.is_some_and(|held| held.sharers().is_none()) {
                return;
            }
            let Some((order, first)) = self.queues.get(name).and_then(Queue::head) else {
                return;
            };
            let Terms { sharing, said, .. } = &first.attempt.terms;
            // A waiter whose order is outdated leaves the queue like one whose time is over. When it asks again, it is
            // refused.
            let is_over =
                self.is_over(first, now) || sharing.is_none() && self.is_outdated(name, said, now);
            if !is_over && held.is_some_and(|held| !held.admits(*sharing)) {
                return;
            }
            let wanted = !is_over && self.is_attended_or_kept(first);
            if wanted && (self.is_full() || self.lacks_room_for_order(said)) {
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
                // No fencing token is left, and none ever will be. A waiter that asks again gets this as an error.
                self.announce_forgotten(name, &queued);
                continue;
            };
            let lease = if queued.attended {
                let news = News::Granted(lease.held(now));
                self.announce(name, queued.attempt.token, news);
                self.remember_order(name, &lease, now);
                lease
            } else {
                lease.kept_until(queued.until, Some(queued.since))
            };
            self.put(name, lease);
        }
    }

    /// Ends grants that could not be delivered to their waiters. No caller knows of such a lease, so no trace
    /// of it remains, not even a used idempotency key. A lease that was answered under its key meanwhile, or
    /// adopted, is kept.
    pub(crate) fn take_back(&mut self, orphans: &[UndeliveredGrant], now: Moment) {
        for UndeliveredGrant { name, token } in orphans {
            let lease = self.living_of(name, token, now);
            let orphaned = lease.filter(|lease| !lease.was_replayed() && !lease.is_adopted());
            if let Some(fence) = orphaned.map(|lease| lease.fence) {
                self.forget_order(name, token);
                self.remove(name, fence);
                self.hand_off(name, now);
            }
        }
    }

    /// Whether the time of a position is over.
    pub(super) fn is_over(&self, queued: &Queued, now: Moment) -> bool {
        let end = self.reservation_end(&queued.attempt);
        queued.until.min(end.unwrap_or(Moment::MAX)) <= now
    }

    /// Whether somebody waits at a position, or it is kept.
    pub(super) fn is_attended_or_kept(&self, queued: &Queued) -> bool {
        !queued.attended || self.parking.contains(&queued.attempt.token)
    }

    /// Removes a position from the queue of a lock, because the position's time is over.
    pub(crate) fn drop_position(&mut self, name: &LockName, order: u64, now: Moment) {
        if let Some(queued) = self.queues.put(name, order, None) {
            self.announce_forgotten(name, &queued);
        }
        self.hand_off(name, now);
    }

    /// Removes every position from every queue.
    pub(crate) fn drop_all_positions(&mut self) {
        while let Some((name, order)) = self.queues.over(Moment::MAX) {
            if let Some(queued) = self.queues.put(&name, order, None) {
                self.announce_forgotten(&name, &queued);
            }
        }
    }

    /// Tells a waiter whose position was removed that it must send its acquire again.
    fn announce_forgotten(&mut self, name: &LockName, queued: &Queued) {
        if queued.attended {
            self.announce(name, queued.attempt.token, News::Forgotten);
        }
    }
}

/// Whether two attempts under one idempotency key have different parameters.
pub(super) fn differs(attempt: &Attempt, before: &Attempt) -> bool {
    let fingerprint = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.fingerprint);
    fingerprint(attempt) != fingerprint(before)
}

/// The leases of a lock that the target of a break or of a release request names, possibly none. Fails with the sharers
/// if the lock is shared and there is no target.
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

/// The holder that the answer to a break or to a release request shows for these leases.
fn told(mut leases: Vec<HeldLease>, is_shared: bool) -> Holder {
    match leases.pop() {
        Some(lease) if !is_shared => Holder::Lease(lease),
        last => {
            leases.extend(last);
            Holder::Shared(SharedHolders {
                count: count(leases.len()),
                resting: count(leases.iter().filter(|lease| lease.is_resting).count()),
                leases,
                first: None,
            })
        }
    }
}
