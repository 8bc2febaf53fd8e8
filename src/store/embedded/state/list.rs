//! Pages of lists, of what is durable.

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
        for (position, names) in state.catalog.behind(self.position) {
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
                waiters: state.queues.len(name),
            });
        }
        looked_at.max(1)
    }
}
