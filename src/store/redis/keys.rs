//! The keys of a lock. Their names are a public interface for foreign clients.

use crate::lock::LockName;

use super::{Slot, SlotTags};

/// The keys of one lock, in one text.
#[derive(Debug)]
pub(super) struct Keys {
    text: String,
    ends: [usize; 4],
    slot: Slot,
}

// === impl Keys ===

impl Keys {
    /// A key of no lock, since no lock has an empty name; also a channel of no lock.
    pub(super) const PROBE: &str = "lg:{}:probe";

    pub(super) fn of(name: &LockName, tags: &SlotTags) -> Self {
        let name = name.as_str();
        let slot = Slot::of(name.as_bytes());
        let parts = [
            (name, ":lock"),
            (name, ":info"),
            (name, ":ended"),
            (tags.of(slot), ":fence"),
        ];
        let mut text = String::with_capacity(3 * name.len() + 48);
        let ends = parts.map(|(tag, end)| {
            for part in ["lg:{", tag, "}", end] {
                text.push_str(part);
            }
            text.len()
        });
        Self { text, ends, slot }
    }

    /// The hash of the holder's token.
    pub(super) fn lock(&self) -> &str {
        &self.text[..self.ends[0]]
    }

    /// The lease record.
    pub(super) fn info(&self) -> &str {
        &self.text[self.ends[0]..self.ends[1]]
    }

    /// What is remembered of ended leases.
    pub(super) fn ended(&self) -> &str {
        &self.text[self.ends[1]..self.ends[2]]
    }

    /// The fence counter of the slot.
    pub(super) fn fence(&self) -> &str {
        &self.text[self.ends[2]..self.ends[3]]
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_the_ones_that_foreign_clients_know() {
        let tags = SlotTags::compute();
        let keys = Keys::of(&LockName::new("deploy:eu").unwrap(), &tags);
        assert_eq!(keys.lock(), "lg:{deploy:eu}:lock");
        assert_eq!(keys.info(), "lg:{deploy:eu}:info");
        assert_eq!(keys.ended(), "lg:{deploy:eu}:ended");
        let tag = tags.of(Slot::of(b"deploy:eu"));
        assert_eq!(keys.fence(), format!("lg:{{{tag}}}:fence"));
        assert_eq!(Slot::of(tag.as_bytes()), keys.slot());
    }
}
