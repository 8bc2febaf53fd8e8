//! Lists: the names of all locks that are held, in an order in which they can be walked through, and pages of them.

use std::{collections::BTreeMap, ops::Bound};

use sha2::{Digest, Sha256};

use crate::{
    lock::LockName,
    store::{
        contract::{HeldLock, ListQuery, Page},
        cursor::Cursor,
    },
};

use super::{State, lease::Moment};

/// How many names, or leases that share a lock, one look walks by, without and with a search, which reads all metadata. The writer waits
/// for a look to end: a fraction of what its fsync takes.
const NAMES_PER_SCAN: usize = 256;
const NAMES_PER_SEARCH: usize = 64;
/// How many looks make up a page at most.
const MAX_SCANS: usize = 64;

/// A page that is being filled.
#[derive(Debug)]
pub(crate) struct PageBuilder<'a> {
    query: &'a ListQuery,
    locks: Vec<HeldLock>,
    /// The place that was come by last.
    position: Option<u64>,
    scans: usize,
}

/// Whether there is more to be looked at for this page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListProgress {
    /// There is.
    More,
    /// The page is full, or has cost what a page may cost; there may be another.
    PageFull,
    /// All names were come by.
    Done,
}

// === impl PageBuilder ===

impl<'a> PageBuilder<'a> {
    pub(crate) fn new(query: &'a ListQuery) -> Self {
        let position = match query.cursor {
            Some(Cursor::Embedded { position }) => Some(position),
            // Of another store: the walk begins anew.
            Some(Cursor::Redis { .. } | Cursor::Quorum { .. }) | None => None,
        };
        Self {
            query,
            locks: Vec::new(),
            position,
            scans: 0,
        }
    }

    /// Walks by some more names.
    pub(crate) fn scan(&mut self, state: &State, now: Moment) -> ListProgress {
        self.scans += 1;
        let enough = match self.query.filter.search {
            Some(_) => NAMES_PER_SEARCH,
            None => NAMES_PER_SCAN,
        };
        let mut seen = 0;
        for (position, names) in state.catalog().behind(self.position) {
            for name in names {
                seen += self.consider(name, state, now);
            }
            self.position = Some(position);
            if self.locks.len() >= self.query.limit {
                return ListProgress::PageFull;
            }
            if seen >= enough {
                return if self.scans < MAX_SCANS {
                    ListProgress::More
                } else {
                    ListProgress::PageFull
                };
            }
        }
        ListProgress::Done
    }

    /// The page, when the walk has come so far.
    pub(crate) fn page(self, walk: ListProgress) -> Page {
        let next = match (walk, self.position) {
            (ListProgress::Done, _) | (_, None) => None,
            (ListProgress::More | ListProgress::PageFull, Some(position)) => {
                Some(Cursor::Embedded { position })
            }
        };
        Page {
            locks: self.locks,
            next,
        }
    }

    /// Answers how much was looked at: a lock may be held by many.
    fn consider(&mut self, name: &LockName, state: &State, now: Moment) -> usize {
        let filter = &self.query.filter;
        if !filter.prefix.covers(name) {
            return 1;
        }
        let mut looked_at = 0;
        let is_shown = state.durable_leases(name, now).any(|lease| {
            looked_at += 1;
            filter.shows(name, lease.owner.as_ref(), Some(&lease.metadata))
        });
        let holder = is_shown.then(|| state.durable_holder(name, now)).flatten();
        if let Some(holder) = holder {
            looked_at = looked_at.max(holder.leases().len());
            self.locks.push(HeldLock {
                name: name.clone(),
                holder,
                waiters: state.waiters(name),
            });
        }
        looked_at.max(1)
    }
}

/// The names of all locks that are held, durably or not, by their place.
///
/// The place of a name is a hash of it. It does not change when the lease is renewed or passes on, so
/// that a walk comes by every lock that is held throughout, and ends however many locks are taken
/// meanwhile. It says nothing about the name, which not everybody may see.
#[derive(Debug, Default)]
pub(crate) struct Catalog(BTreeMap<u64, Vec<LockName>>);

// === impl Catalog ===

impl Catalog {
    /// Adds a name, if it is not there yet.
    pub(crate) fn add(&mut self, name: &LockName) {
        let names = self.0.entry(position(name)).or_default();
        if !names.contains(name) {
            names.push(name.clone());
        }
    }

    /// The names behind a place, or all of them. Those that share a place come together.
    pub(crate) fn behind(&self, position: Option<u64>) -> impl Iterator<Item = (u64, &[LockName])> {
        let from = position.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.0.range((from, Bound::Unbounded));
        range.map(|(position, names)| (*position, names.as_slice()))
    }

    /// Removes a name.
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
    use std::collections::BTreeSet;

    use super::*;

    fn name(number: usize) -> LockName {
        LockName::new(&format!("lock:{number}")).unwrap()
    }

    #[test]
    fn is_walked_through_from_place_to_place() {
        let mut catalog = Catalog::default();
        for number in 0..100 {
            catalog.add(&name(number));
            catalog.add(&name(number));
        }
        catalog.remove(&name(7));
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
