//! An observer that reads the locks in Redis, independent of gateways and clients.

use bb8_redis::redis::{self, aio::MultiplexedConnection};
use tokio::time::{MissedTickBehavior, interval};

use super::client::Load;
use crate::support::prelude::*;

/// The state of a lock: its holder, the time left, and the fencing token.
type Seen = (String, i64, Option<u64>);

/// The pause between two observations: many of them fit into a TTL.
const PERIOD: Duration = Duration::from_millis(50);

/// Observes the locks until the test is over. The locks in `kept` must be held by the same lease all the time; the
/// others may change to leases with larger fencing tokens.
///
/// Answers the least time left of a lease in `kept`.
pub(super) async fn observe(
    load: Arc<Load>,
    mut redis: MultiplexedConnection,
    kept: Vec<String>,
    passed_on: Vec<String>,
) -> Duration {
    let mut least = i64::MAX;
    let mut first: BTreeMap<&String, Seen> = BTreeMap::new();
    let mut fences: BTreeMap<&String, u64> = BTreeMap::new();
    let mut period = interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !load.is_over() {
        period.tick().await;
        let seen = look(&mut redis, &kept).await;
        // The clients release their locks at the end.
        if load.is_over() {
            break;
        }
        for (name, seen) in kept.iter().zip(seen) {
            least = least.min(seen.1);
            let first = first.entry(name).or_insert_with(|| seen.clone());
            assert!(!seen.0.is_empty(), "{name} is not held");
            assert_eq!(
                (&seen.0, seen.2),
                (&first.0, first.2),
                "{name} has passed on"
            );
        }
        let seen = look(&mut redis, &passed_on).await;
        for (name, (_, _, fence)) in passed_on.iter().zip(seen) {
            let before = fences.entry(name).or_default();
            let Some(fence) = fence.filter(|fence| fence != before) else {
                continue;
            };
            assert!(fence > *before, "{name}: {fence} came after {before}");
            *before = fence;
        }
    }
    Duration::from_millis(least.try_into().unwrap())
}

/// The keys of all held locks and of all queues.
pub(super) async fn left(redis: &RedisServer) -> Vec<String> {
    let mut keys = redis.keys().await;
    keys.retain(|key| [":lock", ":wait"].iter().any(|end| key.ends_with(end)));
    keys
}

async fn look(redis: &mut MultiplexedConnection, names: &[String]) -> Vec<Seen> {
    let mut pipe = redis::pipe();
    // Each lock is read in one transaction: it may be handed on between two commands.
    pipe.atomic();
    for name in names {
        pipe.getrange(format!("lg:{{{name}}}:lock"), 0, 64);
        pipe.pttl(format!("lg:{{{name}}}:lock"));
        pipe.getrange(format!("lg:{{{name}}}:lock"), 70, 85);
    }
    let replies: Vec<Value> = pipe.query_async(redis).await.unwrap();
    let seen = |reply: &[Value]| {
        let reply = from_redis_value(Value::Array(reply.to_vec()));
        let (holder, ttl, fence): (String, i64, String) = reply.unwrap();
        // A free lock has no text, and so no fencing token.
        (holder, ttl, fence.parse().ok())
    };
    replies.chunks(3).map(seen).collect()
}
