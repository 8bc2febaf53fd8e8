//! The queue of one name.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    lock::{IdempotencyHash, LockName, TokenHash},
    store::{
        contract::{Attempt, INSPECTED_WAITERS, Waiter},
        parking::{News, Parking},
    },
};

use super::lease::{Delay, Moment};

/// The queue of one name, by the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    by_order: BTreeMap<u64, Queued>,
    /// Also those who were superseded last.
    by_token: HashMap<TokenHash, u64>,
    by_key: HashMap<IdempotencyHash, u64>,
    /// When each position is given up.
    ends: BTreeSet<(Moment, u64)>,
}

// === impl Queue ===

impl Queue {
    /// How many are queued.
    pub(super) fn len(&self) -> usize {
        self.by_order.len()
    }

    /// Whether nobody is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.by_order.is_empty()
    }

    /// The next to be granted the lock, and its position.
    pub(super) fn head(&self) -> Option<(u64, &Queued)> {
        let (order, queued) = self.by_order.first_key_value()?;
        Some((*order, queued))
    }

    /// All positions, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Queued)> {
        self.by_order.iter().map(|(order, queued)| (*order, queued))
    }

    /// Who is at a position.
    pub(super) fn at(&self, order: u64) -> Option<&Queued> {
        self.by_order.get(&order)
    }

    /// The position that this attempt has, or had until it was superseded.
    pub(super) fn of_token(&self, token: &TokenHash) -> Option<(u64, &Queued)> {
        self.find(self.by_token.get(token))
    }

    /// The position that was taken under this idempotency key.
    pub(super) fn under_key(&self, key: &IdempotencyHash) -> Option<(u64, &Queued)> {
        self.find(self.by_key.get(key))
    }

    /// The positions whose time is over, and that are not cleared away yet. Only those of this name are
    /// looked at.
    pub(super) fn over(&self, now: Moment) -> impl Iterator<Item = u64> {
        let over = self.ends.range(..=(now, u64::MAX));
        over.map(|(_, order)| *order)
    }

    /// How many are before a position. Counts them: only asked for those who do not come last.
    pub(super) fn ahead_of(&self, order: u64) -> usize {
        match self.by_order.last_key_value() {
            Some((last, _)) if *last == order => self.by_order.len() - 1,
            _ => self.by_order.range(..order).count(),
        }
    }

    /// Fills or empties a position. Answers who was there.
    pub(super) fn put(&mut self, order: u64, queued: Option<Queued>) -> Option<Queued> {
        let before = self.by_order.remove(&order);
        if let Some(before) = &before {
            self.ends.remove(&(before.until, order));
            for token in tokens(before) {
                self.by_token.remove(&token);
            }
            if let Some(idempotency) = &before.attempt.idempotency {
                self.by_key.remove(&idempotency.hash);
            }
        }
        if let Some(queued) = queued {
            for token in tokens(&queued) {
                self.by_token.insert(token, order);
            }
            if let Some(idempotency) = &queued.attempt.idempotency {
                self.by_key.insert(idempotency.hash, order);
            }
            self.ends.insert((queued.until, order));
            self.by_order.insert(order, queued);
        }
        before
    }

    fn find(&self, order: Option<&u64>) -> Option<(u64, &Queued)> {
        let order = *order?;
        Some((order, self.by_order.get(&order)?))
    }
}

fn tokens(queued: &Queued) -> impl Iterator<Item = TokenHash> {
    [Some(queued.attempt.token), queued.superseded]
        .into_iter()
        .flatten()
}

// === Queued ===
//
// An attempt that stands in the queue.

/// An attempt that stands in the queue.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) attempt: Arc<Attempt>,
    /// When the position was first taken.
    pub(super) since: Moment,
    /// When the position is given up if nothing else happens.
    pub(super) until: Moment,
    /// Whether somebody waits for the news. If not, the place is kept for a request that asks again.
    pub(super) attended: bool,
    /// Whose place it was last, if that one was still waiting. Only the last one: it may have been
    /// about to leave when it was superseded.
    pub(super) superseded: Option<TokenHash>,
}

// === impl Queued ===

impl Queued {
    /// What an inspect shows of it.
    pub(super) fn to_waiter(&self, now: Moment) -> Waiter {
        Waiter {
            owner: self.attempt.owner.clone(),
            sharing: self.attempt.sharing,
            waited: now.since(self.since),
        }
    }
}

// === Queues ===
//
// The queues of all names, and what of them is not settled yet.

/// The queues of all names. They live in memory only: whoever waits does so on a connection to this
/// process.
///
/// They change together with the leases, and go back together with them if those cannot be made
/// durable.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Never an empty one.
    by_name: HashMap<LockName, Queue>,
    /// When each position is given up.
    ends: BTreeMap<(Moment, u64), LockName>,
    /// The last position that was ever taken. Positions are not used again.
    last: u64,
    /// Who was at every changed position before the change.
    undo: HashMap<LockName, BTreeMap<u64, Option<Queued>>>,
}

// === impl Queues ===

