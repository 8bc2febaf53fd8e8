//! What is left when everything is over: every lock can be taken, nobody is queued, and Redis holds nothing
//! but counters and memories.

use std::{collections::BTreeSet, path::Path};

use bb8_redis::redis;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    history::{Ask, Event, Invariant, Violation},
    journal,
    rig::{Redis, Rig},
    wire::Wire,
};

/// Longer than any lease of a client lasts.
const TIMEOUT: Duration = Duration::from_secs(12);
/// What stays, by the end of its key.
const STAYS: [&str; 2] = [":fence", ":ended"];
/// What says for a minute what became of an attempt, of an idempotency key, and of a lease that was to be released.
const MEMORIES: [&str; 3] = ["}:of:", "}:key:", "}:asked:"];
/// What those who shared a lock leave behind if nobody has looked after their end, and for how long at most, in ms: as
/// long as their leases last, and a minute.
const OF_SHARING: [&str; 3] = [":shared", ":leases", ":slots"];
const SHARING_LASTS: i64 = 72_000;
/// What stays, and is of no lock.
const OF_SERVERS: [&str; 2] = ["lg:{}:marker", "lg:{}:node"];

/// What is left that should not be.
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

/// What a server keeps that should not be there.
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

/// Whether a key goes by itself, or has gone.
async fn is_soon_over(server: &Redis, key: &str) -> bool {
    let left = server.run(&["PTTL", key]).await;
    let left: Option<i64> = left.ok().and_then(|it| redis::from_redis_value(it).ok());
    left.is_some_and(|left| left == -2 || (0..=SHARING_LASTS).contains(&left))
}

/// Every lock that anybody has asked for.
fn locks(directory: &Path) -> BTreeSet<String> {
    let lines = journal::read(directory).into_iter();
    lines
        .filter_map(|line| match line.event {
            Event::Asks { lock, ask, .. } if ask != Ask::Inspect => Some(lock),
            _ => None,
        })
        .collect()
}

/// Takes a lock and releases it; what is in the way of that, if anything is.
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
