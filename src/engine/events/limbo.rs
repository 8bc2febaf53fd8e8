//! Ends of leases that have come before their beginnings.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::line::{LeaseId, News};

/// Ends of leases that nobody here has heard of yet: acquired at one gateway and released at
/// another, a lease may end here before it begins. Such an end waits a little for its beginning.
#[derive(Debug, Default)]
pub(super) struct Limbo {
    waiting: HashMap<LeaseId, News>,
    order: VecDeque<(Instant, LeaseId)>,
}

/// How long an end waits: longer than a batch of news is collected and sent.
const PATIENCE: Duration = Duration::from_millis(200);
/// How many wait. What comes beyond it does not.
const MOST: usize = 4_096;

// === impl Limbo ===

impl Limbo {
    /// Lets an end wait; hands it back if it cannot.
    pub(super) fn enter(&mut self, id: LeaseId, news: News) -> Option<News> {
        if self.order.len() >= MOST {
            return Some(news);
        }
        self.order.push_back((Instant::now() + PATIENCE, id));
        self.waiting.insert(id, news)
    }

    /// The end of a lease that has begun now.
    pub(super) fn take(&mut self, id: LeaseId) -> Option<News> {
        self.waiting.remove(&id)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.order.front().map(|(due, _)| *due)
    }

    /// An end that has waited long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<News> {
        while self.next_due()? <= now {
            let (_, id) = self.order.pop_front()?;
            if let Some(news) = self.waiting.remove(&id) {
                return Some(news);
            }
        }
        None
    }
}
