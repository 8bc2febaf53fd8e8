//! How many leases a key has, as far as this gateway knows.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

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
}

type LeaseId = (LockName, TokenHash);

#[derive(Debug, Default)]
struct Account {
    /// Requests that may yet get a lease.
    asking: usize,
    live: HashMap<LeaseId, Live>,
    /// No lease ends before this.
    soonest: Option<Instant>,
}

#[derive(Debug)]
struct Live {
    until: Instant,
    idempotency: Option<IdempotencyHash>,
}

/// Room for one lease; dropped without [`LeaseSlot::keep`], there is room for another one.
#[derive(Debug, Default)]
pub struct LeaseSlot(Option<Slot>);

#[derive(Debug)]
struct Slot {
    leases: Leases,
    key: Arc<str>,
    name: LockName,
    idempotency: Option<IdempotencyHash>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It counts as one that asks.
    Asking,
    /// It counts for nothing: the lease is known already, or is somebody's who must not lose it.
    Uncounted,
    /// It is a lease.
    Lease(TokenHash),
}

/// When to come back if nobody knows better, at most: a lease may be released any moment.
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
        let account = ledger.keys.entry(Arc::clone(key)).or_default();
        let is_known = idempotency.is_some()
            && account
                .live
                .values()
                .any(|live| live.idempotency == idempotency);
        let state = if is_known {
            State::Uncounted
        } else {
            if account.count() >= most {
                ledger.forget_expired(key, now)?;
            }
            let account = ledger.keys.entry(Arc::clone(key)).or_default();
            if account.count() >= most {
                let retry_after = account.wait(now);
                return Err(Excess::Leases { retry_after });
            }
            account.asking += 1;
            State::Asking
        };
        Ok(self.slot(key, name, idempotency, state))
    }

    /// Room for a lease that somebody has already, from wherever.
    pub(super) fn adopt(&self, key: &Arc<str>, name: &LockName) -> LeaseSlot {
        self.slot(key, name, None, State::Uncounted)
    }

    /// A lease was renewed.
    pub(super) fn renewed(&self, name: &LockName, token: TokenHash, until: Instant) {
        let mut ledger = self.lock();
        let id = (name.clone(), token);
        let ledger = &mut *ledger;
        let key = ledger.key_of.get(&id);
        if let Some(account) = key.and_then(|key| ledger.keys.get_mut(key)) {
            account.soonest = account.soonest.map(|soonest| soonest.min(until));
            if let Some(live) = account.live.get_mut(&id) {
                live.until = until;
            }
        }
    }

    /// A lease has ended.
    pub(super) fn ended(&self, name: &LockName, token: TokenHash) {
        let id = (name.clone(), token);
        let mut ledger = self.lock();
        if let Some(key) = ledger.key_of.remove(&id) {
            ledger.remove(&key, |account| {
                account.live.remove(&id);
            });
        }
    }

    fn slot(
        &self,
        key: &Arc<str>,
        name: &LockName,
        idempotency: Option<IdempotencyHash>,
        state: State,
    ) -> LeaseSlot {
        LeaseSlot(Some(Slot {
            leases: self.clone(),
            key: Arc::clone(key),
            name: name.clone(),
            idempotency,
            state,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0
            .lock()
            .expect("no code panics while it holds the ledger")
    }
}

// === impl Ledger ===

impl Ledger {
    /// Looks for leases that have ended by themselves; refuses at once if none can have.
    fn forget_expired(&mut self, key: &Arc<str>, now: Instant) -> Result<(), Excess> {
        let Some(account) = self.keys.get_mut(key) else {
            return Ok(());
        };
        if account.soonest.is_none_or(|soonest| now < soonest) {
            let retry_after = account.wait(now);
            return Err(Excess::Leases { retry_after });
        }
        let key_of = &mut self.key_of;
        account.live.retain(|id, live| {
            let lives = now < live.until;
            if !lives {
                key_of.remove(id);
            }
            lives
        });
        account.soonest = account.live.values().map(|live| live.until).min();
        Ok(())
    }

    fn remove(&mut self, key: &Arc<str>, what: impl FnOnce(&mut Account)) {
        if let Some(account) = self.keys.get_mut(key) {
            what(account);
            if account.count() == 0 {
                self.keys.remove(key);
            }
        }
    }
}

// === impl Account ===

impl Account {
    fn count(&self) -> usize {
        self.asking + self.live.len()
    }

    fn wait(&self, now: Instant) -> Duration {
        let until = self
            .soonest
            .map(|soonest| soonest.saturating_duration_since(now));
        until
            .unwrap_or(LONGEST)
            .clamp(Duration::from_secs(1), LONGEST)
    }
}

// === impl LeaseSlot ===

impl LeaseSlot {
    /// The lease was granted or renewed, and lasts until then.
    pub fn lasts(&mut self, token: TokenHash, until: Instant) {
        let Some(slot) = &mut self.0 else { return };
        if let State::Lease(_) = slot.state {
            return slot.leases.renewed(&slot.name, token, until);
        }
        let id = (slot.name.clone(), token);
        let mut ledger = slot.leases.lock();
        let account = ledger.keys.entry(Arc::clone(&slot.key)).or_default();
        if let State::Asking = slot.state {
            account.asking -= 1;
        }
        let idempotency = slot.idempotency;
        account.live.insert(id.clone(), Live { until, idempotency });
        account.soonest = Some(account.soonest.map_or(until, |soonest| soonest.min(until)));
        let before = ledger.key_of.insert(id.clone(), Arc::clone(&slot.key));
        if let Some(before) = before.filter(|before| *before != slot.key) {
            // Somebody else's until now, who has handed it on.
            ledger.remove(&before, |account| {
                account.live.remove(&id);
            });
        }
        slot.state = State::Lease(token);
    }

    /// The lease goes on without this slot.
    pub fn keep(mut self) {
        if let Some(Slot {
            state: state @ State::Lease(_),
            ..
        }) = &mut self.0
        {
            *state = State::Uncounted;
        }
    }
}

impl Drop for LeaseSlot {
    fn drop(&mut self) {
        let Some(slot) = &self.0 else { return };
        match slot.state {
            State::Uncounted => {}
            State::Asking => slot
                .leases
                .lock()
                .remove(&slot.key, |account| account.asking -= 1),
            State::Lease(token) => slot.leases.ended(&slot.name, token),
        }
    }
}

#[cfg(test)]
mod tests;
