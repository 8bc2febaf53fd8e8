//! Waiters are served in the order of the queue, whichever gateways they asked, also after foreign locks, whose end no
//! message tells.

use crate::redis::prelude::*;

#[tokio::test]
async fn nobody_passes_those_who_wait() {
    let (server, gate, lease) = gateway_holding("barge").await;
    let waiting = gate.queue(request("barge")).await;
    // The lock becomes free without a script: the next attempt finds a queue.
    server.run(&["DEL", "lg:{barge}:lock"]).await;
    let hasty = at_once(request("barge"));
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
async fn who_asks_later_stands_behind_although_the_clock_has_stepped_back() {
    let (server, gate, lease) = gateway_holding("clock").await;
    let first = gate.queue(request("clock")).await;
    // This waiter entered the queue when the clock was an hour ahead.
    let ticket = server.text(&["LINDEX", "lg:{clock}:wait", "0"]).await;
    let key = format!("lg:{{clock}}:of:{ticket}");
    for at in ["25", "41"] {
        let end: usize = at.parse::<usize>().unwrap() + 15;
        let us = server.text(&["GETRANGE", &key, at, &end.to_string()]).await;
        let later = us.parse::<u64>().unwrap() + 3_600_000_000;
        let later = ["SETRANGE", &key, at, &later.to_string()];
        server.run(&later).await;
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
    let (server, gate, _) = gateway_holding("longest").await;
    let waits = [5, 50, 20].map(|seconds| {
        with(request("longest"), |it| {
            it.wait = Duration::from_secs(seconds);
        })
    });
    let mut asked = Vec::new();
    for asks in waits {
        asked.push(gate.queue(asks).await);
    }
    // Longer than any wait. A gateway sets this TTL again once an hour, for the first time in its first round.
    let key = "lg:{longest}:wait";
    server.run(&["PEXPIRE", key, "60000"]).await;
    let another = TestGateway::on(&server).await;
    asked.push(another.queue(request("longest")).await);
    until("a round is made", async || {
        let left = server.integer(&["PTTL", key]).await;
        left > 60_000
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_was_deleted_by_hand_leaves_nothing_to_the_next() {
    let (server, gate) = gateway().await;
    let first = with(request_by("traces", "first"), |it| it.wait = Duration::ZERO);
    gate.ask(first).lease().await;
    let asked = gate.queue(request("traces")).await;
    server.run(&["DEL", "lg:{traces}:lock"]).await;
    asked.lease().await;
    let Some(Holder::Lease(held)) = gate.look("traces").await.holder else {
        panic!("it is held");
    };
    assert_eq!(held.said.owner, None);
}

#[tokio::test]
async fn a_foreign_release_is_noticed_within_a_period() {
    let (server, gate) = gateway().await;
    let set = ["SET", "lg:{theirs}:lock", "x", "NX", "PX", "60000"];
    server.run(&set).await;
    let asked = gate.queue(request("theirs")).await;
    let start = Instant::now();
    server.run(&["DEL", "lg:{theirs}:lock"]).await;
    asked.noticed_since(start).await;
}

#[tokio::test]
async fn a_foreign_holder_without_an_expiry_is_waited_for() {
    let (server, gate) = gateway().await;
    server.run(&["SET", "lg:{ever}:lock", "x"]).await;
    let asked = gate.queue(request("ever")).await;
    // The foreign client takes the lock again for a moment, without respect for the queue.
    let again = ["SET", "lg:{ever}:lock", "y", "PX", "500"];
    server.run(&again).await;
    let start = Instant::now();
    asked.noticed_since(start).await;
}

#[tokio::test]
async fn a_foreign_holder_is_waited_for_until_its_lock_expires() {
    const LASTS: Duration = Duration::from_millis(600);
    let (server, gate) = gateway().await;
    let mut late = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let set = ["SET", "lg:{soon}:lock", "x", "PX", "600"];
        server.run(&set).await;
        let (at, lease) = gate.ask(request("soon")).granted().await;
        let waited = at - start;
        assert!(waited >= LASTS, "{waited:?}");
        late.push(waited.saturating_sub(LASTS));
        gate.release(&lease).await;
    }
    assert_most_precede_rounds(late);
}
