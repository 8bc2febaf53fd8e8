//! List, on what is durable.

use crate::{
    lock::LockName,
    store::{
        contract::Holder,
        cursor::Cursor,
        page::{HeldLock, ListQuery, Page},
    },
};

use super::{moment::Moment, state::State};

/// How many names one look walks by. The writer waits for a look to end: a fraction of what its
/// fsync takes.
const LOOK: usize = 256;
/// How many looks make up a page at most.
const LOOKS: usize = 64;

/// A page that is being filled.
#[derive(Debug)]
pub(super) struct Listing<'a> {
    query: &'a ListQuery,
    locks: Vec<HeldLock>,
    /// The place that was come by last.
    place: Option<u64>,
    looks: usize,
}

/// Whether there is more to be looked at for this page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// There is.
    GoesOn,
    /// The page is full, or has cost what a page may cost; there may be another.
    Pauses,
    /// All names were come by.
    Ends,
}

// === impl Listing ===

impl<'a> Listing<'a> {
    pub(super) fn new(query: &'a ListQuery) -> Self {
        let place = match query.cursor {
            Some(Cursor::Embedded { place }) => Some(place),
            // Of another store: the walk begins anew.
            Some(Cursor::Redis(_) | Cursor::Cluster { .. } | Cursor::Quorum { .. }) | None => None,
        };
        Self {
            query,
            locks: Vec::new(),
            place,
            looks: 0,
        }
    }

    /// Walks by some more names.
    pub(super) fn look(&mut self, state: &State, now: Moment) -> Walk {
        self.looks += 1;
        let mut seen = 0;
        for (place, names) in state.catalog().behind(self.place) {
            for name in names {
                self.consider(name, state, now);
            }
            self.place = Some(place);
            seen += names.len();
            if self.locks.len() >= self.query.limit {
                return Walk::Pauses;
            }
            if seen >= LOOK {
                return if self.looks < LOOKS {
                    Walk::GoesOn
                } else {
                    Walk::Pauses
                };
            }
        }
        Walk::Ends
    }

    /// The page, when the walk has come so far.
    pub(super) fn page(self, walk: Walk) -> Page {
        let next = match (walk, self.place) {
            (Walk::Ends, _) | (_, None) => None,
            (Walk::GoesOn | Walk::Pauses, Some(place)) => Some(Cursor::Embedded { place }),
        };
        Page {
            locks: self.locks,
            next,
        }
    }

    fn consider(&mut self, name: &LockName, state: &State, now: Moment) {
        let query = self.query;
        if !query.prefix.covers(name) {
            return;
        }
        if let Some(lease) = state.durable(name, now)
            && (query.owner.is_none() || query.owner == lease.owner)
        {
            self.locks.push(HeldLock {
                name: name.clone(),
                holder: Holder::Lease(lease.held(now)),
                waiters: state.waiters(name, now),
            });
        }
    }
}
