//! The leases that are known to live.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use crate::lock::{FencingToken, LockName, Mode, Owner};

use super::line::LeaseTag;

/// What a lease is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EventLeaseKey {
    pub(super) name: LockName,
    pub(super) fence: FencingToken,
}

/// The leases that are known to live, while somebody listens.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    leases: BTreeMap<EventLeaseKey, Tracked>,
    /// With the name, because the leases of a group have one token.
    by_id: HashMap<(LeaseTag, LockName), EventLeaseKey>,
    /// When which is due; without those that the store is asked about.
    due: BTreeSet<(Instant, EventLeaseKey)>,
}

/// A lease that is known to live.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) id: Option<LeaseTag>,
    pub(super) owner: Option<Owner>,
    pub(super) mode: Option<Mode>,
    /// Whether this gateway tells that it has expired: it was granted or renewed here last, while ends were
    /// heard of.
    pub(super) watched: bool,
    /// Whether its beginning was told.
    pub(super) announced: bool,
    /// Whether it was not among those that were shown, since it was granted or renewed last.
    pub(super) missed: bool,
    pub(super) due: Instant,
}

/// How many leases are known. Of others no expiry is told.
const MOST: usize = 131_072;
/// How long after its time a lease is looked after: later than the news of its release that is on its way.
const GRACE: Duration = Duration::from_millis(250);
/// How long after its time a lease is forgotten of which no end was told: later than the news of its expiry.
const FORGOTTEN: Duration = Duration::from_secs(2);

// === impl Tracker ===

impl Tracker {
    /// Remembers a lease, or goes on with it under what is known now.
    pub(super) fn track(&mut self, key: EventLeaseKey, mut lease: Tracked) {
        if let Some(before) = self.forget(&key) {
            lease.id = lease.id.or(before.id);
            lease.announced |= before.announced;
        } else if self.leases.len() >= MOST {
            return;
        }
        if let Some(id) = lease.id {
            self.by_id.insert((id, key.name.clone()), key.clone());
        }
        self.due.insert((lease.due, key.clone()));
        self.leases.insert(key, lease);
    }

    /// Removes a lease that has ended or that is not watched.
    pub(super) fn forget(&mut self, key: &EventLeaseKey) -> Option<Tracked> {
        let lease = self.leases.remove(key)?;
        if let Some(id) = lease.id {
            self.by_id.remove(&(id, key.name.clone()));
        }
        self.due.remove(&(lease.due, key.clone()));
        Some(lease)
    }

    pub(super) fn get(&self, key: &EventLeaseKey) -> Option<&Tracked> {
        self.leases.get(key)
    }

    pub(super) fn resolve(&self, id: LeaseTag, name: &LockName) -> Option<&EventLeaseKey> {
        self.by_id.get(&(id, name.clone()))
    }

    /// Whether a lease lives, as far as is known, that excludes a later one of the same lock.
    pub(super) fn excludes(&self, later: &EventLeaseKey, mode: Option<Mode>) -> bool {
        let earlier = self.leases.range(..later).rev();
        let mut earlier = earlier.take_while(|(key, _)| key.name == later.name);
        let is_alone = |mode| mode == Some(Mode::Exclusive);
        earlier.any(|(_, lease)| is_alone(mode) || is_alone(lease.mode))
    }

    /// When the next lease is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A lease that the store is to be asked about now. It does not fall due again before it is tracked anew
    /// or put off. Leases whose expiry is not reported here are removed.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<EventLeaseKey> {
        while self.next_due()? <= now {
            let (_, key) = self.due.pop_first()?;
            if self.get(&key).is_some_and(|lease| lease.watched) {
                return Some(key);
            }
            self.forget(&key);
        }
        None
    }

    /// Whether the store is asked about a lease that was not tracked anew meanwhile.
    pub(super) fn is_being_checked(&self, key: &EventLeaseKey) -> bool {
        let lease = self.leases.get(key);
        lease.is_some_and(|lease| !self.due.contains(&(lease.due, key.clone())))
    }

    /// The beginning of a lease was told.
    pub(super) fn has_begun(&mut self, key: &EventLeaseKey) {
        if let Some(lease) = self.leases.get_mut(key) {
            lease.announced = true;
        }
    }

    /// A lease was found to live until then.
    pub(super) fn mark_alive(&mut self, key: &EventLeaseKey, until: Instant) {
        self.reschedule(key, until + GRACE);
    }

    /// Looks after a lease again, at another time.
    pub(super) fn reschedule(&mut self, key: &EventLeaseKey, due: Instant) {
        if let Some(lease) = self.leases.get_mut(key) {
            self.due.remove(&(lease.due, key.clone()));
            lease.due = due;
            self.due.insert((due, key.clone()));
        }
    }

    /// A lease was not among those that are shown. Whether that was so before.
    pub(super) fn was_missed(&mut self, key: &EventLeaseKey) -> bool {
        let lease = self.leases.get_mut(key);
        lease.is_some_and(|lease| std::mem::replace(&mut lease.missed, true))
    }

    /// Ends may have been missed, so no lease that is tracked now is reported as expired.
    pub(super) fn watch_none(&mut self) {
        for lease in self.leases.values_mut() {
            lease.watched = false;
        }
    }
}

// === impl Tracked ===

impl Tracked {
    pub(super) fn new(
        id: Option<LeaseTag>,
        owner: Option<Owner>,
        mode: Option<Mode>,
        until: Instant,
        watched: bool,
    ) -> Self {
        Self {
            id,
            owner,
            mode,
            watched,
            announced: false,
            missed: false,
            due: until + if watched { GRACE } else { FORGOTTEN },
        }
    }
}
