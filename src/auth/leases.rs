//! How many leases a key has, as far as this gateway knows.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::lock::{IdempotencyHash, LockName, TokenHash};

use super::Excess;

/// The leases of keys that may have only so many. Cheap to clone.
///
/// A lease is known from its grant by this gateway to its release through it, or to the end of its
/// TTL as it was last renewed through it. What happens at other gateways is not seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases(Arc<Mutex<Ledger>>);

#[derive(Debug, Default)]
struct Ledger {
    keys: HashMap<Arc<str>, Account>,
    /// Whose lease it is: a release comes without a key.
    key_of: HashMap<LeaseId, Arc<str>>,
    /// All leases in the order in which they end, so that those that have are found at once,
    /// whoever had them.
    by_end: BTreeMap<LeaseEnd, LeaseId>,
    /// The number of the next end.
    next: u64,
}

/// When a lease ends, and a number that makes it the only one.
type LeaseEnd = (Instant, u64);

type LeaseId = (LockName, TokenHash);

#[derive(Debug, Default)]
struct Account {
    /// Requests that may yet get a lease.
    asking: usize,
    live: HashMap<LeaseId, LiveLease>,
    by_idempotency: HashMap<IdempotencyHash, LeaseId>,
    by_end: BTreeSet<LeaseEnd>,
}

#[derive(Debug)]
struct LiveLease {
    end: LeaseEnd,
    idempotency: Option<IdempotencyHash>,
    /// Which slot it was entered for last.
    slot: u64,
}

/// Room for one lease; dropped without [`LeaseSlot::keep`], there is room for another one.
#[derive(Debug, Default)]
pub struct LeaseSlot(Option<SlotInner>);

#[derive(Debug)]
struct SlotInner {
    leases: Leases,
    key: Arc<str>,
    name: LockName,
    idempotency: Option<IdempotencyHash>,
    state: SlotState,
    /// Those of the other leases of a group.
    others: Vec<LeaseSlot>,
}

#[derive(Debug)]
enum SlotState {
    /// It counts as one that asks.
    Asking,
    /// It counts for nothing: the lease is known already, or is somebody's who must not lose it.
    Uncounted,
    /// It is a lease, entered under this number: whoever adopts it enters it anew.
    Lease(TokenHash, u64),
}

/// The longest time after which to retry: a lease may be released at any moment.
const LONGEST: Duration = Duration::from_mins(1);

// === impl Leases ===

impl Leases {
    /// Makes room for a lease that is asked for. One that is asked for again has its room already.
    pub(super) fn ask(
        &self,
        key: &Arc<str>,
        most: usize,
        name: &LockName,
        idempotency: Option<IdempotencyHash>,
        now: Instant,
    ) -> Result<LeaseSlot, Excess> {
        let mut ledger = self.lock();
        ledger.forget_ended(now);
        let account = ledger.keys.entry(Arc::clone(key)).or_default();
        let state = if idempotency.is_some_and(|hash| account.by_idempotency.contains_key(&hash)) {
            SlotState::Uncounted
        } else {
            if account.count() >= most {
                let retry_after = account.wait(now);
                return Err(Excess::Leases { retry_after });
            }
            account.asking += 1;
            SlotState::Asking
        };
        Ok(self.slot(key, name, idempotency, state))
    }

    /// Room for a lease that somebody has already, from wherever.
    pub(super) fn adopt(&self, key: &Arc<str>, name: &LockName) -> LeaseSlot {
        self.slot(key, name, None, SlotState::Uncounted)
    }

    /// A lease was renewed.
    pub(super) fn renewed(&self, name: &LockName, token: TokenHash, until: Instant) {
        let id = (name.clone(), token);
        let mut ledger = self.lock();
        if let Some((key, live)) = ledger.strike(&id) {
            ledger.enter(&key, id, until, live.idempotency, live.slot);
        }
    }

    /// The slot with this number is gone, and its lease with it unless it was entered for another since.
    fn gone(&self, name: &LockName, token: TokenHash, slot: u64) {
        let mut ledger = self.lock();
        let id = (name.clone(), token);
        let key = ledger.key_of.get(&id);
        let account = key.and_then(|key| ledger.keys.get(key));
        let live = account.and_then(|account| account.live.get(&id));
        if live.is_some_and(|live| live.slot == slot)
            && let Some((key, _)) = ledger.strike(&id)
        {
            ledger.close(&key);
        }
    }

    /// A lease has ended.
    pub(super) fn ended(&self, name: &LockName, token: TokenHash) {
        let mut ledger = self.lock();
        if let Some((key, _)) = ledger.strike(&(name.clone(), token)) {
            ledger.close(&key);
        }
    }

