//! The leases that are known to live, and when each must be looked after.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use crate::lock::{FencingToken, LockName, Owner};

use super::line::LeaseId;

/// What a lease is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LeaseKey {
    pub(super) name: LockName,
    pub(super) fence: FencingToken,
}

/// The leases that are known to live, while somebody listens.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    leases: HashMap<LeaseKey, Tracked>,
    by_id: HashMap<LeaseId, LeaseKey>,
    /// When to look after which; without those that are being looked after.
    due: BTreeSet<(Instant, LeaseKey)>,
}

/// A lease that is known to live.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) id: Option<LeaseId>,
    pub(super) owner: Option<Owner>,
    pub(super) until: Instant,
    pub(super) origin: Origin,
    /// Whether it was seen to live since its ends are heard of: if it is gone then and nobody has
    /// said why, its time was over.
    pub(super) witnessed: bool,
    /// Whether it was found to be gone, and word of its end may still be on its way.
    pub(super) missing: bool,
    /// Whether its beginning was told.
    pub(super) begun: bool,
    pub(super) due: Instant,
}

/// Where a lease was last granted or renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Here: everybody hears its expiry from here.
    Here,
    /// At another gateway, which tells its expiry if it is still there.
    Elsewhere,
}

/// How many leases are looked after. Of others no expiry is told.
const MOST: usize = 131_072;
/// How long after its time a lease of this gateway is looked after: later than the news of its
/// release that is on its way.
const GRACE: Duration = Duration::from_millis(250);
/// The same for a lease of another gateway: later than its own look.
const GRACE_ELSEWHERE: Duration = Duration::from_secs(2);
/// How long before its time a lease is looked for of which it is not known whether it lives.
const WITNESS: Duration = Duration::from_secs(1);

// === impl Tracker ===

impl Tracker {
    /// Looks after a lease, or goes on with it under what is known now.
    pub(super) fn track(&mut self, key: LeaseKey, mut lease: Tracked) {
        if let Some(before) = self.forget(&key) {
            lease.id = lease.id.or(before.id);
            lease.begun |= before.begun;
        } else if self.leases.len() >= MOST {
            return;
        }
        lease.due = lease.looked_after_at();
        if let Some(id) = lease.id {
            self.by_id.insert(id, key.clone());
        }
        self.due.insert((lease.due, key.clone()));
        self.leases.insert(key, lease);
    }

    /// A lease is over, or nobody knows of it any more.
    pub(super) fn forget(&mut self, key: &LeaseKey) -> Option<Tracked> {
        let lease = self.leases.remove(key)?;
        if let Some(id) = lease.id {
            self.by_id.remove(&id);
        }
        self.due.remove(&(lease.due, key.clone()));
        Some(lease)
    }

    pub(super) fn get(&self, key: &LeaseKey) -> Option<&Tracked> {
        self.leases.get(key)
    }

    pub(super) fn resolve(&self, id: LeaseId) -> Option<&LeaseKey> {
        self.by_id.get(&id)
    }

    /// When the next lease is to be looked after.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A lease that is to be looked after now. It does not fall due again before it is tracked anew
    /// or put off.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<LeaseKey> {
        if self.next_due()? > now {
            return None;
        }
        self.due.pop_first().map(|(_, key)| key)
    }

    /// Whether a lease is being looked after, and was not tracked anew meanwhile.
    pub(super) fn is_looked_after(&self, key: &LeaseKey) -> bool {
        let lease = self.leases.get(key);
        lease.is_some_and(|lease| !self.due.contains(&(lease.due, key.clone())))
    }

    /// A lease was seen to live, until then. `witnessed`: its ends are heard of.
    pub(super) fn is_alive(&mut self, key: &LeaseKey, until: Instant, witnessed: bool) {
        if let Some(lease) = self.leases.get_mut(key) {
            (lease.until, lease.witnessed) = (until, witnessed);
            // Another look before its time is over would find out nothing.
            let due = if witnessed {
                lease.looked_after_at()
            } else {
                until + GRACE
            };
            self.put_off(key, due);
        }
    }

    /// A lease was found to be gone of which nobody can say that it has expired. It is known for a
    /// little longer, for the word of its end.
    pub(super) fn is_missing(&mut self, key: &LeaseKey) {
        match self.leases.get_mut(key) {
            Some(lease) if !lease.missing => {
                lease.missing = true;
                self.put_off(key, Instant::now() + GRACE_ELSEWHERE);
            }
            _ => drop(self.forget(key)),
        }
    }

    /// Looks after a lease again, at another time.
    pub(super) fn put_off(&mut self, key: &LeaseKey, due: Instant) {
        if let Some(lease) = self.leases.get_mut(key) {
            self.due.remove(&(lease.due, key.clone()));
            lease.due = due;
            self.due.insert((due, key.clone()));
        }
    }

    /// Ends may have gone unheard: whatever is found to be gone now has ended nobody knows how.
    pub(super) fn doubt_all(&mut self) {
        self.due.clear();
        for (key, lease) in &mut self.leases {
            lease.witnessed = false;
            lease.due = lease.looked_after_at();
            self.due.insert((lease.due, key.clone()));
        }
    }
}

// === impl Tracked ===

impl Tracked {
    pub(super) fn new(owner: Option<Owner>, until: Instant, origin: Origin) -> Self {
        Self {
            id: None,
            owner,
            until,
            origin,
            witnessed: true,
            missing: false,
            begun: false,
            due: until,
        }
    }

    fn looked_after_at(&self) -> Instant {
        match (self.witnessed, self.origin) {
            // An instant that cannot be told is long past.
            (false, _) => self.until.checked_sub(WITNESS).unwrap_or(self.until),
            (true, Origin::Here) => self.until + GRACE,
            (true, Origin::Elsewhere) => self.until + GRACE_ELSEWHERE,
        }
    }
}
