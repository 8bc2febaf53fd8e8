//! How many leases an API key has at this gateway.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::lock::IdempotencyHash;

use super::Excess;

/// The leases of one API key, and its requests that may yet get one.
///
/// The gateway knows of a lease from its grant to its release here, or to the end of its TTL as it was last renewed
/// here. What happens at other gateways is not seen.
#[derive(Debug, Default)]
pub(super) struct LeaseAccount(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    /// The slots that are taken, each with the end of its lease; `None` while the lease is only asked for.
    taken: HashMap<u64, Option<Instant>>,
    /// The ends of all leases in order, so that leases that are over are found at once.
    ends: BTreeSet<(Instant, u64)>,
    /// The slots of requests with an idempotency key.
    by_idempotency: HashMap<IdempotencyHash, (u64, Weak<SlotInner>)>,
    /// The number of the last slot that was taken.
    last: u64,
}

/// A slot for one of the leases that an API key may have. The slot is free when its last clone is dropped, or when the
/// time is over for which it was extended.
#[derive(Debug, Clone)]
pub struct LeaseSlot(Arc<SlotInner>);

#[derive(Debug)]
struct SlotInner {
    account: Arc<LeaseAccount>,
    number: u64,
    idempotency: Option<IdempotencyHash>,
}

/// The longest time after which to retry: a lease may be released at any moment.
const LONGEST: Duration = Duration::from_mins(1);

// === impl LeaseAccount ===

impl LeaseAccount {
    /// Takes a slot for a request. A request that is repeated under its idempotency key shares the slot of the first.
    pub(super) fn take(
        self: &Arc<Self>,
        most: usize,
        idempotency: Option<IdempotencyHash>,
        now: Instant,
    ) -> Result<LeaseSlot, Excess> {
        let mut slots = self.0.lock();
        slots.free_ended(now);
        if let Some(shared) = idempotency.and_then(|hash| slots.of_request(&hash)) {
            return Ok(LeaseSlot(shared));
        }
        if slots.taken.len() >= most {
            let retry_after = slots.retry_after(now);
            return Err(Excess::Leases { retry_after });
        }
        Ok(self.open(&mut slots, idempotency))
    }

    /// Takes a slot for a lease that somebody has already, also beyond the limit.
    pub(super) fn adopt(self: &Arc<Self>) -> LeaseSlot {
        self.open(&mut self.0.lock(), None)
    }

    fn open(
        self: &Arc<Self>,
        slots: &mut Slots,
        idempotency: Option<IdempotencyHash>,
    ) -> LeaseSlot {
        slots.last += 1;
        let number = slots.last;
        slots.taken.insert(number, None);
        let slot = Arc::new(SlotInner {
            account: Arc::clone(self),
            number,
            idempotency,
        });
        if let Some(hash) = idempotency {
            let entry = (number, Arc::downgrade(&slot));
            slots.by_idempotency.insert(hash, entry);
        }
        LeaseSlot(slot)
    }
}

// === impl Slots ===

impl Slots {
    /// Frees the slots of leases that have ended by themselves.
    fn free_ended(&mut self, now: Instant) {
        while let Some(&(end, number)) = self.ends.first()
            && end <= now
        {
            self.ends.pop_first();
            self.taken.remove(&number);
        }
    }

    /// The slot of an earlier request under an idempotency key, if it is still taken.
    fn of_request(&self, hash: &IdempotencyHash) -> Option<Arc<SlotInner>> {
        let (number, slot) = self.by_idempotency.get(hash)?;
        // Checked first: dropping a slot here would lock the account once more.
        let is_taken = self.taken.contains_key(number);
        is_taken.then(|| slot.upgrade()).flatten()
    }

    fn retry_after(&self, now: Instant) -> Duration {
        let soonest = self.ends.first();
        soonest
            .map_or(LONGEST, |(end, _)| end.saturating_duration_since(now))
            .clamp(Duration::from_secs(1), LONGEST)
    }
}

// === impl LeaseSlot ===

impl LeaseSlot {
    /// The lease was granted or renewed, and lasts until then.
    pub fn extend_until(&self, end: Instant) {
        let SlotInner {
            account, number, ..
        } = &*self.0;
        let mut slots = account.0.lock();
        if let Some(Some(before)) = slots.taken.insert(*number, Some(end)) {
            slots.ends.remove(&(before, *number));
        }
        slots.ends.insert((end, *number));
    }

    /// Whether both are slots of one API key.
    pub fn has_same_account(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.account, &other.0.account)
    }
}

impl Drop for SlotInner {
    fn drop(&mut self) {
        let mut slots = self.account.0.lock();
        if let Some(Some(end)) = slots.taken.remove(&self.number) {
            slots.ends.remove(&(end, self.number));
        }
        // A later request may have its slot under the same key.
        if let Some(hash) = self.idempotency
            && slots
                .by_idempotency
                .get(&hash)
                .is_some_and(|(number, _)| *number == self.number)
        {
            slots.by_idempotency.remove(&hash);
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
            let idempotency = key.map(|byte| IdempotencyHash::from_bytes([byte; 32]));
            self.0.take(2, idempotency, self.1)
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
        // The gateway hears of a renewal after the end of the lease.
        b.extend_until(rig.1 + TTL);
        drop(a);
        assert!(rig.is_full());
        rig.1 += TTL;
        let _all = [rig.ask(None).unwrap(), rig.ask(None).unwrap()];
    }

    #[test]
    fn a_renewal_may_make_a_lease_shorter() {
        let mut rig = Rig::new();
        let [a, _b] = [rig.lease(None, TTL), rig.lease(None, TTL)];
        a.extend_until(rig.1 + Duration::from_secs(1));
        rig.1 += Duration::from_secs(1);
        assert!(!rig.is_full());
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
        // The lease of the first request is over, and the gateway has not forgotten it.
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
        let adopted = rig.0.adopt();
        assert_eq!(rig.0.0.lock().taken.len(), 3);
        assert!(adopted.has_same_account(&rig.0.adopt()));
        drop(adopted);
        assert_eq!(rig.0.0.lock().taken.len(), 2);
    }

    #[test]
    fn nothing_is_left_of_slots_that_are_free() {
        let mut rig = Rig::new();
        let slots = [rig.lease(Some(1), TTL), rig.lease(None, TTL)];
        rig.1 += TTL;
        drop([rig.lease(Some(1), TTL), rig.lease(None, TTL)]);
        drop(slots);
        let slots = rig.0.0.lock();
        assert!(slots.taken.is_empty() && slots.ends.is_empty());
        assert!(slots.by_idempotency.is_empty());
    }
}
