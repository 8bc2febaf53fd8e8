//! For how long a walk through all locks has lasted, by the clock of the node where it began: what a
//! node has had for longer it had when it was scanned.

use std::time::Duration;

use bb8_redis::redis::{Value, from_redis_value};
use tokio::time::Instant;

use crate::lock::HeldLease;

use super::{super::client::Command, shared::Shared};

/// For how long a walk has lasted.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListWalk {
    /// When it began, in milliseconds, by the clock of the first node; 0 if that does not say.
    pub(super) since: u64,
    lasted: Option<Duration>,
    /// When it had lasted so long, at the latest.
    at: Instant,
}

/// What told times may be off by.
const JITTER: Duration = Duration::from_millis(5);

// === impl Shared ===

impl Shared {
    /// A walk that began then, or begins now.
    pub(super) async fn walk(&self, since: Option<u64>) -> ListWalk {
        let at = Instant::now();
        let node = &self.quorum.nodes()[0];
        let command = Command::new("TIME");
        let time = node.dispatch.plain_to(&node.shard, &command).await;
        let now = time.ok().and_then(millis);
        let since = since.or(now).unwrap_or_default();
        let lasted = now.and_then(|now| now.checked_sub(since));
        ListWalk {
            since,
            lasted: lasted.map(Duration::from_millis).filter(|_| since > 0),
            at,
        }
    }
}

fn millis(time: Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = from_redis_value(time).ok()?;
    Some(seconds * 1_000 + micros / 1_000)
}

// === impl ListWalk ===

impl ListWalk {
    /// Whether a node has certainly had this since before the walk began. Clocks run apart by a hundredth
    /// at most.
    pub(super) fn is_younger_than(&self, lease: &HeldLease) -> bool {
        self.lasted.is_some_and(|lasted| {
            let lasted = lasted + self.at.elapsed();
            lease.held_for > lasted + lasted / 50 + JITTER
        })
    }
}
