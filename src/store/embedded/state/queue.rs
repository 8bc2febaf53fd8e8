//! Waiters of the embedded store: the queue of each lock, and the news for a waiter.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    lock::{IdempotencyHash, LockName, SupersedeHash, TokenHash},
    store::{
        contract::{Attempt, INSPECTED_WAITERS, Waiter},
        parking::{News, Parking},
    },
};

use super::{
    held::count,
    lease::{Delay, Moment},
};

/// The queue of one lock, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    positions: BTreeMap<u64, Queued>,
    /// Position of each attempt by its token; also by the token of the last attempt that was replaced at the
    /// position.
    by_token: HashMap<TokenHash, u64>,
    by_key: HashMap<IdempotencyHash, u64>,
    /// Position of the newest waiter for each key of `supersedes`.
    by_supersedes: HashMap<SupersedeHash, u64>,
}

// === impl Queue ===

impl Queue {
    /// How many positions the queue has.
    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether the queue has no positions.
    pub(crate) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The first position, whose attempt is granted the lock next.
    pub(crate) fn head(&self) -> Option<(u64, &Queued)> {
        let (order, queued) = self.positions.first_key_value()?;
        Some((*order, queued))
    }

    /// All positions of the queue, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Queued)> {
        self.positions
            .iter()
            .map(|(order, queued)| (*order, queued))
    }

    /// The attempt at this position of the queue.
    pub(crate) fn at(&self, order: u64) -> Option<&Queued> {
        self.positions.get(&order)
    }

    /// The position of the attempt with this token, even if another attempt has replaced it there.
    pub(crate) fn of_token(&self, token: &TokenHash) -> Option<(u64, &Queued)> {
        self.find(self.by_token.get(token))
    }

    /// The position of the attempt with this idempotency key.
    pub(crate) fn under_key(&self, key: &IdempotencyHash) -> Option<(u64, &Queued)> {
        self.find(self.by_key.get(key))
    }

    /// The position of the waiter with this key of `supersedes`.
    pub(crate) fn to_supersede(&self, hash: &SupersedeHash) -> Option<(u64, &Queued)> {
        self.find(self.by_supersedes.get(hash))
    }

    /// How many positions of the queue are before this position. For the last position this is fast; for any other it
    /// counts.
    pub(crate) fn ahead_of(&self, order: u64) -> usize {
        match self.positions.last_key_value() {
            Some((last, _)) if *last == order => self.positions.len() - 1,
            _ => self.positions.range(..order).count(),
        }
    }

    /// Sets or removes the attempt at a position of the queue. Returns the attempt that had the position before.
    pub(crate) fn put(&mut self, order: u64, queued: Option<Queued>) -> Option<Queued> {
        let before = self.positions.remove(&order);
        if let Some(before) = &before {
            for token in tokens(before) {
                self.by_token.remove(&token);
            }
            if let Some(idempotency) = &before.attempt.idempotency {
                self.by_key.remove(&idempotency.hash);
            }
            if let Some(hash) = before.supersedes() {
                self.by_supersedes.remove(&hash);
            }
        }
        if let Some(queued) = queued {
            for token in tokens(&queued) {
                self.by_token.insert(token, order);
            }
            if let Some(idempotency) = &queued.attempt.idempotency {
                self.by_key.insert(idempotency.hash, order);
            }
            if let Some(hash) = queued.supersedes() {
                self.by_supersedes.insert(hash, order);
            }
            self.positions.insert(order, queued);
        }
        before
    }

    fn find(&self, order: Option<&u64>) -> Option<(u64, &Queued)> {
        let order = *order?;
        Some((order, self.positions.get(&order)?))
    }
}

fn tokens(queued: &Queued) -> impl Iterator<Item = TokenHash> {
    [Some(queued.attempt.token), queued.replaced]
        .into_iter()
        .flatten()
}

// === Queued ===
//
// A position in a queue, and the attempt that has it.

/// An attempt in the queue, with the times of its position.
#[derive(Debug, Clone)]
pub(crate) struct Queued {
    pub(crate) attempt: Arc<Attempt>,
    /// Time at which the position was taken first, perhaps by an earlier attempt with the same idempotency key.
    pub(crate) since: Moment,
    /// Time since which the caller waits, if `supersedes` counts its earlier requests too.
    pub(crate) arrived: Moment,
    /// Time at which the position is removed from the queue unless the attempt leaves or is granted the lock before.
    pub(crate) until: Moment,
    /// Whether a caller waits for the news of the attempt. If not, the position is kept for a later request with the
    /// same idempotency key.
    pub(crate) attended: bool,
    /// The token of the attempt from which this attempt took over the position, if that attempt was still
    /// waiting. Only the last such attempt is remembered, because it may have been about to leave when it was
    /// replaced.
    pub(crate) replaced: Option<TokenHash>,
}

// === impl Queued ===

impl Queued {
    fn supersedes(&self) -> Option<SupersedeHash> {
        Some(self.attempt.wait?.supersedes?.hash)
    }

    /// The attempt as the answer to an inspect shows it.
    pub(crate) fn to_waiter(&self, now: Moment) -> Waiter {
        Waiter {
            owner: self.attempt.terms.said.owner.clone(),
            metadata: self.attempt.terms.said.metadata.clone(),
            sharing: self.attempt.terms.sharing,
            waited: now.since(self.since),
        }
    }
}

