//! Hash slots, a short tag for each, and the highest fencing token that was seen in each.
//!
//! A fence counter belongs to a slot, not to a name, so that there are at most 16,384 counters. The key of a counter is
//! `lg:{TAG}:fence`. TAG is the shortest string over `0-9a-z` that hashes to the slot; of several, the first in
//! lexicographic order. The rule is public, so that a foreign client can find the counter of a name.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    lock::{FencingToken, LockName},
    store::contract::Holder,
};

/// A hash slot, 0 to 16,383: the part of the key space that Redis Cluster keeps together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(u16);

/// The tag of every slot.
#[derive(Debug)]
pub struct SlotTags {
    tags: Box<[[u8; SlotTags::MAX_TAG_LEN]]>,
}

// === impl Slot ===

impl Slot {
    /// How many slots there are.
    pub const COUNT: usize = 16_384;

    /// The slot of a hash tag, or of a whole key without a hash tag.
    pub fn of_tag(tag: &[u8]) -> Self {
        Self(tag.iter().fold(0, |crc, &byte| crc16(crc, byte)) & 0x3fff)
    }

    /// The slot of a lock.
    pub(super) fn of_name(name: &LockName) -> Self {
        Self::of_tag(name.as_str().as_bytes())
    }

    /// The slot with this number; `None` if the number is too large.
    pub(super) fn numbered(number: usize) -> Option<Self> {
        let number = u16::try_from(number).ok()?;
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// The number of the slot.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

// === impl SlotTags ===

impl SlotTags {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    /// Length of the longest tag. A test finds a tag of at most this length for every slot.
    const MAX_TAG_LEN: usize = 4;

    /// Finds the tags of all slots by trying strings in the order of the rule, which takes a few milliseconds.
    pub fn compute() -> Self {
        let mut tags = vec![[0; Self::MAX_TAG_LEN]; Slot::COUNT].into_boxed_slice();
        let mut missing = Slot::COUNT;
        let mut prefixes = vec![([0; Self::MAX_TAG_LEN], 0)];
        for at in 0..Self::MAX_TAG_LEN {
            let mut longer = Vec::new();
            for (prefix, crc) in prefixes {
                for &byte in Self::ALPHABET {
                    let (mut tag, crc) = (prefix, crc16(crc, byte));
                    tag[at] = byte;
                    let found = &mut tags[usize::from(crc & 0x3fff)];
                    if found[0] == 0 {
                        *found = tag;
                        missing -= 1;
                    }
                    if missing == 0 {
                        return Self { tags };
                    }
                    if at + 1 < Self::MAX_TAG_LEN {
                        longer.push((tag, crc));
                    }
                }
            }
            prefixes = longer;
        }
        Self { tags }
    }

    /// The tag of a slot.
    pub fn for_slot(&self, slot: Slot) -> &str {
        let tag = &self.tags[slot.index()];
        let len = tag.iter().position(|&byte| byte == 0).unwrap_or(tag.len());
        std::str::from_utf8(&tag[..len]).expect("tags are made of ASCII letters and digits")
    }
}

/// One step of CRC-16/XMODEM, with which Redis Cluster hashes keys.
const fn crc16(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ CRC16[((crc >> 8) as u8 ^ byte) as usize]
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

// If a fence counter is lost and the server's clock has stepped back, this gateway still draws no fence that is lower
// than a fence it has seen. There is a floor for each slot, because one floor for all would spread the fences of one
// fast clock to all servers.

/// The highest fencing token that this gateway has seen in each slot.
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
    pub(crate) fn for_slot(&self, slot: Slot) -> u64 {
        self.seen[slot.index()].load(Ordering::Relaxed)
    }

    /// Records a fence that was seen in a slot.
    pub(crate) fn raise(&self, slot: Slot, fence: FencingToken) {
        self.seen[slot.index()].fetch_max(fence.get(), Ordering::Relaxed);
    }

    /// Records the fences of the leases of a holder.
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
    fn hashes_as_redis_cluster_does() {
        // CLUSTER KEYSLOT of redis-server 7.0.15.
        assert_eq!(Slot::of_tag(b"123456789").index(), 12_739);
        assert_eq!(Slot::of_tag(b"foo").index(), 12_182);
        assert_eq!(Slot::of_tag(b"").index(), 0);
    }

    #[test]
    fn finds_a_tag_that_hashes_to_its_slot_for_every_slot() {
        let tags = SlotTags::compute();
        for index in 0..Slot::COUNT {
            let slot = Slot(u16::try_from(index).unwrap());
            let tag = tags.for_slot(slot);
            assert!(!tag.is_empty(), "slot {index} has no tag");
            assert_eq!(Slot::of_tag(tag.as_bytes()), slot);
        }
    }

    #[test]
    fn takes_the_shortest_and_then_the_first() {
        let tags = SlotTags::compute();
        for c in SlotTags::ALPHABET {
            assert_eq!(tags.for_slot(Slot::of_tag(&[*c])).as_bytes(), [*c]);
        }
        let tag = tags.for_slot(Slot::of_tag(b"123456789")).as_bytes();
        let earlier = (0..36_u32.pow(u32::try_from(tag.len()).unwrap()))
            .map(|mut number| {
                let mut text = vec![0; tag.len()];
                for digit in text.iter_mut().rev() {
                    *digit = SlotTags::ALPHABET[usize::try_from(number % 36).unwrap()];
                    number /= 36;
                }
                text
            })
            .find(|text| Slot::of_tag(text) == Slot::of_tag(b"123456789"));
        assert_eq!(earlier.unwrap(), tag);
    }

    #[test]
    fn rise_and_never_fall_each_in_its_slot() {
        let floors = Floors::new();
        let [a, b] = [b"a", b"b"].map(|tag| Slot::of_tag(tag));
        for fence in [7, 9, 8] {
            floors.raise(a, FencingToken::new(fence).unwrap());
        }
        assert_eq!(
            (floors.for_slot(a), floors.for_slot(b), floors.highest()),
            (9, 0, 9)
        );
    }
}
