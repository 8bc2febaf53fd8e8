//! The leases that hold a lock, exclusive or shared; and the names of all locks that are held.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
};

use sha2::{Digest, Sha256};

use crate::{
    lock::{FencingToken, IdempotencyHash, LockName, Mode, Sharing, TokenHash},
    store::contract::{Holder, SHOWN_HOLDERS, SharedHolders},
};

use super::lease::{Expiry, Lease, Moment};

/// The leases that hold one lock: leases that live, or have ended and are not yet cleared away.
#[derive(Debug)]
pub(crate) enum Held {
    /// An exclusive lease.
    Exclusive(Lease),
    /// Shared leases. Boxed, so that a lock with an exclusive lease takes no more memory than the lease.
    Shared(Box<Sharers>),
}

/// The leases that share a lock: at least one. Indexed by fencing token, end, token and idempotency key.
#[derive(Debug, Default)]
pub(crate) struct Sharers {
    by_fence: BTreeMap<FencingToken, Lease>,
    ends: BTreeSet<Expiry>,
    by_token: HashMap<TokenHash, FencingToken>,
    by_key: HashMap<IdempotencyHash, FencingToken>,
    slots: Slots,
    /// How many of the leases are rests.
    rests: usize,
}

/// The slots that the leases of a shared lock have: a bit for each slot.
#[derive(Debug, Default)]
struct Slots(Vec<u64>);

// === impl Held ===

impl Held {
    /// Creates the holder of a lock that was free from its first lease.
    pub(crate) fn by(lease: Lease) -> Self {
        match lease.mode {
            Mode::Exclusive => Self::Exclusive(lease),
            Mode::Shared { .. } => {
                let mut sharers = Box::<Sharers>::default();
                sharers.put(lease);
                Self::Shared(sharers)
            }
        }
    }

    /// Adds a lease, or replaces the lease with the same fencing token. An exclusive lease replaces any other
    /// exclusive lease. Returns the replaced lease.
    pub(crate) fn put(&mut self, lease: Lease) -> Option<Lease> {
        match (self, lease.mode) {
            (Self::Exclusive(before), Mode::Exclusive) => Some(std::mem::replace(before, lease)),
            (Self::Shared(sharers), Mode::Shared { .. }) => sharers.put(lease),
            (Self::Exclusive(_), Mode::Shared { .. }) | (Self::Shared(_), Mode::Exclusive) => {
                unreachable!("a lock changes its mode only when nobody holds it")
            }
        }
    }

    /// The leases that share the lock; `None` if the lock has an exclusive lease.
    pub(crate) fn sharers(&self) -> Option<&Sharers> {
        match self {
            Self::Exclusive(_) => None,
            Self::Shared(sharers) => Some(sharers),
        }
    }

    /// The lease that this token holds.
    pub(crate) fn of_token(&self, token: &TokenHash) -> Option<&Lease> {
        match self {
            Self::Exclusive(lease) => Some(lease).filter(|lease| lease.token == *token),
            Self::Shared(sharers) => sharers.with_fence(*sharers.by_token.get(token)?),
        }
    }

    /// The lease of a row: the exclusive lease, or the shared lease with this fencing token.
    pub(crate) fn at(&self, shared: Option<FencingToken>) -> Option<&Lease> {
        match (self, shared) {
            (Self::Exclusive(lease), None) => Some(lease),
            (Self::Shared(sharers), Some(fence)) => sharers.with_fence(fence),
            (Self::Exclusive(_), Some(_)) | (Self::Shared(_), None) => None,
        }
    }

    /// The living leases of the lock, sorted by their ends.
    pub(crate) fn living(&self, now: Moment) -> impl Iterator<Item = &Lease> {
        let alone = self.at(None).filter(|lease| lease.lives(now));
        let sharers = self.sharers().into_iter();
        alone
            .into_iter()
            .chain(sharers.flat_map(move |sharers| sharers.living(now)))
    }

    /// The lease of the lock that was granted under an idempotency key.
    pub(crate) fn under_key(&self, hash: &IdempotencyHash) -> Option<&Lease> {
        match self {
            Self::Exclusive(lease) => Some(lease).filter(|lease| lease.is_under(hash)),
            Self::Shared(sharers) => sharers.with_fence(*sharers.by_key.get(hash)?),
        }
    }

