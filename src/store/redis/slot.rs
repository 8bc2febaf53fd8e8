//! Hash slots, and a short tag for each.
//!
//! A fence counter belongs to a slot, not to a name, so that there are never more than 16,384 of
//! them. Its key is `lg:{TAG}:fence`, where TAG is, of all strings over `0-9a-z` that hash to the
//! slot, the shortest, and of these the first in lexicographic order. The rule is public: a foreign
//! client that wants the counter of a name finds the same tag.

use crate::lock::LockName;

/// The part of the key space that Redis Cluster keeps together: 0 to 16,383.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(u16);

/// The tag of every slot.
#[derive(Debug)]
pub struct SlotTags {
    tags: Box<[[u8; SlotTags::LONGEST]]>,
}

// === impl Slot ===

impl Slot {
    /// How many slots there are.
    pub const COUNT: usize = 16_384;

    /// The slot of a hash tag, or of a whole key that has none.
    pub fn of(tag: &[u8]) -> Self {
        Self(tag.iter().fold(0, |crc, &byte| crc16(crc, byte)) & 0x3fff)
    }

    /// The slot of a lock.
    pub(super) fn of_name(name: &LockName) -> Self {
        Self::of(name.as_str().as_bytes())
    }

    /// The slot with this number, if there is one.
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
    /// Every slot has a tag of at most four characters; a test finds them all.
    const LONGEST: usize = 4;

    /// Finds all tags, by trying strings in the order of the rule: a few milliseconds.
    pub fn compute() -> Self {
        let mut tags = vec![[0; Self::LONGEST]; Slot::COUNT].into_boxed_slice();
        let mut missing = Slot::COUNT;
        for len in 1..=Self::LONGEST {
            Self::extend(&mut tags, &mut missing, [0; Self::LONGEST], 0, 0, len);
        }
        Self { tags }
    }

    /// The tag of a slot.
    pub fn of(&self, slot: Slot) -> &str {
        let tag = &self.tags[slot.index()];
        let len = tag.iter().position(|&byte| byte == 0).unwrap_or(tag.len());
        std::str::from_utf8(&tag[..len]).expect("tags are made of ASCII letters and digits")
    }

    fn extend(
        tags: &mut [[u8; Self::LONGEST]],
        missing: &mut usize,
        prefix: [u8; Self::LONGEST],
        at: usize,
        crc: u16,
        len: usize,
    ) {
        for &byte in Self::ALPHABET {
            if *missing == 0 {
                return;
            }
            let mut tag = prefix;
            tag[at] = byte;
            let crc = crc16(crc, byte);
            if at + 1 < len {
                Self::extend(tags, missing, tag, at + 1, crc, len);
            } else {
                let found = &mut tags[usize::from(crc & 0x3fff)];
                if found[0] == 0 {
                    *found = tag;
                    *missing -= 1;
                }
            }
        }
    }
}

/// One step of CRC-16/XMODEM, which Redis Cluster uses.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_redis_cluster_does() {
        // CLUSTER KEYSLOT of redis-server 7.0.15.
        assert_eq!(Slot::of(b"123456789").index(), 12_739);
        assert_eq!(Slot::of(b"foo").index(), 12_182);
        assert_eq!(Slot::of(b"").index(), 0);
    }

    #[test]
    fn finds_a_tag_that_hashes_to_its_slot_for_every_slot() {
        let tags = SlotTags::compute();
        for index in 0..Slot::COUNT {
            let slot = Slot(u16::try_from(index).unwrap());
            let tag = tags.of(slot);
            assert!(!tag.is_empty(), "slot {index} has no tag");
            assert_eq!(Slot::of(tag.as_bytes()), slot);
        }
    }

    #[test]
    fn takes_the_shortest_and_then_the_first() {
        let tags = SlotTags::compute();
        for c in SlotTags::ALPHABET {
            assert_eq!(tags.of(Slot::of(&[*c])).as_bytes(), [*c]);
        }
        let tag = tags.of(Slot::of(b"123456789")).as_bytes();
        let earlier = (0..36_u32.pow(u32::try_from(tag.len()).unwrap()))
            .map(|mut number| {
                let mut text = vec![0; tag.len()];
                for digit in text.iter_mut().rev() {
                    *digit = SlotTags::ALPHABET[usize::try_from(number % 36).unwrap()];
                    number /= 36;
                }
                text
            })
            .find(|text| Slot::of(text) == Slot::of(b"123456789"));
        assert_eq!(earlier.unwrap(), tag);
    }
}
