//! The cost of waiting, and behaviour at a server without free memory.

use crate::redis::{prelude::*, scripts::bounds::calls};

/// How many commands a hand-off takes, with those of its scripts: to a waiter of the same gateway, and to a waiter of
/// another gateway, which confirms it. In each, one script is sent twice, because the server did not know it.
const HAND_OFF: [u64; 2] = [10, 23];

/// The commands of a hand-off with this number of waiters, at one gateway and between two.
async fn cost_of_a_hand_off(waiters: usize) -> [BTreeMap<String, u64>; 2] {
    let (server, gates) = two_gateways().await;
    let lease = gates[0].take_for("cost", 600_000).await;
    let first = gates[0].queue(request_by("cost", "first")).await;
    let second = gates[1].queue(request_by("cost", "second")).await;
    let crowd = gates[1].crowd("cost", waiters).await;
    let mut costs = Vec::new();
    let mut lease = lease;
    for asked in [first, second] {
        // The confirmation is part of the hand-off. Commands of a round or an examination are not: then the measurement
        // is repeated.
        calls(&server).await;
        gates[0].release(&lease).await;
        lease = asked.lease().await;
        costs.push(calls(&server).await);
    }
    drop(crowd);
    [costs.remove(0), costs.remove(0)]
}

#[tokio::test]
async fn a_hand_off_costs_the_same_however_many_wait() {
    // A round during one measurement makes it differ from the next.
    until("two measurements agree", async || {
        let [few, many] = [
            cost_of_a_hand_off(10).await,
            cost_of_a_hand_off(1_000).await,
        ];
        let totals = few.each_ref().map(|few| few.values().sum::<u64>());
        let bounded = totals[0] <= HAND_OFF[0] && totals[1] <= HAND_OFF[1];
        few == many && bounded
    })
    .await;
}

#[tokio::test]
async fn nothing_is_sent_for_those_who_only_wait() {
    let (server, gate) = gateway().await;
    gate.take_for("idle", 600_000).await;
    let crowd = gate.crowd("idle", 1_000).await;
    calls(&server).await;
    // The pause between rounds depends on the machine: a failed round is repeated at once.
    let mut seen = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_mins(1);
    let rounds = loop {
        let rounds = seen.get("pexpire").copied().unwrap_or_default();
        // The history of locks sets an expiry, too, and is no round.
        if rounds >= 3 && seen.contains_key("getrange") {
            break rounds;
        }
        assert!(Instant::now() < deadline, "no rounds are made: {seen:?}");
        sleep(Duration::from_millis(20)).await;
        for (command, count) in calls(&server).await {
            *seen.entry(command).or_insert(0) += count;
        }
    };
    // A round marks the gateway as alive, and reads the key of the lock once and the tickets of some waiters. Other
    // commands may come in between: an examination, or the copy of a command with a late reply.
    for (command, most) in [
        ("getrange", (1 + 512) * (rounds + 1)),
        ("pttl", rounds + 1),
        ("evalsha", 10),
    ] {
        let count = seen.get(command).copied().unwrap_or_default();
        assert!(count <= most, "{command}: {seen:?}");
    }
    assert!(seen.contains_key("getrange"), "{seen:?}");
    drop(crowd);
}

#[tokio::test]
async fn positions_are_looked_up_for_a_bounded_number_of_streams() {
    const STREAMS: u64 = 600;
    let (server, gate, _) = gateway_holding("watched").await;
    let mut holds = Vec::new();
    for _ in 0..STREAMS {
        holds.push(gate.engine.hold(request("watched")).await.unwrap());
    }
    calls(&server).await;
    let start = Instant::now();
    sleep(Duration::from_secs(5)).await;
    let calls = calls(&server).await;
    let rounds = start.elapsed().as_secs() / 2 + 1;
    for command in ["lpos", "llen"] {
        let count = calls.get(command).copied().unwrap_or_default();
        assert!((1..=257 * rounds).contains(&count), "{command}: {calls:?}");
    }
    // The history asks once whether the holder lives, and is written once.
    assert!(calls.get("evalsha") <= Some(&2), "{calls:?}");
}

