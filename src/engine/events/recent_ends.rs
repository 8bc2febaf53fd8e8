//! Which leases have ended lately.

use std::collections::{HashSet, VecDeque};

use crate::{engine::leases::LeaseTag, lock::LockName};

use super::tracker::EventLeaseKey;

/// What a lease that has ended is known by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum EndedLease {
    Key(EventLeaseKey),
    Id(LeaseTag, LockName),
}

/// Which leases have ended lately: an end is told once.
#[derive(Debug, Default)]
pub(super) struct RecentEnds {
    marks: HashSet<EndedLease>,
    order: VecDeque<EndedLease>,
}

/// How many are remembered: the ends of several seconds of a busy store. News of the same end come
/// within two.
const REMEMBERED: usize = 65_536;

// === impl RecentEnds ===

impl RecentEnds {
    pub(super) fn insert(&mut self, mark: EndedLease) {
        if !self.marks.insert(mark.clone()) {
            return;
        }
        self.order.push_back(mark);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.marks.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, mark: &EndedLease) -> bool {
        self.marks.contains(mark)
    }
}