    fn slot(
        &self,
        key: &Arc<str>,
        name: &LockName,
        idempotency: Option<IdempotencyHash>,
        state: SlotState,
    ) -> LeaseSlot {
        LeaseSlot(Some(SlotInner {
            leases: self.clone(),
            key: Arc::clone(key),
            name: name.clone(),
            idempotency,
            state,
            others: Vec::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock()
    }
}

// === impl Ledger ===

impl Ledger {
    /// Forgets the leases that have ended by themselves. Each is forgotten once, so this costs what it
    /// cost to enter them.
    fn forget_ended(&mut self, now: Instant) {
        while let Some(first) = self.by_end.first_entry()
            && first.key().0 <= now
        {
            let id = first.get().clone();
            if let Some((key, _)) = self.strike(&id) {
                self.close(&key);
            }
        }
    }

    /// Enters a lease of a key.
    fn enter(
        &mut self,
        key: &Arc<str>,
        id: LeaseId,
        until: Instant,
        idempotency: Option<IdempotencyHash>,
        slot: u64,
    ) {
        let end = (until, self.next);
        self.next += 1;
        self.by_end.insert(end, id.clone());
        self.key_of.insert(id.clone(), Arc::clone(key));
        let account = self.keys.entry(Arc::clone(key)).or_default();
        account.by_end.insert(end);
        if let Some(hash) = idempotency {
            account.by_idempotency.insert(hash, id.clone());
        }
        let live = LiveLease {
            end,
            idempotency,
            slot,
        };
        account.live.insert(id, live);
    }

    /// Strikes a lease off, and says whose it was.
    fn strike(&mut self, id: &LeaseId) -> Option<(Arc<str>, LiveLease)> {
        let key = self.key_of.remove(id)?;
        let account = self.keys.get_mut(&key)?;
        let live = account.live.remove(id)?;
        account.by_end.remove(&live.end);
        self.by_end.remove(&live.end);
        // A later lease under the same idempotency key may have been entered already.
        if let Some(hash) = live.idempotency
            && account.by_idempotency.get(&hash) == Some(id)
        {
            account.by_idempotency.remove(&hash);
        }
        Some((key, live))
    }

    /// Closes an account in which nothing is left.
    fn close(&mut self, key: &Arc<str>) {
        if self
            .keys
            .get(key)
            .is_some_and(|account| account.count() == 0)
        {
            self.keys.remove(key);
        }
    }
}

// === impl Account ===

impl Account {
    fn count(&self) -> usize {
        self.asking + self.live.len()
    }

    fn wait(&self, now: Instant) -> Duration {
        let soonest = self.by_end.first();
        soonest
            .map_or(LONGEST, |(until, _)| until.saturating_duration_since(now))
            .clamp(Duration::from_secs(1), LONGEST)
    }
}

// === impl LeaseSlot ===

impl LeaseSlot {
    /// The lease was granted or renewed, and lasts until then.
    pub fn extend_until(&mut self, token: TokenHash, until: Instant) {
        let Some(slot) = &mut self.0 else { return };
        if let SlotState::Lease(..) = slot.state {
            return slot.leases.renewed(&slot.name, token, until);
        }
        let id = (slot.name.clone(), token);
        let mut ledger = slot.leases.lock();
        // Known already if it is answered again; somebody else's until now if it was handed on.
        let before = ledger.strike(&id);
        let known_by =
            |(key, live): &(Arc<str>, LiveLease)| live.idempotency.filter(|_| *key == slot.key);
        let idempotency = slot.idempotency.or(before.as_ref().and_then(known_by));
        let number = ledger.next;
        ledger.enter(&slot.key, id, until, idempotency, number);
        if let Some((before, _)) = before {
            ledger.close(&before);
        }
        if let (SlotState::Asking, Some(account)) = (&slot.state, ledger.keys.get_mut(&slot.key)) {
            account.asking -= 1;
        }
        drop(ledger);
        slot.state = SlotState::Lease(token, number);
    }

    /// One slot for all leases of a group.
    #[must_use]
    pub fn joined(slots: impl IntoIterator<Item = Self>) -> Self {
        let mut counted = slots.into_iter().filter(|slot| slot.0.is_some());
        let Some(mut first) = counted.next() else {
            return Self::default();
        };
        if let Some(slot) = &mut first.0 {
            slot.others.extend(counted);
        }
        first
    }

    /// The lease goes on without this slot.
    pub fn keep(mut self) {
        let Some(slot) = &mut self.0 else { return };
        if let SlotState::Lease(..) = slot.state {
            slot.state = SlotState::Uncounted;
        }
        for other in std::mem::take(&mut slot.others) {
            other.keep();
        }
    }
}

impl Drop for LeaseSlot {
    fn drop(&mut self) {
        let Some(slot) = &self.0 else { return };
        match slot.state {
            SlotState::Uncounted => {}
            SlotState::Asking => {
                let mut ledger = slot.leases.lock();
                if let Some(account) = ledger.keys.get_mut(&slot.key) {
                    account.asking -= 1;
                }
                ledger.close(&slot.key);
            }
            SlotState::Lease(token, number) => slot.leases.gone(&slot.name, token, number),
        }
    }
}

#[cfg(test)]
mod tests;