#[tokio::test]
async fn a_lock_is_passed_on_although_the_server_is_out_of_memory() {
    let (server, gates, lease) = two_gateways_holding("oom").await;
    let here = gates[0].queue(request("oom")).await;
    let there = gates[1].queue(request("oom")).await;
    let mut brief = request("oom");
    brief.terms.set_ttl(ttl(400));
    let brief = gates[0].queue(brief).await;
    let expired = gates[1].queue(request("oom")).await;
    let kept = waiting(keyed("oom", "k"));
    let _place = gates[0].stand(&kept).await;
    server.set("maxmemory", "1").await;

    let lease = gates[0].pass(&lease, here).await;
    let lease = gates[0].pass(&lease, there).await;
    assert!(lease.held.expires_in > Duration::from_secs(25), "confirmed");
    // The release of an undelivered lease hands the lock on like any release.
    let token = lease.token.hash();
    gates[1].give_back(&lease.name, &token, None).await.unwrap();
    brief.lease().await;
    let lease = expired.lease().await;
    // A position is kept, and the lock that it is granted is handed on at its end.
    let grace = Some(Duration::from_millis(300));
    gates[0].must_leave(&kept, grace).await;
    gates[1].release(&lease).await;
    until("the lock is free", async || {
        let seen = gates[0].look("oom").await;
        seen.holder.is_none() && seen.waiters == 0
    })
    .await;
    let refused = gates[0].ask(request("oom")).refusal().await;
    assert!(matches!(refused, AcquireError::Store(_)), "{refused:?}");
}

#[tokio::test]
async fn without_a_fence_nobody_is_granted_and_the_queue_stays() {
    let (server, gate, lease) = gateway_holding("spent").await;
    let asked = gate.queue(request("spent")).await;
    let key = fence_key(&name("spent"));
    let before = server.text(&["GET", &key]).await;
    let last = FencingToken::MAX.get().to_string();
    server.run(&["SET", &key, &last]).await;
    gate.release(&lease).await;
    let seen = gate.look("spent").await;
    assert_eq!((seen.holder, seen.waiters), (None, 1));
    let refused = gate.ask(request("spent")).refusal().await;
    assert!(matches!(refused, AcquireError::Store(_)), "{refused:?}");
    assert_eq!(gate.look("spent").await.waiters, 1);
    // When the value is restored, the waiter is granted the lock without a new request.
    server.run(&["SET", &key, &before]).await;
    asked.lease().await;
}

#[tokio::test]
async fn what_is_no_ticket_is_cleared_away_and_a_memory_stays() {
    let (server, gate, lease) = gateway_holding("odd").await;
    for (id, body) in [("junk", "junk"), ("bare", ""), ("over", "g")] {
        server.run(&["RPUSH", "lg:{odd}:wait", id]).await;
        let key = format!("lg:{{odd}}:of:{id}");
        server.run(&["SET", &key, body]).await;
    }
    server.run(&["RPUSH", "lg:{odd}:wait", "list"]).await;
    server.run(&["RPUSH", "lg:{odd}:of:list", "x"]).await;
    let asked = gate.queue(request("odd")).await;
    gate.pass(&lease, asked).await;
    assert_eq!(server.integer(&["EXISTS", "lg:{odd}:wait"]).await, 0);
    assert_eq!(server.text(&["GET", "lg:{odd}:of:over"]).await, "g");
}

#[tokio::test]
async fn a_confirmation_that_comes_too_late_finds_the_grant_passed_on() {
    let (server, gates, lease) = two_gateways_holding("slow").await;
    let asked = waiting(attempt("slow"));
    let mut parked = gates[1].stand(&asked).await;
    let behind = gates[0].queue(request("slow")).await;
    let start = Instant::now();
    gates[0].release(&lease).await;
    assert_eq!(parked.news().await, News::GrantedProvisionally);
    let lease = behind.lease().await;
    assert!(start.elapsed() < Duration::from_secs(30));
    gates[1].must_not_confirm(&asked, Confirmation::Lost).await;
    gates[0].release(&lease).await;
    assert_eq!(leftovers(&server, "slow").await, [""; 0]);
}
