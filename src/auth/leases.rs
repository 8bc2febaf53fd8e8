//! Counts the leases that an API key has at this gateway.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::lock::{IdempotencyHash, LockName};

use super::Excess;

/// The leases of one API key, and its requests that may yet get a lease.
///
/// The gateway knows of a lease from its grant to its release here, or to the end of its TTL as last renewed here, and
/// of the rest that it leaves. Renewals and releases at other gateways are not seen.
#[derive(Debug, Default)]
pub(super) struct LeaseAccount(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    /// The slots that are taken, each with the end of its lease or rest; `None` while the lease is only requested. A
    /// slot whose lease is over is free, and is removed when no other room is left.
    taken: HashMap<u64, Option<Instant>>,
    /// The slots of requests with an idempotency key, so that a repeated request shares the slot.
    of_requests: HashMap<SlotRequest, (u64, Weak<SlotInner>)>,
    /// The number of the last slot that was taken, which the next number exceeds by one.
    last: u64,
}

/// The idempotency key of a request, and the lock of the slot: a request for a group has a slot for each of its
/// locks.
type SlotRequest = (IdempotencyHash, LockName);

/// A slot for one of the leases that an API key may have. The slot is free when its last clone is dropped and the rest
/// of its lease is over, or when the end set by `extend_until` has come.
#[derive(Debug, Clone)]
pub struct LeaseSlot(Arc<SlotInner>);

#[derive(Debug)]
struct SlotInner {
    account: Arc<LeaseAccount>,
    number: u64,
    request: Option<SlotRequest>,
    /// The slot that the same lease takes of all leases of the API key, if this one is of the leases of one caller.
    sum: Option<LeaseSlot>,
    /// When the minimum hold of the lease is over, until which the lock rests after a release; `None` without a rest.
    rests_until: Mutex<Option<Instant>>,
}

/// The longest time after which a request that was refused for too many leases is told to ask again: a lease may be
/// released at any moment.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

// === impl LeaseAccount ===

impl LeaseAccount {
    /// Takes a slot for a request, with the slot `sum` in another account. A request that is repeated under its idempotency
    /// key shares the slot of the first request.
    pub(super) fn take(
        self: &Arc<Self>,
        most: usize,
        request: Option<SlotRequest>,
        sum: Option<LeaseSlot>,
        now: Instant,
    ) -> Result<LeaseSlot, Excess> {
        let lives = |end: &Option<Instant>| end.is_none_or(|end| end > now);
        let mut slots = self.0.lock();
        if let Some((number, slot)) = request.as_ref().and_then(|it| slots.of_requests.get(it))
            // The number is checked before `upgrade`: dropping a slot here would lock the account once more, a
            // deadlock.
            && slots.taken.get(number).is_some_and(lives)
            && let Some(shared) = slot.upgrade()
        {
            return Ok(LeaseSlot(shared));
        }
        if slots.taken.len() >= most {
            slots.taken.retain(|_, end| lives(end));
        }
        if slots.taken.len() >= most {
            let soonest = slots.taken.values().flatten().min();
            let left = soonest.map_or(MAX_RETRY_AFTER, |end| end.saturating_duration_since(now));
            let retry_after = left.clamp(Duration::from_secs(1), MAX_RETRY_AFTER);
            return Err(Excess::Leases { retry_after });
        }
        Ok(self.open(&mut slots, request, sum))
    }

    /// Takes a slot for a lease that the caller already has, even beyond the limit.
    pub(super) fn adopt(self: &Arc<Self>, sum: Option<LeaseSlot>) -> LeaseSlot {
        self.open(&mut self.0.lock(), None, sum)
    }

    fn open(
        self: &Arc<Self>,
        slots: &mut Slots,
        request: Option<SlotRequest>,
        sum: Option<LeaseSlot>,
    ) -> LeaseSlot {
        slots.last += 1;
        let number = slots.last;
        slots.taken.insert(number, None);
        let slot = Arc::new(SlotInner {
            account: Arc::clone(self),
            number,
            request: request.clone(),
            sum,
            rests_until: Mutex::default(),
        });
        if let Some(request) = request {
            let entry = (number, Arc::downgrade(&slot));
            slots.of_requests.insert(request, entry);
        }
        LeaseSlot(slot)
    }
}

// === impl LeaseSlot ===

impl LeaseSlot {
    /// Sets the end of the slot's lease, which was granted or renewed.
    pub fn extend_until(&self, end: Instant) {
        self.0.set_end(Some(end));
    }

    /// Sets how long the slot counts when its lease has ended, because the lock rests; `None`: no longer than the lease.
    pub fn rest_until(&self, end: Option<Instant>) {
        *self.0.rests_until.lock() = end;
        if let Some(sum) = &self.0.sum {
            sum.rest_until(end);
        }
    }

    /// Makes the slot count without an end: its lease is lost, and its request asks for another lease.
    pub fn ask_again(&self) {
        self.0.set_end(None);
    }

    /// Whether both slots belong to one API key.
    pub fn has_same_account(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.account, &other.0.account)
    }
}

// === impl SlotInner ===

impl SlotInner {
    fn set_end(&self, end: Option<Instant>) {
        self.account.0.lock().taken.insert(self.number, end);
        if let Some(sum) = &self.sum {
            sum.0.set_end(end);
        }
    }
}

