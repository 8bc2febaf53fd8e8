//! The names of all durable leases, in an order in which they can be walked through.

use std::{collections::BTreeMap, ops::Bound};

use sha2::{Digest, Sha256};

use crate::lock::LockName;

/// The names of all durable leases, by their place.
///
/// The place of a name is a hash of it. It does not change when the lease is renewed or passes on, so
/// that a walk comes by every lock that is held throughout, and ends however many locks are taken
/// meanwhile. It says nothing about the name, which not everybody may see.
#[derive(Debug, Default)]
pub(super) struct Catalog(BTreeMap<u64, Vec<LockName>>);

// === impl Catalog ===

impl Catalog {
    /// Takes note of whether a name had a lease, and has one now.
    pub(super) fn note(&mut self, name: LockName, was: bool, is: bool) {
        match (was, is) {
            (false, true) => self.0.entry(position(&name)).or_default().push(name),
            (true, false) => self.remove(&name),
            (false, false) | (true, true) => {}
        }
    }

    /// The names behind a place, or all of them. Those that share a place come together.
    pub(super) fn behind(&self, position: Option<u64>) -> impl Iterator<Item = (u64, &[LockName])> {
        let from = position.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.0.range((from, Bound::Unbounded));
        range.map(|(position, names)| (*position, names.as_slice()))
    }

    fn remove(&mut self, name: &LockName) {
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
    use std::collections::BTreeSet;

    use super::*;

    fn name(number: usize) -> LockName {
        LockName::new(&format!("lock:{number}")).unwrap()
    }

    #[test]
    fn is_walked_through_from_place_to_place() {
        let mut catalog = Catalog::default();
        for number in 0..100 {
            catalog.note(name(number), false, true);
            catalog.note(name(number), true, true);
        }
        catalog.note(name(7), true, false);
        catalog.note(name(8), false, false);
        let (mut last, mut seen) = (None, BTreeSet::new());
        while let Some((position, names)) = catalog.behind(last).next() {
            for name in names {
                assert!(seen.insert(name.clone()), "{name} came twice");
            }
            last = Some(position);
        }
        assert_eq!(seen.len(), 99);
        assert!(!seen.contains(&name(7)));
        assert_eq!(catalog.behind(Some(u64::MAX)).count(), 0);
    }
}
