//! A server of a cluster is away without a replacement: the other servers go on serving.

use std::pin::pin;

use futures_util::FutureExt;
use tokio::time::sleep_until;

use crate::redis::prelude::*;

/// More callers than may wait for a server that is away, and more than the gateway has room for in all.
const CROWD: usize = 1_500;
/// How many commands may wait for a server that is away.
const WAITING: usize = 256;
/// How many locks of a server that is away have waiters: several times as many as the store hands on at once.
const STUCK: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_takes_no_room_from_the_others() {
    let mut cluster = Cluster::start(3, false, NEVER).await;
    let store = Arc::new(open(&cluster.url()));
    let held = store.must_hold(attempt(&cluster.names_on(1, 1)[0])).await;
    granted(store.acquire(&attempt(&cluster.names_on(0, 1)[0])).await);
    let lost = format!("127.0.0.1:{}", cluster.servers[0].port());
    cluster.servers[0].kill();
    until_away(&store, &lost).await;

    let mut crowd = JoinSet::new();
    let gone = cluster.names_on(0, 50);
    for n in 0..CROWD {
        let (store, asked) = (Arc::clone(&store), attempt(&gone[n % gone.len()]));
        crowd.spawn(async move { store.acquire(&asked).await });
    }
    let begun = Instant::now();
    for name in cluster
        .names_on(1, 20)
        .iter()
        .chain(&cluster.names_on(2, 20))
    {
        if *name != held.name.as_str() {
            granted(store.acquire(&attempt(name)).await);
        }
        store.must_renew(&held, None).await;
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    while let Some(outcome) = crowd.join_next().await {
        let outcome = outcome.unwrap();
        let Err(StoreError::Unavailable(why)) = outcome else {
            panic!("{outcome:?}");
        };
        let expected = matches!(&why, Unavailability::Connect(why) if why.contains(&lost))
            || matches!(why, Unavailability::Overloaded);
        assert!(expected, "{why:?}");
    }
    // Readiness names the server.
    let Some(Health::Outage(why)) = health(&store, "connection").await else {
        panic!("one of them is away");
    };
    assert!(why.contains(&lost), "{why}");
    assert_eq!(health(&store, "permissions").await, Some(Health::Passing));

    cluster.servers[0].start_again().await;
    let back = Instant::now();
    until_answered(&*store, &gone[1]).await;
    assert!(back.elapsed() < Duration::from_mins(1));
}

#[tokio::test]
async fn few_wait_for_a_server_that_was_never_reached_and_none_of_them_in_the_place_of_a_holder() {
    let mut cluster = Cluster::start(3, false, NEVER).await;
    let lost = format!("127.0.0.1:{}", cluster.servers[0].port());
    cluster.servers[0].kill();
    let store = open(&cluster.url());
    until_away(&store, &lost).await;
    let gone = cluster.names_on(0, 1).remove(0);
    let asked: Vec<_> = (0..WAITING + 50).map(|_| attempt(&gone)).collect();
    let mut waiting = Vec::new();
    for (n, asked) in asked.iter().enumerate() {
        let mut acquire = Box::pin(store.acquire(asked));
        match acquire.as_mut().now_or_never() {
            None => waiting.push(acquire),
            Some(Err(StoreError::Unavailable(Unavailability::Connect(why)))) => {
                assert!(n >= WAITING && why.contains(&lost), "{n}: {why}");
            }
            Some(other) => panic!("{n}: {other:?}"),
        }
    }
    assert_eq!(waiting.len(), WAITING, "the others were told so at once");
    // Renewals and releases have room of their own in which they wait for the server.
    let holder = &asked[0];
    let renewal = pin!(store.renew(&holder.name, &holder.token, None));
    assert!(renewal.now_or_never().is_none());
    let release = pin!(store.release(&holder.name, &holder.token));
    assert!(release.now_or_never().is_none());
    granted(store.acquire(&attempt(&cluster.names_on(1, 1)[0])).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_are_kept_back_until_a_replica_of_their_own_master_has_them() {
    let cluster = Cluster::start(3, true, NEVER).await;
    let config = waits_for(1, 3_000);
    let store = open_with(&cluster.url(), &config);
    for server in 0..3 {
        for name in cluster.names_on(server, 3) {
            granted(store.acquire(&attempt(&name)).await);
        }
    }
    // The replica of the first server is cut off.
    cluster.servers[3].freeze();
    until("the replica is gone", async || {
        let kill = ["CLIENT", "KILL", "TYPE", "replica"];
        cluster.servers[0].run(&kill).await;
        let online = cluster.servers[0].text(&["INFO", "replication"]).await;
        online.contains("connected_slaves:0")
    })
    .await;
    let names = cluster.names_on(0, 5);
    let refused = store.acquire(&attempt(&names[4])).await;
    let Err(StoreError::Unavailable(Unavailability::TooFewReplicas { .. })) = refused else {
        panic!("{refused:?}");
    };
    granted(store.acquire(&attempt(&cluster.names_on(1, 5)[4])).await);
    cluster.servers[3].thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_paused_delays_no_hand_off_of_the_others() {
    let cluster = Cluster::start(3, false, NEVER).await;
    let gate = TestGateway::with(&cluster.url(), &RedisConfig::default());
    let lasts = Duration::from_secs(8);
    let stuck = cluster.names_on(0, STUCK);
    for lock in &stuck {
        gate.take_for(lock, 8_000).await;
    }
    let over = Instant::now() + lasts;
    let crowd: Vec<_> = stuck.iter().map(|lock| gate.ask(request(lock))).collect();
    for lock in &stuck {
        gate.until_queued(lock, 1).await;
    }
    cluster.servers[0].freeze();
    sleep_until(over + Duration::from_millis(100)).await;

    // Many leases of that server have ended and cannot be handed over.
    let mut asked = Vec::new();
    for lock in &cluster.names_on(1, 5) {
        gate.take_for(lock, 1_000).await;
        let ends = Instant::now() + Duration::from_secs(1);
        asked.push((ends, gate.ask(request(lock))));
    }
    let mut late = Vec::new();
    for (ends, asked) in asked {
        let (at, _) = asked.granted().await;
        late.push(at.saturating_duration_since(ends));
    }
    cluster.servers[0].thaw();
    drop(crowd);
    assert_most_precede_rounds(late);
}