impl Drop for SlotInner {
    fn drop(&mut self) {
        let mut slots = self.account.0.lock();
        let rests_until = self
            .rests_until
            .get_mut()
            .filter(|end| *end > Instant::now());
        if rests_until.is_some() {
            slots.taken.insert(self.number, rests_until);
        } else {
            slots.taken.remove(&self.number);
        }
        // A later request under the same idempotency key may have a slot of its own.
        if let Some(request) = &self.request
            && let Some((number, _)) = slots.of_requests.get(request)
            && *number == self.number
        {
            slots.of_requests.remove(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    struct Rig(Arc<LeaseAccount>, Instant);

    impl Rig {
        fn new() -> Self {
            Self(Arc::default(), Instant::now())
        }

        fn ask(&self, key: Option<u8>) -> Result<LeaseSlot, Excess> {
            self.ask_for("a", key)
        }

        fn ask_for(&self, lock: &str, key: Option<u8>) -> Result<LeaseSlot, Excess> {
            let lock = LockName::new(lock).unwrap();
            let request = key.map(|byte| (IdempotencyHash::from_bytes([byte; 32]), lock));
            self.0.take(2, request, None, self.1)
        }

        fn lease(&self, key: Option<u8>, ttl: Duration) -> LeaseSlot {
            let slot = self.ask(key).unwrap();
            slot.extend_until(self.1 + ttl);
            slot
        }

        fn is_full(&self) -> bool {
            self.ask(None).is_err()
        }
    }

    #[test]
    fn a_request_has_its_slot_until_the_last_clone_is_dropped() {
        let rig = Rig::new();
        let [first, _second] = [rig.ask(None).unwrap(), rig.ask(None).unwrap()];
        assert!(rig.is_full());
        let of_lease = first.clone();
        drop(first);
        of_lease.extend_until(rig.1 + TTL);
        assert!(rig.is_full());
        drop(of_lease);
        assert!(!rig.is_full());
    }

    #[test]
    fn a_lease_counts_until_it_expires_and_a_renewal_moves_that() {
        let mut rig = Rig::new();
        let [a, b] = [rig.lease(None, TTL), rig.lease(None, TTL)];
        let refused = rig.ask(None).unwrap_err();
        assert_eq!(refused, Excess::Leases { retry_after: TTL });
        a.extend_until(rig.1 + 3 * TTL);
        rig.1 += TTL;
        let _third = rig.lease(None, TTL);
        assert!(rig.is_full(), "one has expired, the other one has not");
        // The gateway hears of the renewal of `b` only after the slot's end has passed: the lease counts again.
        b.extend_until(rig.1 + TTL);
        drop(a);
        assert!(rig.is_full());
        rig.1 += TTL;
        let _all = [rig.ask(None).unwrap(), rig.ask(None).unwrap()];
    }

    #[test]
    fn locks_that_are_asked_for_under_one_key_have_a_slot_each() {
        let rig = Rig::new();
        let _a = rig.lease(Some(1), TTL);
        let b = rig.ask_for("b", Some(1)).unwrap();
        assert!(rig.ask_for("c", Some(1)).is_err());
        drop(b);
        assert!(rig.ask_for("c", Some(1)).is_ok());
    }

    #[test]
    fn a_request_that_asks_again_for_what_it_lost_counts_meanwhile() {
        let mut rig = Rig::new();
        let [a, _b] = [rig.lease(None, TTL), rig.lease(None, 9 * TTL)];
        rig.1 += TTL;
        a.ask_again();
        assert!(rig.is_full());
    }

    #[test]
    fn a_request_that_is_repeated_needs_no_more_room() {
        let mut rig = Rig::new();
        let [a, _b] = [rig.lease(Some(1), TTL), rig.lease(None, 3 * TTL)];
        assert!(rig.ask(Some(2)).is_err());
        let again = rig.ask(Some(1)).unwrap();
        drop(a);
        assert!(rig.is_full());
        drop(again);
        assert!(!rig.is_full());
        // The lease of the first request has ended, and the gateway still keeps its slot.
        let old = rig.lease(Some(1), TTL);
        rig.1 += TTL;
        let new = rig.lease(Some(1), TTL);
        assert!(rig.is_full());
        drop(old);
        let _shared = rig.ask(Some(1)).unwrap();
        drop(new);
        assert!(rig.is_full());
    }

    #[test]
    fn a_lease_that_is_adopted_counts_beyond_the_limit() {
        let rig = Rig::new();
        let _both = [rig.lease(None, TTL), rig.lease(None, TTL)];
        let adopted = rig.0.adopt(None);
        assert_eq!(rig.0.0.lock().taken.len(), 3);
        assert!(adopted.has_same_account(&rig.0.adopt(None)));
        drop(adopted);
        assert_eq!(rig.0.0.lock().taken.len(), 2);
    }

    #[test]
    fn a_rest_counts_until_its_end_and_no_longer() {
        let mut rig = Rig::new();
        for (rest, is_full) in [(Some(2 * TTL), true), (None, false)] {
            let [a, b] = [rig.lease(Some(1), TTL), rig.lease(None, TTL)];
            a.rest_until(Some(rig.1 + 9 * TTL));
            a.rest_until(rest.map(|rest| rig.1 + rest));
            drop([a, b]);
            let next = rig.lease(None, 9 * TTL);
            assert_eq!(rig.is_full(), is_full);
            rig.1 += 2 * TTL;
            assert!(!rig.is_full());
            drop(next);
        }
        assert!(rig.0.0.lock().of_requests.is_empty());
    }

    #[test]
    fn nothing_is_left_of_slots_that_are_free() {
        let mut rig = Rig::new();
        let slots = [rig.lease(Some(1), TTL), rig.lease(None, TTL)];
        rig.1 += TTL;
        drop([rig.lease(Some(1), TTL), rig.lease(None, TTL)]);
        drop(slots);
        let slots = rig.0.0.lock();
        assert!(slots.taken.is_empty() && slots.of_requests.is_empty());
    }
}
