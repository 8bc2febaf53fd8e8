//! The highest fencing token that this gateway has seen in each slot.
//!
//! A counter that was lost together with the clock that would have floored it cannot issue an old
//! number again through this gateway. Per slot: one floor for all would spread one fast clock over
//! all shards.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{lock::FencingToken, store::contract::Holder};

use super::super::Slot;

/// The floors of all slots.
#[derive(Debug)]
pub(crate) struct Floors {
    seen: Box<[AtomicU64]>,
}

// === impl Floors ===

impl Floors {
    pub(crate) fn new() -> Self {
        Self {
            seen: (0..Slot::COUNT).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The highest fence seen in this slot, or zero.
    pub(crate) fn of(&self, slot: Slot) -> u64 {
        self.seen[slot.index()].load(Ordering::Relaxed)
    }

    /// Takes note of a fence.
    pub(crate) fn raise(&self, slot: Slot, fence: FencingToken) {
        self.seen[slot.index()].fetch_max(fence.get(), Ordering::Relaxed);
    }

    /// Takes note of the fence of somebody's lease.
    pub(crate) fn raise_to_holder(&self, slot: Slot, holder: Option<&Holder>) {
        for lease in holder.into_iter().flat_map(Holder::leases) {
            self.raise(slot, lease.fence);
        }
    }

    /// The highest fence seen in any slot, or zero.
    pub(crate) fn highest(&self) -> u64 {
        let seen = self.seen.iter().map(|seen| seen.load(Ordering::Relaxed));
        seen.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rise_and_never_fall_each_in_its_slot() {
        let floors = Floors::new();
        let [a, b] = [b"a", b"b"].map(|tag| Slot::of(tag));
        for fence in [7, 9, 8] {
            floors.raise(a, FencingToken::new(fence).unwrap());
        }
        assert_eq!((floors.of(a), floors.of(b), floors.highest()), (9, 0, 9));
    }
}
