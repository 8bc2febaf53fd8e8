//! A failover to a replica whose clock is wrong, and which has missed the last of what was granted.

use latchgate::{
    lifecycle::Lifecycle,
    store::{Store, contract::Acquisition, redis::RedisStore},
};

use super::{
    super::rig::{attempt, eventually, granted, open, patient, ttl},
    watched::Watched,
};
use crate::support::Clock;

/// By how many seconds.
const WRONG: i64 = 60;

/// Acquires and releases, whoever is the master, and answers the fence.
async fn turn(store: &RedisStore) -> u64 {
    eventually("it is granted", async || {
        let asked = attempt("turn");
        let granted = store.acquire(&asked).await.ok()?;
        let Acquisition::Granted(lease) = granted else {
            // Of an attempt before this one nobody knows whether it was released.
            drop(store.break_lock(&asked.name, None).await);
            return None;
        };
        store.release(&asked.name, &asked.token).await.ok()?;
        Some(lease.fence.get())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_rise_for_gateways_that_go_on_and_long_leases_are_kept() {
    for ahead in [-WRONG, WRONG] {
        let mut watched = Watched::start_with_replicas_on(&Clock::ahead(ahead)).await;
        let lifecycle = Lifecycle::new();
        let store = open(&watched.url(), &patient(), &lifecycle);
        let mut held = attempt("held");
        held.ttl = ttl(600_000);
        granted(store.acquire(&held).await);
        turn(&store).await;
        // `WAIT` would speak of what its own connection has written.
        for replica in &watched.servers[1..] {
            eventually("the replica has it", async || {
                let there = replica.integer(&["EXISTS", "lg:{held}:lock"]).await;
                (there == 1).then_some(())
            })
            .await;
        }
        watched.cut_off_replicas(0).await;
        // Of this no replica hears.
        let forgotten = attempt("forgotten");
        let missed = granted(store.acquire(&forgotten).await).fence.get();
        let last = turn(&store).await;
        watched.servers[0].kill();
        let master = watched.replaced(0).await;
        watched.join_replicas(0).await;
        let key = watched.servers[master]
            .text(&["GET", "lg:{forgotten}:lock"])
            .await;
        assert_eq!(key, "", "the fault happened: a grant was forgotten");

        let next = turn(&store).await;
        assert!(next > last, "{ahead}: {next} after {last}");
        let again = granted(store.acquire(&attempt("forgotten")).await);
        assert!(
            again.fence.get() > missed,
            "{ahead}: {} after {missed}",
            again.fence
        );
        let other = store.acquire(&attempt("held")).await;
        assert!(matches!(other, Ok(Acquisition::Held(_))), "{other:?}");
    }
}