    /// The lease of the lock with this fencing token.
    pub(crate) fn with_fence(&self, fence: FencingToken) -> Option<&Lease> {
        match self {
            Self::Exclusive(lease) => Some(lease).filter(|lease| lease.fence == fence),
            Self::Shared(sharers) => sharers.with_fence(fence),
        }
    }

    /// The fencing token of a lease of the lock that has ended, if there is one.
    pub(crate) fn over(&self, now: Moment) -> Option<FencingToken> {
        let (end, fence) = match self {
            Self::Exclusive(lease) => lease.expiry(),
            Self::Shared(sharers) => *sharers.ends.first()?,
        };
        (end <= now).then_some(fence)
    }

    /// Whether an attempt may be granted the lock beside the leases that hold it.
    pub(crate) fn admits(&self, sharing: Option<Sharing>) -> bool {
        match self {
            Self::Exclusive(_) => false,
            Self::Shared(sharers) => sharing.is_some_and(|wanted| sharers.admit(wanted)),
        }
    }

    /// The mode of a new shared lease beside the leases that hold the lock, if any. If the attempt has a limit, the
    /// lease gets the smallest free slot.
    pub(crate) fn mode_beside(held: Option<&Self>, sharing: Sharing) -> Mode {
        let sharers = held.and_then(Self::sharers);
        let smallest_free = || sharers.map_or(0, |sharers| sharers.slots.smallest_free());
        Mode::Shared {
            slot: sharing.has_slot.then(smallest_free),
        }
    }

    /// The holder of the lock as an answer shows it now.
    pub(crate) fn holder(&self, now: Moment) -> Holder {
        match self {
            Self::Exclusive(lease) => Holder::Lease(lease.held(now)),
            Self::Shared(sharers) => Holder::Shared(sharers.shown(now)),
        }
    }

    /// The holder of the lock as the answer to a queued attempt shows it: of shared leases only their number.
    pub(crate) fn holder_in_brief(&self, now: Moment) -> Holder {
        match self {
            Self::Exclusive(lease) => Holder::Lease(lease.held(now)),
            Self::Shared(sharers) => Holder::Shared(SharedHolders {
                leases: Vec::new(),
                count: count(sharers.len()),
                resting: 0,
            }),
        }
    }
}

// === impl Sharers ===

impl Sharers {
    /// How many leases share the lock, including leases that have ended.
    pub(crate) fn len(&self) -> usize {
        self.by_fence.len()
    }

    /// Whether the last lease that shared the lock was removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_fence.is_empty()
    }

    /// The shared lease with this fencing token.
    pub(crate) fn with_fence(&self, fence: FencingToken) -> Option<&Lease> {
        self.by_fence.get(&fence)
    }

    /// The living shared leases, sorted by their ends.
    pub(crate) fn living(&self, now: Moment) -> impl Iterator<Item = &Lease> + Clone {
        let living = self.ends.range((now, FencingToken::MAX)..);
        living
            .filter(move |(end, _)| *end > now)
            .filter_map(|(_, fence)| self.with_fence(*fence))
    }

    /// The shared leases as an answer shows them. They are counted in time in proportion to the ended leases, which are
    /// cleared away soon.
    pub(crate) fn shown(&self, now: Moment) -> SharedHolders {
        let over = self.ends.range(..=(now, FencingToken::MAX));
        let rests = over
            .clone()
            .filter_map(|(_, fence)| self.with_fence(*fence));
        let rests = rests.filter(|lease| lease.is_resting()).count();
        let counts = (self.len() - over.count(), self.rests - rests);
        shown(self.living(now), counts, now)
    }

    /// Whether the limit of this attempt leaves room for one more lease.
    fn admit(&self, wanted: Sharing) -> bool {
        self.len() < usize::from(wanted.limit.get())
    }

    /// Adds a lease, or replaces the lease with the same fencing token. Returns the replaced lease.
    pub(crate) fn put(&mut self, lease: Lease) -> Option<Lease> {
        let before = self.remove(lease.fence);
        let fence = lease.fence;
        self.ends.insert(lease.expiry());
        self.by_token.insert(lease.token, fence);
        if let Some(key) = &lease.key {
            self.by_key.insert(key.idempotency.hash, fence);
        }
        if let Some(slot) = lease.mode.slot() {
            self.slots.take(slot);
        }
        self.rests += usize::from(lease.is_resting());
        self.by_fence.insert(fence, lease);
        before
    }

    /// Removes the shared lease with this fencing token.
    pub(crate) fn remove(&mut self, fence: FencingToken) -> Option<Lease> {
        let lease = self.by_fence.remove(&fence)?;
        self.ends.remove(&lease.expiry());
        self.by_token.remove(&lease.token);
        if let Some(key) = &lease.key {
            self.by_key.remove(&key.idempotency.hash);
        }
        if let Some(slot) = lease.mode.slot() {
            self.slots.free(slot);
        }
        self.rests -= usize::from(lease.is_resting());
        Some(lease)
    }
}

