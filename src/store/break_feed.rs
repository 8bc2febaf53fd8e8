//! The feed of broken leases and release requests, which tells the recipients in this process of them.

use tokio::sync::broadcast;

use crate::lock::{LockName, TokenHash};

/// Feed of leases that were broken, or whose holders are asked to release them. Cheap to clone.
///
/// An entry is a hint and may be lost: a listener that receives it asks the store.
#[derive(Debug, Clone)]
pub struct BreakFeed {
    sender: broadcast::Sender<BrokenLease>,
}

/// A lease that was broken, or whose holder is asked to release it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenLease {
    /// The lock that the lease holds or held.
    pub name: LockName,
    /// The hash of the token of the lease.
    pub token: TokenHash,
}

/// Receives the entries that are published on a [`BreakFeed`] from now on.
#[derive(Debug)]
pub struct BreakListener {
    receiver: broadcast::Receiver<BrokenLease>,
}

/// How many entries of the feed a listener may lag behind before the oldest are dropped. As many leases may share a
/// lock by default, and all of them may be broken at once.
const BACKLOG: usize = 1_024;

// === impl BreakFeed ===

impl BreakFeed {
    /// Sends a broken lease, or a release request, to the current listeners.
    pub fn publish(&self, broken: BrokenLease) {
        // Sending fails only if there are no listeners.
        drop(self.sender.send(broken));
    }

    /// Returns a listener for the entries that are published on this feed from now on.
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
    /// The next broken lease or release request; `None` when the feed has ended. Safe to drop and call again.
    pub async fn recv(&mut self) -> Option<BrokenLease> {
        loop {
            match self.receiver.recv().await {
                Ok(broken) => return Some(broken),
                // Entries of the feed were dropped. The recipients of these leases learn of the break at the next
                // renewal.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lock::Token;

    use super::*;

    fn broken(name: &str) -> BrokenLease {
        BrokenLease {
            name: LockName::new(name).unwrap(),
            token: Token::random().hash(),
        }
    }

    #[tokio::test]
    async fn whoever_listens_hears_what_is_broken_from_then_on_but_the_oldest_of_too_many() {
        let breaks = BreakFeed::default();
        breaks.publish(broken("before"));
        let mut listener = breaks.listen();
        let all: Vec<_> = (0..=BACKLOG).map(|n| broken(&n.to_string())).collect();
        for one in &all {
            breaks.publish(one.clone());
        }
        drop(breaks);
        for expected in &all[1..] {
            assert_eq!(listener.recv().await.as_ref(), Some(expected));
        }
        assert_eq!(listener.recv().await, None);
    }
}
