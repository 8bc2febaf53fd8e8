//! Nodes that fail all the time, a minority of them at once: nobody is inside together, fences rise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use latchgate::store::{
    Store,
    contract::{Acquisition, Attempt},
};
use tokio::{task::JoinSet, time::sleep};

use super::rig::{Rig, attempt, ttl};
use crate::support::{Random, full};

/// What is seen without asking anybody.
#[derive(Default)]
pub(super) struct Seen {
    inside: AtomicBool,
    fence: AtomicU64,
    pub(super) visits: AtomicU64,
    pub(super) over: AtomicBool,
}

/// Takes the lock in turns until it is over. What is not known is left to the TTL.
pub(super) async fn client(store: Arc<impl Store>, seen: Arc<Seen>) {
    while !seen.over.load(Ordering::SeqCst) {
        let asked = Attempt {
            ttl: ttl(20_000),
            ..attempt("lock")
        };
        let Ok(Acquisition::Granted(lease)) = store.acquire(&asked).await else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        assert!(!seen.inside.swap(true, Ordering::SeqCst), "two are inside");
        let before = seen.fence.swap(lease.fence.get(), Ordering::SeqCst);
        assert!(before < lease.fence.get(), "{} after {before}", lease.fence);
        seen.visits.fetch_add(1, Ordering::SeqCst);
        seen.inside.store(false, Ordering::SeqCst);
        while store.release(&asked.name, &asked.token).await.is_err() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_fails_all_the_time_costs_nothing_but_time() {
    let mut random = Random::seeded();
    let mut rig = Rig::start(5).await;
    let store = Arc::new(rig.nodes.open(&rig.lifecycle));
    let seen = Arc::new(Seen::default());
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        clients.spawn(client(Arc::clone(&store), Arc::clone(&seen)));
    }
    let rounds = if full() { 60 } else { 8 };
    for _ in 0..rounds {
        let before = seen.visits.load(Ordering::SeqCst);
        let first = random.below(5);
        let second = (first + 1 + random.below(4)) % 5;
        rig.server(first).freeze();
        // What it has answered it knows when it is back.
        rig.server_mut(second).kill();
        sleep(Duration::from_millis(random.next() % 300)).await;
        rig.server_mut(second).start_again().await;
        rig.server(first).thaw();
        super::rig::eventually("there are grants", async || {
            (seen.visits.load(Ordering::SeqCst) > before + 3).then_some(())
        })
        .await;
    }
    seen.over.store(true, Ordering::SeqCst);
    while let Some(client) = clients.join_next().await {
        client.unwrap_or_else(|error| panic!("{error}, {}", random.how_to_repeat()));
    }
    rig.nothing_left(&attempt("lock").name).await;
}
