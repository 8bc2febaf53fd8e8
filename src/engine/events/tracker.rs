//! The leases that are known to live.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    engine::leases::LeaseTag,
    lock::{FencingToken, LockName, Mode, Owner},
};

/// What a lease is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EventLeaseKey {
    pub(super) name: LockName,
    pub(super) fence: FencingToken,
}

/// The leases that are known to live, while somebody listens: for the owner and the fencing token in the event of
/// the end of each, and so that this event comes before that of the next grant.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    leases: BTreeMap<EventLeaseKey, Tracked>,
    /// With the name, because the leases of a group have one token.
    by_id: HashMap<(LeaseTag, LockName), EventLeaseKey>,
    /// When leases are removed next of which no end was told.
    sweep_at: Option<Instant>,
}

/// A lease that is known to live.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) id: Option<LeaseTag>,
    pub(super) owner: Option<Owner>,
    pub(super) mode: Option<Mode>,
    /// Whether its beginning was told.
    pub(super) announced: bool,
    /// When it is over.
    pub(super) until: Instant,
}

/// How many leases are known. The ends of others may be told without their owners.
const MOST: usize = 131_072;
/// How long after its time a lease is forgotten of which no end was told: later than the news of its expiry.
const FORGOTTEN: Duration = Duration::from_secs(2);

// === impl Tracker ===

impl Tracker {
    /// Remembers a lease, or goes on with it under what is known now.
    pub(super) fn track(&mut self, key: EventLeaseKey, mut lease: Tracked) {
        self.sweep(Instant::now());
        if let Some(before) = self.forget(&key) {
            lease.id = lease.id.or(before.id);
            lease.announced |= before.announced;
        } else if self.leases.len() >= MOST {
            return;
        }
        if let Some(id) = lease.id {
            self.by_id.insert((id, key.name.clone()), key.clone());
        }
        self.leases.insert(key, lease);
    }

    /// Removes a lease that has ended.
    pub(super) fn forget(&mut self, key: &EventLeaseKey) -> Option<Tracked> {
        let lease = self.leases.remove(key)?;
        if let Some(id) = lease.id {
            self.by_id.remove(&(id, key.name.clone()));
        }
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
        let now = Instant::now();
        let earlier = self.leases.range(..later).rev();
        let mut earlier = earlier.take_while(|(key, _)| key.name == later.name);
        let is_alone = |mode| mode == Some(Mode::Exclusive);
        earlier
            .any(|(_, lease)| !lease.is_forgotten(now) && (is_alone(mode) || is_alone(lease.mode)))
    }

    /// The beginning of a lease was told.
    pub(super) fn has_begun(&mut self, key: &EventLeaseKey) {
        if let Some(lease) = self.leases.get_mut(key) {
            lease.announced = true;
        }
    }

    /// Removes the leases of which no end was told, from time to time.
    fn sweep(&mut self, now: Instant) {
        if self.sweep_at.is_some_and(|at| at > now) {
            return;
        }
        self.sweep_at = Some(now + FORGOTTEN);
        self.leases.retain(|_, lease| !lease.is_forgotten(now));
        let leases = &self.leases;
        self.by_id.retain(|_, key| leases.contains_key(key));
    }
}

// === impl Tracked ===

impl Tracked {
    fn is_forgotten(&self, now: Instant) -> bool {
        self.until + FORGOTTEN <= now
    }
}