// === Queues ===
//
// The queues of all locks, and their changes that are not durable yet.

/// The queues of all locks. They are in memory only, because waiters wait on connections to this process.
///
/// Queues change together with the leases, and are rolled back together with the leases if these cannot be made
/// durable.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// The queues by the name of the lock; a queue that becomes empty is removed.
    by_name: HashMap<LockName, Queue>,
    /// The lock of each position, by the time at which the position is removed.
    ends: BTreeMap<(Moment, u64), LockName>,
    /// The number of the last position that was ever taken. Numbers are not used again.
    last: u64,
    /// The attempt at every changed position before its first change.
    undo: BTreeMap<(LockName, u64), Option<Queued>>,
}

// === impl Queues ===

impl Queues {
    /// The queue of a lock, if it has waiters.
    pub(crate) fn get(&self, name: &LockName) -> Option<&Queue> {
        self.by_name.get(name)
    }

    /// Whether no lock has waiters.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// How many waiters a lock has. A waiter whose time is over counts until it is cleared away, within a
    /// second.
    pub(crate) fn len(&self, name: &LockName) -> u64 {
        count(self.get(name).map_or(0, Queue::len))
    }

    /// Takes the number of a new position at the end of a queue.
    pub(crate) fn next_position(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A position of any queue whose time is over: the position with the earliest end; `None` if there is none.
    pub(crate) fn over(&self, now: Moment) -> Option<(LockName, u64)> {
        let ((end, order), name) = self.ends.first_key_value()?;
        (*end <= now).then(|| (name.clone(), *order))
    }

    /// Sets or removes the attempt at a position of a queue. Returns the attempt that had the position before.
    pub(crate) fn put(
        &mut self,
        name: &LockName,
        order: u64,
        queued: Option<Queued>,
    ) -> Option<Queued> {
        let before = self.replace(name, order, queued);
        self.undo
            .entry((name.clone(), order))
            .or_insert_with(|| before.clone());
        before
    }

    /// The first waiters of a queue and its length, without the changes that are not durable yet.
    pub(crate) fn durable_head(&self, name: &LockName, now: Moment) -> (Vec<Waiter>, u64) {
        let queue = self.get(name);
        let unchanged = queue.into_iter().flat_map(Queue::iter);
        let mut line: BTreeMap<_, _> = unchanged
            .filter(|(order, _)| !self.undo.contains_key(&(name.clone(), *order)))
            .take(INSPECTED_WAITERS)
            .collect();
        let mut waiters = queue.map_or(0, Queue::len);
        let changed = (name.clone(), 0)..=(name.clone(), u64::MAX);
        for ((_, order), before) in self.undo.range(changed) {
            line.extend(before.as_ref().map(|before| (*order, before)));
            waiters += usize::from(before.is_some());
            waiters -= usize::from(queue.and_then(|queue| queue.at(*order)).is_some());
        }
        let head = line.into_values().take(INSPECTED_WAITERS);
        let head = head.map(|queued| queued.to_waiter(now)).collect();
        (head, count(waiters))
    }

    /// Marks all changes of the queues as durable.
    pub(crate) fn commit(&mut self) {
        self.undo.clear();
    }

    /// Undoes all changes of the queues that are not durable. Returns the names of the changed queues.
    pub(crate) fn rollback(&mut self) -> impl Iterator<Item = LockName> + use<> {
        let undo = std::mem::take(&mut self.undo);
        // New positions are removed first, because a new position may have the idempotency key of a restored position.
        for (name, order) in undo.keys() {
            self.replace(name, *order, None);
        }
        for ((name, order), before) in &undo {
            self.replace(name, *order, before.clone());
        }
        undo.into_keys().map(|(name, _)| name)
    }

    fn replace(&mut self, name: &LockName, order: u64, queued: Option<Queued>) -> Option<Queued> {
        let until = queued.as_ref().map(|queued| queued.until);
        let queue = self.by_name.entry(name.clone()).or_default();
        let before = queue.put(order, queued);
        if queue.is_empty() {
            self.by_name.remove(name);
        }
        if let Some(before) = &before {
            self.ends.remove(&(before.until, order));
        }
        if let Some(until) = until {
            self.ends.insert((until, order), name.clone());
        }
        before
    }
}

/// News for one attempt, which are delivered when the change that they tell of is durable.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) name: LockName,
    pub(crate) token: TokenHash,
    pub(crate) news: News,
}

/// A grant that could not be delivered to its waiter.
#[derive(Debug, Clone)]
pub(crate) struct UndeliveredGrant {
    pub(crate) name: LockName,
    pub(crate) token: TokenHash,
}

// === impl Notice ===

impl Notice {
    /// Delivers the news to the waiter, with times corrected by the delay. Returns a grant that could not be delivered.
    pub(crate) fn deliver(self, parking: &Parking, delay: Delay) -> Option<UndeliveredGrant> {
        let Self {
            name,
            token,
            mut news,
        } = self;
        let mut is_grant = false;
        if let News::Granted(held) = &mut news {
            delay.age(held);
            is_grant = !held.expires_in.is_zero();
            if !is_grant {
                // The lease has ended before its grant could be delivered. A waiter that was told of the lease would
                // act on it.
                news = News::Forgotten;
            }
        }
        let delivered = parking.deliver(&name, &token, news);
        (is_grant && !delivered).then_some(UndeliveredGrant { name, token })
    }
}