impl Queues {
    /// The queue of a name, if anybody is queued for it.
    pub(super) fn of(&self, name: &LockName) -> Option<&Queue> {
        self.by_name.get(name)
    }

    /// How many are queued for a name. Those whose time is over are cleared away now and then, and until
    /// then do not count.
    pub(super) fn len(&self, name: &LockName, now: Moment) -> u64 {
        let queue = self.of(name);
        count(queue.map_or(0, |queue| queue.len() - queue.over(now).count()))
    }

    /// A position behind everybody.
    pub(super) fn next_position(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The position whose time is over for longest.
    pub(super) fn over(&self, now: Moment) -> Option<(LockName, u64)> {
        let ((end, order), name) = self.ends.first_key_value()?;
        (*end <= now).then(|| (name.clone(), *order))
    }

    /// Fills or empties a position. Answers who was there.
    pub(super) fn put(
        &mut self,
        name: &LockName,
        order: u64,
        queued: Option<Queued>,
    ) -> Option<Queued> {
        let before = self.replace(name, order, queued);
        self.undo
            .entry(name.clone())
            .or_default()
            .entry(order)
            .or_insert_with(|| before.clone());
        before
    }

    /// The head of a queue and its length, without the changes that are not settled yet.
    pub(super) fn durable_head(&self, name: &LockName, now: Moment) -> (Vec<Waiter>, u64) {
        let none = BTreeMap::new();
        let undo = self.undo.get(name).unwrap_or(&none);
        let queue = self.of(name);
        let changed = |order| queue.and_then(|queue| queue.at(order)).is_some();
        let unchanged = queue.into_iter().flat_map(Queue::iter);
        let mut line: Vec<_> = unchanged
            .filter(|(order, queued)| !undo.contains_key(order) && queued.until > now)
            .take(INSPECTED_WAITERS)
            .collect();
        let over = queue.into_iter().flat_map(|queue| queue.over(now));
        let over = over.filter(|order| !undo.contains_key(order)).count();
        let mut waiters = queue.map_or(0, Queue::len) - over;
        for (order, before) in undo {
            let before = before.as_ref().filter(|before| before.until > now);
            line.extend(before.map(|before| (*order, before)));
            waiters += usize::from(before.is_some());
            waiters -= usize::from(changed(*order));
        }
        line.sort_unstable_by_key(|(order, _)| *order);
        let head = line.into_iter().take(INSPECTED_WAITERS);
        let head = head.map(|(_, queued)| queued.to_waiter(now)).collect();
        (head, count(waiters))
    }

    /// All changes stand.
    pub(super) fn commit(&mut self) {
        self.undo.clear();
    }

    /// Goes back to what was settled.
    pub(super) fn rollback(&mut self) -> impl Iterator<Item = LockName> + use<> {
        let undo = std::mem::take(&mut self.undo);
        let mut names = Vec::with_capacity(undo.len());
        for (name, line) in undo {
            for (order, before) in line {
                self.replace(&name, order, before);
            }
            names.push(name);
        }
        names.into_iter()
    }

    /// The names for which anybody is queued.
    pub(super) fn names(&self) -> Vec<LockName> {
        self.by_name.keys().cloned().collect()
    }

    fn replace(&mut self, name: &LockName, order: u64, queued: Option<Queued>) -> Option<Queued> {
        let queue = self.by_name.entry(name.clone()).or_default();
        if let Some(queued) = &queued {
            self.ends.insert((queued.until, order), name.clone());
        }
        let until = queued.as_ref().map(|queued| queued.until);
        let before = queue.put(order, queued);
        if queue.is_empty() {
            self.by_name.remove(name);
        }
        if let Some(before) = &before
            && until != Some(before.until)
        {
            self.ends.remove(&(before.until, order));
        }
        before
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).expect("a queue is shorter than 2^64")
}

// === Notice ===
//
// What an attempt that stood in the queue is to be told.

/// News for one attempt. They wait until what they say is durable.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
    pub(super) news: News,
}

/// A grant by hand-off of which nobody could be told.
#[derive(Debug, Clone)]
pub(super) struct UndeliveredGrant {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
}

// === impl Notice ===

impl Notice {
    /// Tells the attempt, so much later than the news came about. Answers a grant that nobody was
    /// there to hear of.
    pub(super) fn deliver(self, parking: &Parking, delay: Delay) -> Option<UndeliveredGrant> {
        let Self { name, token, news } = self;
        let news = match news {
            News::Granted(held) => News::Granted(delay.age(held)),
            other @ (News::GrantedProvisionally | News::Superseded | News::Forgotten) => other,
        };
        match news {
            // It took so long that the lease is over, and its holder would act on it.
            News::Granted(held) if held.expires_in.is_zero() => {
                let _delivered = parking.deliver(&name, &token, News::Forgotten);
                None
            }
            granted @ News::Granted(_) => {
                let delivered = parking.deliver(&name, &token, granted);
                (!delivered).then_some(UndeliveredGrant { name, token })
            }
            other => {
                // Whoever has gone needs no news of this kind.
                let _delivered = parking.deliver(&name, &token, other);
                None
            }
        }
    }
}
