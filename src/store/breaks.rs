//! What becomes of a break, and the word of it for those of this process who keep the lease.

use tokio::sync::broadcast;

use crate::lock::{LockName, TokenHash};

use super::contract::Holder;

/// The answer to a break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breaking {
    /// This held the lock until now, as it was last seen.
    Broken(Holder),
    /// Something else holds the lock than what was to be broken.
    HolderChanged(Holder),
    /// Nobody holds the lock.
    NotHeld,
}

/// Where the word goes that leases were broken. Cheap to clone.
///
/// It is a hint: it may be lost, and whoever hears it asks the store.
#[derive(Debug, Clone)]
pub struct BreakFeed {
    sender: broadcast::Sender<BrokenLease>,
}

/// A lease that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenLease {
    /// The lock that it held.
    pub name: LockName,
    /// The hash of its token.
    pub token: TokenHash,
}

/// Hears of leases that are broken from now on.
#[derive(Debug)]
pub struct BreakListener {
    receiver: broadcast::Receiver<BrokenLease>,
}

/// How many may be broken before those are forgotten that were not heard of yet. Somebody breaks
/// them one by one.
const BACKLOG: usize = 256;

// === impl BreakFeed ===

impl BreakFeed {
    /// Tells those who listen now.
    pub fn publish(&self, broken: BrokenLease) {
        // An error: nobody listens.
        drop(self.sender.send(broken));
    }

    /// Listens from now on.
    pub fn listen(&self) -> BreakListener {
        let receiver = self.sender.subscribe();
        BreakListener { receiver }
    }
}

impl Default for BreakFeed {
    fn default() -> Self {
        let (sender, _nobody) = broadcast::channel(BACKLOG);
        Self { sender }
    }
}

// === impl BreakListener ===

impl BreakListener {
    /// The next one; `None` when there will be no more. Safe to drop and call again.
    pub async fn recv(&mut self) -> Option<BrokenLease> {
        loop {
            match self.receiver.recv().await {
                Ok(broken) => return Some(broken),
                // Those are found out with their next renewal.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Token;

    fn broken(name: &str) -> BrokenLease {
        BrokenLease {
            name: LockName::new(name).unwrap(),
            token: Token::random().hash(),
        }
    }

    #[tokio::test]
    async fn whoever_listens_hears_what_is_broken_from_then_on() {
        let breaks = BreakFeed::default();
        breaks.publish(broken("before"));
        let mut listener = breaks.listen();
        let published = broken("after");
        breaks.publish(published.clone());
        assert_eq!(listener.recv().await, Some(published));
        drop(breaks);
        assert_eq!(listener.recv().await, None);
    }

    #[tokio::test]
    async fn whoever_does_not_keep_up_misses_the_oldest_and_goes_on() {
        let breaks = BreakFeed::default();
        let mut listener = breaks.listen();
        let all: Vec<_> = (0..=BACKLOG).map(|n| broken(&n.to_string())).collect();
        for one in &all {
            breaks.publish(one.clone());
        }
        assert_eq!(listener.recv().await.as_ref(), Some(&all[1]));
    }
}
