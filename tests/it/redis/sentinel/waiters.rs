//! Two gateways, at which many wait for a lock, while its master is replaced by one that has missed the
//! last of it.

use std::time::Duration;

use futures_util::future::join_all;
use latchgate::{
    config::{Millis, RedisConfig},
    lock::Lease,
    store::{Store, StoreError, contract::Release},
};
use tokio::sync::Mutex;

use super::{
    super::{
        rig::{attempt, eventually, granted, quick},
        waiting::gate::{PendingAcquire, TestGateway, request},
    },
    watched::Watched,
};

const WAITERS: usize = 8;
/// What a holder is granted whose release is forgotten: the next waits for as long.
const FORGOTTEN_MS: u64 = 3_000;

/// Uses a lock and leaves it, whatever becomes of the master meanwhile.
async fn use_and_leave(gate: &TestGateway, lease: &Lease, fences: &Mutex<Vec<u64>>) {
    fences.lock().await.push(lease.held.fence.get());
    eventually("it is left", async || {
        match gate.store.release(&lease.name, &lease.token.hash()).await {
            Ok(Release::Released | Release::Lost(_)) => Some(()),
            Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

async fn wait_and_use(gate: &TestGateway, asked: PendingAcquire, fences: &Mutex<Vec<u64>>) {
    let lease = asked.lease().await;
    use_and_leave(gate, &lease, fences).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_are_served_and_fences_rise_although_the_last_grants_are_forgotten() {
    let mut watched = Watched::start().await;
    // Whoever is asking when the master is killed goes on asking until there is another one.
    let config = RedisConfig {
        deadline_ms: Millis(60_000),
        ..quick()
    };
    let gates = [0, 1].map(|_| TestGateway::with(&watched.url(), &config));
    let first = gates[0].take_for("queue", FORGOTTEN_MS).await;
    let mut queue = Vec::new();
    for turn in 0..WAITERS {
        let mut asked = request("queue");
        asked.ttl = super::super::rig::ttl(FORGOTTEN_MS);
        queue.push(gates[turn % 2].queue(asked).await);
    }
    eventually("the replicas have the queue", async || {
        let acknowledged = watched.servers[0].integer(&["WAIT", "2", "1000"]).await;
        (acknowledged == 2).then_some(())
    })
    .await;
    watched.cut_off_replicas(0).await;

    // Some are served, of which no replica hears.
    let fences = Mutex::new(Vec::new());
    let mut queue = queue.into_iter().enumerate();
    use_and_leave(&gates[0], &first, &fences).await;
    for (turn, asked) in queue.by_ref().take(3) {
        wait_and_use(&gates[turn % 2], asked, &fences).await;
    }
    let lost = attempt("lost");
    granted(gates[0].store.acquire(&lost).await);
    watched.servers[0].kill();
    let master = watched.replaced(0).await;
    watched.join_replicas(0).await;

    let key = watched.servers[master]
        .text(&["GET", "lg:{lost}:lock"])
        .await;
    assert_eq!(key, "", "the fault happened: a grant was forgotten");
    let rest = queue.map(|(turn, asked)| wait_and_use(&gates[turn % 2], asked, &fences));
    join_all(rest).await;
    let fences = fences.into_inner();
    assert_eq!(fences.len(), 1 + WAITERS);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    for gate in &gates {
        gate.until_queued("queue", 0).await;
    }
    eventually("the lock is free for the next", async || {
        let next = attempt("queue");
        let next = gates[1].store.acquire(&next).await.ok()?;
        matches!(next, latchgate::store::contract::Acquisition::Granted(_)).then_some(())
    })
    .await;
    tokio::time::timeout(Duration::from_mins(1), gates[0].store.close())
        .await
        .unwrap();
}
