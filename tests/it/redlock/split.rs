//! Gateways that have split the nodes among themselves, so that none has a majority.

use crate::redlock::prelude::*;

/// How long the commands of a gateway are counted.
const WHILE: Duration = Duration::from_secs(1);

async fn waits(store: &impl Store) {
    store.must_queue(&waiting(attempt("lock"))).await;
}

/// How many scripts a node has run.
async fn scripts(node: &RedisServer) -> u64 {
    let stats = node.text(&["INFO", "commandstats"]).await;
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1);
    let calls = calls.and_then(|it| it.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn those_who_do_not_answer_are_not_waited_for_where_the_others_are_split() {
    let rig = Rig::start(5).await;
    rig.turn("lock").await;
    for node in [0, 3] {
        rig.server(node).freeze();
    }
    let theirs = ["SET", "lg:{lock}:lock", "theirs"];
    rig.server(1).run(&theirs).await;
    let start = Instant::now();
    rig.store.must_refuse(&attempt("lock")).await;
    // The gateway has tried nine times, and must not have waited for the time-out of a node each time.
    let took = start.elapsed();
    assert!(took < 9 * quick().node_timeout_ms.duration(), "{took:?}");
    for node in [0, 3] {
        rig.server(node).thaw();
    }
}

#[tokio::test]
async fn whoever_has_split_the_nodes_is_not_woken_to_split_them_again() {
    let rig = Rig::start(3).await;
    rig.grant_everywhere("lock").await;
    for server in &rig.nodes.servers {
        // As if other gateways were always in their first round.
        server.run(&["HSET", "lg:{lock}:info", "fence", "1"]).await;
    }
    waits(&rig.store).await;
    let before = scripts(rig.server(2)).await;
    let start = Instant::now();
    while start.elapsed() < WHILE {
        let free = ["PUBLISH", "lg:gw:all", "free lock"];
        rig.server(0).run(&free).await;
        sleep(Duration::from_millis(2)).await;
    }
    // One try in 64 ms, except for the first few.
    let tries = scripts(rig.server(2)).await - before;
    assert!((4..60).contains(&tries), "{tries} tries");
}

#[tokio::test]
async fn a_try_that_comes_to_nothing_wakes_nobody() {
    let rig = Rig::start(5).await;
    rig.grant_everywhere("lock").await;
    for node in [3, 4] {
        let lost = ["DEL", "lg:{lock}:lock", "lg:{lock}:info"];
        rig.server(node).run(&lost).await;
    }
    let lifecycle = Lifecycle::new();
    let other = rig.nodes.open(&lifecycle);
    waits(&rig.store).await;
    waits(&other).await;
    let before = scripts(rig.server(3)).await;
    let start = Instant::now();
    while start.elapsed() < WHILE {
        // As if another gateway had just been refused at these nodes because of such a try.
        for node in [3, 4] {
            let wanted = ["SET", "lg:{lock}:wanted", "1", "PX", "5000"];
            rig.server(node).run(&wanted).await;
        }
        sleep(Duration::from_millis(2)).await;
    }
    // Each waiter looks twice a second, and withdraws its reservations at these nodes.
    let calls = scripts(rig.server(3)).await - before;
    assert!(calls < 30, "{calls} calls");
}