/// Living shared leases, which end soonest first, as an answer shows them: the first of them, and how many live. `resting`
/// of them rest. If not all are shown, the holders are before the rests.
pub(crate) fn shown<'a>(
    living: impl Iterator<Item = &'a Lease> + Clone,
    (total, resting): (usize, usize),
    now: Moment,
) -> SharedHolders {
    let of = |rests: bool| living.clone().filter(move |it| it.is_resting() == rests);
    let held = |lease: &Lease| lease.held(now);
    let leases = if total > SHOWN_HOLDERS && resting > 0 {
        let holders_first = of(false).chain(of(true));
        holders_first.take(SHOWN_HOLDERS).map(held).collect()
    } else {
        living.take(SHOWN_HOLDERS).map(held).collect()
    };
    SharedHolders {
        leases,
        count: count(total),
        resting: count(resting),
    }
}

/// Converts a length to the type of the counts in the contract.
pub(crate) fn count(len: usize) -> u64 {
    u64::try_from(len).expect("fewer than 2^64 fit into memory")
}

// === impl Slots ===

impl Slots {
    fn smallest_free(&self) -> u16 {
        let words = self.0.iter().enumerate();
        let free = words
            .map(|(at, word)| (at, word.trailing_ones() as usize))
            .find(|(_, ones)| *ones < 64);
        let (at, ones) = free.unwrap_or((self.0.len(), 0));
        u16::try_from(64 * at + ones).expect("a slot is below the limit of its lease")
    }

    fn take(&mut self, slot: u16) {
        let (at, bit) = place(slot);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= bit;
    }

    fn free(&mut self, slot: u16) {
        let (at, bit) = place(slot);
        self.0[at] &= !bit;
    }
}

fn place(slot: u16) -> (usize, u64) {
    (usize::from(slot) / 64, 1 << (slot % 64))
}

// === Catalog ===

/// The names of all locks that are held, durably or not, by their position in lists.
///
/// The position of a name is a hash of the name. It does not change when the lease is renewed or passes on, so
/// a walk visits every lock that is held throughout, and ends however many locks are acquired meanwhile. The
/// position does not reveal the name, which not every caller may see.
#[derive(Debug, Default)]
pub(crate) struct Catalog(BTreeMap<u64, Vec<LockName>>);

// === impl Catalog ===

impl Catalog {
    /// Adds a name to the catalog, if the catalog does not have it yet.
    pub(crate) fn add(&mut self, name: &LockName) {
        let names = self.0.entry(position(name)).or_default();
        if !names.contains(name) {
            names.push(name.clone());
        }
    }

    /// The names behind a position of the walk, or all names. Names with the same position come together.
    pub(crate) fn behind(&self, position: Option<u64>) -> impl Iterator<Item = (u64, &[LockName])> {
        let from = position.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.0.range((from, Bound::Unbounded));
        range.map(|(position, names)| (*position, names.as_slice()))
    }

    /// Removes a name from the catalog.
    pub(crate) fn remove(&mut self, name: &LockName) {
        let position = position(name);
        if let Some(names) = self.0.get_mut(&position) {
            names.retain(|other| other != name);
            if names.is_empty() {
                self.0.remove(&position);
            }
        }
    }
}

fn position(name: &LockName) -> u64 {
    let digest: [u8; 32] = Sha256::digest(name.as_str()).into();
    let (position, _) = digest
        .split_first_chunk()
        .expect("a digest has more than eight bytes");
    u64::from_be_bytes(*position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_slot_that_is_free_is_found_across_words() {
        let mut slots = Slots::default();
        for slot in 0..200 {
            assert_eq!(slots.smallest_free(), slot);
            slots.take(slot);
        }
        for freed in [199, 127, 64, 63, 0] {
            slots.free(freed);
            assert_eq!(slots.smallest_free(), freed);
        }
        slots.take(0);
        assert_eq!(slots.smallest_free(), 63);
    }
}
