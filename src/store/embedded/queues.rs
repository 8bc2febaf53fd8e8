//! The queues of all names, and what of them is not settled yet.

use std::collections::{BTreeMap, HashMap};

use crate::{
    lock::LockName,
    store::contract::{INSPECTED_WAITERS, Waiter},
};

use super::{moment::Moment, queue::Queue, queued::Queued};

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
