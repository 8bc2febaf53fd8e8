//! Those who wait are served in the order in which they asked, through whichever gateway.

use std::time::Duration;

use latchgate::{
    engine::AcquireError,
    store::contract::{Contention, Holder},
};
use tokio::time::Instant;

use super::{
    super::rig::eventually,
    gate::{TestGateway, leftovers, request, request_by},
};
use crate::support::RedisServer;

/// Ten times what is stated, for a machine that is busy with something else. How much sooner it is than a round,
/// `short.rs` shows.
const NOTICED: Duration = Duration::from_secs(10);

#[tokio::test]
async fn waiters_of_two_gateways_are_served_in_the_order_in_which_they_asked() {
    let server = RedisServer::start().await;
    let gates = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let mut lease = gates[0].take("fifo").await;
    let mut queue = Vec::new();
    for turn in 0..12 {
        // Now and then two in a row through the same gateway.
        let gate = &gates[usize::from(turn % 3 == 0)];
        queue.push((
            gate,
            gate.queue(request_by("fifo", &turn.to_string())).await,
        ));
    }
    let seen = gates[1].look("fifo").await;
    let owners: Vec<_> = seen.queue.iter().map(|seen| seen.owner.clone()).collect();
    for (turn, (gate, asked)) in queue.into_iter().enumerate() {
        // Whoever releases does so through the other gateway.
        gates[turn % 2].release(&lease).await;
        let next = asked.lease().await;
        assert_eq!(next.held.owner, owners[turn]);
        assert!(next.held.fence > lease.held.fence);
        assert!(next.waited > Duration::ZERO);
        let seen = gate.look("fifo").await;
        assert_eq!(seen.waiters, 11 - turn as u64);
        let Some(Holder::Lease(held)) = seen.holder else {
            panic!("it is held");
        };
        assert_eq!(held.fence, next.held.fence);
        assert!(held.expires_in > Duration::from_secs(25), "its full TTL");
        lease = next;
    }
    gates[0].release(&lease).await;
    assert_eq!(leftovers(&server, "fifo").await, [""; 0]);
}

#[tokio::test]
async fn nobody_passes_those_who_wait() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("barge").await;
    let waiting = gate.queue(request("barge")).await;
    // The lock falls free without a script: whoever comes first finds a queue.
    server.run(&["DEL", "lg:{barge}:lock"]).await;
    let mut hasty = request("barge");
    hasty.wait = Duration::ZERO;
    let refused = gate.ask(hasty).refusal().await;
    let AcquireError::Held {
        contention: Contention { holder, waiters },
        ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    let granted = waiting.lease().await;
    assert!(granted.held.fence > lease.held.fence);
    match holder {
        Some(Holder::Lease(held)) => assert_eq!(held.fence, granted.held.fence),
        other => panic!("{other:?}"),
    }
    assert_eq!(waiters, 0);
}

#[tokio::test]
async fn a_lock_passes_on_when_its_lease_ends() {
    let server = RedisServer::start().await;
    let [first, second] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let start = Instant::now();
    first.take_for("ends", 700).await;
    let mut brief = request("ends");
    brief.ttl = super::super::rig::ttl(500);
    let a = second.ask(brief);
    second.until_queued("ends", 1).await;
    let b = first.queue(request("ends")).await;
    let (granted, outcome) = a.outcome().await;
    super::gate::keep(outcome);
    let waited = granted - start;
    assert!(waited >= Duration::from_millis(690), "{waited:?}");
    // The next holder does not release either, and another gateway looks after it.
    let (next, outcome) = b.outcome().await;
    super::gate::keep(outcome);
    for late in [
        waited.saturating_sub(Duration::from_millis(700)),
        (next - granted).saturating_sub(Duration::from_millis(500)),
    ] {
        assert!(late < NOTICED, "{late:?}");
    }
}

#[tokio::test]
async fn a_grant_at_the_same_gateway_comes_with_the_release_and_needs_no_message() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("reply").await;
    let asked = gate.queue(request("reply")).await;
    server.run(&["CONFIG", "RESETSTAT"]).await;
    gate.release(&lease).await;
    asked.lease().await;
    let stats = server.text(&["INFO", "commandstats"]).await;
    let line = |name: &str| {
        let name = format!("cmdstat_{name}:calls=");
        stats.lines().find_map(|line| line.strip_prefix(&name))
    };
    // One script, of which nothing is published.
    assert!(line("evalsha").unwrap().starts_with("1,"), "{stats}");
    assert_eq!(line("publish"), None);
}

#[tokio::test]
async fn a_wait_that_runs_out_leaves_the_queue() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    gate.take("out").await;
    let mut short = request("out");
    short.wait = Duration::from_millis(200);
    let refused = gate.ask(short).refusal().await;
    let AcquireError::Held {
        contention, waited, ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert!(waited >= Duration::from_millis(200));
    assert!(matches!(contention.holder, Some(Holder::Lease(_))));
    assert_eq!((contention.waiters, gate.look("out").await.waiters), (0, 0));
    let left = leftovers(&server, "out").await;
    assert_eq!(left, ["lg:{out}:lock"]);
}

#[tokio::test]
async fn who_asks_later_stands_behind_although_the_clock_has_stepped_back() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("clock").await;
    let first = gate.queue(request("clock")).await;
    // It was queued when the clock showed a time in an hour from now.
    let ticket = server.text(&["LINDEX", "lg:{clock}:wait", "0"]).await;
    let key = format!("lg:{{clock}}:of:{ticket}");
    for at in ["25", "41"] {
        let end: usize = at.parse::<usize>().unwrap() + 15;
        let us = server.text(&["GETRANGE", &key, at, &end.to_string()]).await;
        let later = us.parse::<u64>().unwrap() + 3_600_000_000;
        server
            .run(&["SETRANGE", &key, at, &later.to_string()])
            .await;
    }
    let second = gate.queue(request("clock")).await;
    let third = gate.queue(request("clock")).await;
    let mut lease = lease;
    for asked in [first, second, third] {
        gate.release(&lease).await;
        lease = asked.lease().await;
    }
}

#[tokio::test]
async fn a_queue_that_never_empties_is_kept_by_those_who_wait() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    gate.take("longest").await;
    let waits = [5, 50, 20].map(|seconds| {
        let mut asks = request("longest");
        asks.wait = Duration::from_secs(seconds);
        asks
    });
    let mut asked = Vec::new();
    for asks in waits {
        asked.push(gate.queue(asks).await);
    }
    // Longer than anybody waits, and a gateway gives it that again once an hour, for the first time in its first round.
    let key = "lg:{longest}:wait";
    server.run(&["PEXPIRE", key, "60000"]).await;
    let another = TestGateway::on(&server).await;
    asked.push(another.queue(request("longest")).await);
    eventually("a round is made", async || {
        let left = server.integer(&["PTTL", key]).await;
        (left > 60_000).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_was_deleted_by_hand_leaves_nothing_to_the_next() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let mut first = request_by("traces", "first");
    first.wait = Duration::ZERO;
    gate.ask(first).lease().await;
    let asked = gate.queue(request("traces")).await;
    server.run(&["DEL", "lg:{traces}:lock"]).await;
    asked.lease().await;
    let Some(Holder::Lease(held)) = gate.look("traces").await.holder else {
        panic!("it is held");
    };
    assert_eq!(held.owner, None);
}
