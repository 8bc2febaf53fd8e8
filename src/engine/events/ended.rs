//! Which leases have ended lately.

use std::collections::{HashSet, VecDeque};

use super::{line::LeaseId, tracker::LeaseKey};

/// What a lease that has ended is known by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Mark {
    Key(LeaseKey),
    Id(LeaseId),
}

/// Which leases have ended lately: an end is told once.
#[derive(Debug, Default)]
pub(super) struct Ended {
    marks: HashSet<Mark>,
    order: VecDeque<Mark>,
}

/// How many are remembered: the ends of several seconds of a busy store. News of the same end come
/// within two.
const REMEMBERED: usize = 65_536;

// === impl Ended ===

impl Ended {
    pub(super) fn insert(&mut self, mark: Mark) {
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

    pub(super) fn contains(&self, mark: &Mark) -> bool {
        self.marks.contains(mark)
    }
}
