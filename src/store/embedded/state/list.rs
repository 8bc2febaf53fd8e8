//! Pages of lists of held locks, from the durable state.

use crate::{
    lock::LockName,
    store::{
        contract::{HeldLock, ListQuery, Page, Waiter},
        cursor::Cursor,
        list_filter::Shown,
    },
};

use super::{State, lease::Moment};

/// The most names, shared leases and waiters that one scan visits, without a search and with a search, which reads all
/// metadata. The writer waits until a scan ends, which takes a fraction of the time of its fsync.
const NAMES_PER_SCAN: usize = 256;
const NAMES_PER_SEARCH: usize = 64;
/// How many scans the writer makes for one page of a list, at most.
const MAX_SCANS: usize = 64;

/// A page of a list that is being filled.
#[derive(Debug)]
pub(crate) struct PageBuilder<'a> {
    query: &'a ListQuery,
    locks: Vec<HeldLock>,
    /// The position of the last name that the walk has visited.
    position: Option<u64>,
    scans: usize,
}

/// Whether a walk through the names needs more scans for this page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListProgress {
    /// The page of the list needs another scan.
    More,
    /// The page of the list is full, or has reached the limit of scans; another page may follow.
    PageFull,
    /// All names were visited, so this page of the list is the last.
    Done,
}

// === impl PageBuilder ===

impl<'a> PageBuilder<'a> {
    pub(crate) fn new(query: &'a ListQuery) -> Self {
        let position = match query.cursor {
            Some(Cursor::Embedded { position }) => Some(position),
            // The cursor is of another store, so the walk starts from the beginning.
            Some(Cursor::Redis { .. } | Cursor::Quorum { .. }) | None => None,
        };
        Self {
            query,
            locks: Vec::new(),
            position,
            scans: 0,
        }
    }

    /// Visits the next names of the walk, and adds matching locks to the page.
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

    /// Finishes the page of the list, with a cursor for the next page unless all names were visited.
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

    /// Adds the lock to the page if the lock matches the filter. Returns how many leases were read, at least 1.
    fn consider(&mut self, name: &LockName, state: &State, now: Moment) -> usize {
        let filter = &self.query.filter;
        if !filter.prefix.covers(name) {
            return 1;
        }
        let mut looked_at = 0;
        let leases = state.durable_leases(name, now).map(|lease| {
            looked_at += 1;
            Some(&lease.said)
        });
        let found = match filter.shows(name, leases) {
            Shown::Yes(found) => Some(found),
            Shown::ByWaiter if state.queues.len(name) > 0 => {
                let (waiters, _) = state.queues.durable_head(name, now);
                looked_at += waiters.len();
                filter
                    .find_waiter(waiters.iter().map(Waiter::said))
                    .map(Some)
            }
            Shown::ByWaiter | Shown::No => None,
        };
        if let Some(found) = found
            && let Some(holder) = state.durable_holder(name, now)
        {
            looked_at = looked_at.max(holder.leases().len());
            self.locks.push(HeldLock {
                name: name.clone(),
                holder,
                waiters: state.queues.len(name),
                found,
            });
        }
        looked_at.max(1)
    }
}
