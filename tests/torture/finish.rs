//! Checks after the end of a run, and reads the histories of locks: every lock can be acquired, no queue has waiters, and Redis holds only counters and
//! memories.

use std::{collections::BTreeSet, path::Path};

use bb8_redis::redis;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    client,
    history::{AFTERWARDS, Ask, Event, Invariant, Violation},
    journal::{self, Journal},
    rig::{Redis, Rig},
    wire::Wire,
};

/// Longer than any lease of a client lives.
const TIMEOUT: Duration = Duration::from_secs(12);
/// Endings of keys that stay.
const STAYS: [&str; 4] = [":fence", ":ended", ":order", ":orders"];
/// Parts of keys that remember the outcome of an attempt, the use of an idempotency key, a release request, or the newest
/// waiter, each for about a minute, or the history of locks.
const MEMORIES: [&str; 5] = ["}:of:", "}:key:", "}:asked:", "}:newest:", "}:history:"];
/// Endings of keys that shared leases leave behind if their end was not noticed, and how long the keys may live at
/// most, in ms: as long as the leases, and a minute.
const OF_SHARING: [&str; 3] = [":shared", ":leases", ":slots"];
const SHARING_LASTS: i64 = 72_000;
/// How long after the last request gateways may write their records, and after the last fault; the checker expects what
/// was recorded a little earlier.
const WRITTEN: Duration = Duration::from_secs(4);
const RECOVERED: Duration = Duration::from_secs(11);
/// Keys that stay and belong to no lock.
const OF_SERVERS: [&str; 2] = ["lg:{}:marker", "lg:{}:node"];

/// Everything that is left and should not be.
pub(crate) async fn left(rig: &mut Rig, directory: &Path) -> Vec<Violation> {
    let mut violations = Vec::new();
    let deadline = Instant::now() + TIMEOUT;
    for lock in &locks(directory) {
        loop {
            let Some(what) = in_the_way(rig, lock).await else {
                break;
            };
            if Instant::now() > deadline {
                violations.push(Violation::new(Invariant::I8, lock, journal::now(), what));
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    for master in rig.masters().await {
        violations.extend(kept(&rig.servers[master], deadline).await);
    }
    violations
}

/// Records what each gateway says of the history of every lock, when all gateways have written it.
pub(crate) async fn recall(rig: &Rig, directory: &Path) {
    let faults = journal::read(directory).into_iter();
    let faults = faults.filter(|line| matches!(line.event, Event::Fault { .. }));
    let last = faults.map(|line| line.at).max().unwrap_or_default();
    let since = Duration::from_nanos(journal::now() - last);
    sleep(WRITTEN.max(RECOVERED.saturating_sub(since))).await;
    let journal = Journal::create(directory, AFTERWARDS);
    client::recall_all(&rig.addresses(), locks(directory).iter(), &journal).await;
}

/// A key of a server that should not exist; none if all keys may stay or expire in time.
async fn kept(server: &Redis, deadline: Instant) -> Option<Violation> {
    loop {
        let keys = server.run(&["KEYS", "*"]).await;
        let keys: Vec<String> = keys
            .and_then(|keys| Ok(redis::from_redis_value(keys)?))
            .unwrap_or_default();
        let stays = |key: &String| {
            STAYS.iter().any(|end| key.ends_with(end))
                || MEMORIES.iter().any(|part| key.contains(part))
                || OF_SERVERS.contains(&key.as_str())
        };
        let mut left = Vec::new();
        for key in keys.into_iter().filter(|key| !stays(key)) {
            let of_sharing = OF_SHARING.iter().any(|end| key.ends_with(end));
            if !(of_sharing && is_soon_over(server, &key).await) {
                left.push(key);
            }
        }
        if left.is_empty() {
            return None;
        }
        if Instant::now() > deadline {
            let what = format!("in {} there is still {left:?}", server.name);
            return Some(Violation::new(Invariant::I8, "all", journal::now(), what));
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a key expires soon, or has expired.
async fn is_soon_over(server: &Redis, key: &str) -> bool {
    let left = server.run(&["PTTL", key]).await;
    let left: Option<i64> = left.ok().and_then(|it| redis::from_redis_value(it).ok());
    left.is_some_and(|left| left == -2 || (0..=SHARING_LASTS).contains(&left))
}

/// Every lock that a client has asked for.
fn locks(directory: &Path) -> BTreeSet<String> {
    let lines = journal::read(directory).into_iter();
    lines
        .filter_map(|line| match line.event {
            Event::Asks { lock, ask, .. } if ask != Ask::Inspect => Some(lock),
            _ => None,
        })
        .collect()
}

/// Acquires and releases a lock. Answers the reason if this fails.
async fn in_the_way(rig: &Rig, lock: &str) -> Option<String> {
    let address = rig.gateways[0].address;
    let taken = async {
        let mut wire = Wire::connect(address).await?;
        wire.send(&format!("POST /locks/{lock}"), "", "").await?;
        let lease = wire.reply().await?;
        wire.send(&format!("GET /locks/{lock}"), "", "").await?;
        let shown = wire.reply().await?;
        let token = lease.body["token"].as_str().unwrap_or_default();
        let header = format!("Lock-Token: {token}\r\n");
        wire.send(&format!("DELETE /locks/{lock}"), &header, "")
            .await?;
        let released = wire.reply().await?;
        Ok::<_, std::io::Error>((lease, shown, released))
    };
    match taken.await {
        Ok((lease, shown, released)) => {
            let alone = shown.body["waiter_count"] == 0;
            (lease.status != 201 || !alone || released.status != 204).then(|| {
                let (lease, shown) = (lease.body, shown.body);
                format!("it cannot be taken at the first try: {lease} {shown}")
            })
        }
        Err(error) => Some(format!("it cannot be taken: {error}")),
    }
}
