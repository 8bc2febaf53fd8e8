//! What is told of leases before their beginnings are.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    line::{LeaseId, News},
    tracker::Origin,
};

/// What is told of leases that nobody here has heard of yet: acquired at one gateway and released
/// at another, a lease may end here before it begins. Such news wait a little for the beginning.
#[derive(Debug, Default)]
pub(super) struct Limbo {
    waiting: HashMap<LeaseId, Vec<(News, Origin)>>,
    order: VecDeque<(Instant, LeaseId)>,
    count: usize,
}

/// How long news wait: longer than a batch is collected and sent.
const PATIENCE: Duration = Duration::from_millis(200);
/// How many wait. What comes beyond it does not.
const MOST: usize = 4_096;

// === impl Limbo ===

impl Limbo {
    /// Lets news wait, behind those of the same lease; hands them back if they cannot.
    pub(super) fn enter(&mut self, id: LeaseId, news: News, origin: Origin) -> Option<News> {
        if self.count >= MOST {
            return Some(news);
        }
        self.count += 1;
        let before = self.waiting.entry(id).or_default();
        if before.is_empty() {
            self.order.push_back((Instant::now() + PATIENCE, id));
        }
        before.push((news, origin));
        None
    }

    /// What has waited for a lease that has begun now.
    pub(super) fn take(&mut self, id: LeaseId) -> Vec<(News, Origin)> {
        let waited = self.waiting.remove(&id).unwrap_or_default();
        self.count -= waited.len();
        waited
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.order.front().map(|(due, _)| *due)
    }

    /// What has waited for one lease for long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Vec<(News, Origin)>> {
        if self.next_due()? > now {
            return None;
        }
        let (_, id) = self.order.pop_front()?;
        Some(self.take(id))
    }
}
