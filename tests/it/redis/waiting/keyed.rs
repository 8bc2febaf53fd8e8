//! Those with an idempotency key keep their place while they come back for it.

use std::time::Duration;

use bb8_redis::redis::{Value, from_redis_value};
use latchgate::{
    engine::{AcquireError, AcquireRequest},
    store::{
        Store,
        contract::{Acquisition, Attempt, Leaving},
        parking::News,
    },
};
use tokio::time::Instant;

use super::{
    super::{
        leases::keyed as keyed_attempt,
        rig::{attempt, eventually, ttl, write_down_everything},
    },
    gate::{GRACE, TestGateway, keep, keyed, leftovers, request, waiting},
};
use crate::support::{Fault, Proxy, RedisServer};

fn brief(wait_ms: u64, request: AcquireRequest) -> AcquireRequest {
    AcquireRequest {
        wait: Duration::from_millis(wait_ms),
        ..request
    }
}

/// Waits until so many places are kept for callers that are away: their tickets name no gateway.
async fn until_detached(server: &RedisServer, lock: &str, count: usize) {
    eventually("so many are away", async || {
        let queue = format!("lg:{{{lock}}}:wait");
        let ids: Vec<String> =
            from_redis_value(server.run(&["LRANGE", &queue, "0", "-1"]).await).unwrap();
        let mut away = 0;
        for id in ids {
            let gateway = ["GETRANGE", &format!("lg:{{{lock}}}:of:{id}"), "1", "16"];
            away += usize::from(server.text(&gateway).await.trim().is_empty());
        }
        (away == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_repeated_takes_over_the_place_and_the_older_one_is_told() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let lease = here.take("place").await;
    let mut asked = here.queue(keyed("place", "k")).await;
    let behind = there.queue(request("place")).await;
    // At the same gateway, at another, and back.
    for gate in [&here, &there, &there, &here] {
        let newer = gate.ask(keyed("place", "k"));
        let told = asked.refusal().await;
        assert!(matches!(told, AcquireError::Superseded), "{told:?}");
        assert_eq!(gate.look("place").await.waiters, 2);
        asked = newer;
    }
    here.release(&lease).await;
    let lease = asked.lease().await;
    here.release(&lease).await;
    behind.lease().await;
}

#[tokio::test]
async fn short_polls_stay_in_order() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let lease = here.take("polls").await;
    let poll = || brief(100, keyed("polls", "k"));
    for gate in [&here, &there, &there] {
        let refused = gate.ask(poll()).refusal().await;
        assert!(matches!(refused, AcquireError::Held { .. }), "{refused:?}");
        assert_eq!(gate.look("polls").await.waiters, 1, "its place is kept");
    }
    let behind = here.queue(request("polls")).await;
    let again = there.ask(keyed("polls", "k"));
    until_detached(&server, "polls", 0).await;
    here.release(&lease).await;
    let lease = again.lease().await;
    here.release(&lease).await;
    behind.lease().await;
}

#[tokio::test]
async fn a_request_in_other_words_does_not_take_over_the_place() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("words").await;
    let asked = gate.queue(keyed("words", "k")).await;
    let mut other = keyed("words", "k");
    other.explicit.ttl = Some(ttl(20_000));
    let refused = gate.ask(other).refusal().await;
    assert!(
        matches!(refused, AcquireError::IdempotencyMismatch),
        "{refused:?}"
    );
    gate.release(&lease).await;
    asked.lease().await;
}

#[tokio::test]
async fn what_was_granted_while_nobody_waited_is_answered_with_its_full_ttl() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let lease = here.take("detached").await;
    here.ask(brief(50, keyed("detached", "k"))).refusal().await;
    here.release(&lease).await;
    let left = server.integer(&["PTTL", "lg:{detached}:lock"]).await;
    assert!(left > 0 && left <= 1_500, "granted for the grace: {left}");
    let lease = there.ask(keyed("detached", "k")).lease().await;
    assert!(lease.held.expires_in > Duration::from_secs(29));
    let left = server.integer(&["PTTL", "lg:{detached}:lock"]).await;
    assert!(left > 29_000, "{left}");
    // It is a lease like any other: asked for again, released, and its key is used.
    let again = here.ask(keyed("detached", "k")).lease().await;
    assert_eq!(again.token.hash(), lease.token.hash());
    there.release(&lease).await;
    let used = here.ask(keyed("detached", "k")).refusal().await;
    assert!(matches!(used, AcquireError::IdempotencyExpired), "{used:?}");
}

#[tokio::test]
async fn what_somebody_came_back_for_is_released_although_no_answer_arrived() {
    let server = RedisServer::start().await;
    let here = TestGateway::on(&server).await;
    let proxy = Proxy::start(server.port(), &here.lifecycle).await;
    let there = TestGateway::at(&proxy.url());
    // From then on it grants locks.
    there.take("warm").await;
    let mut asked = brief(50, keyed("lost", "k"));
    // Longer than the test waits for it.
    asked.ttl = ttl(600_000);
    let lease = here.take("lost").await;
    here.ask(asked.clone()).refusal().await;
    here.release(&lease).await;
    // The answer to the first copy does not reach the gateway, and that to the second not the caller.
    proxy.strike("lg:{lost}:lock", Fault::CutReply);
    let again = there.engine.acquire(asked).await;
    assert_eq!(proxy.strikes(), 1);
    drop(again.expect("it is answered the lease"));
    eventually("it is free", async || {
        here.look("lost").await.holder.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_nobody_comes_back_for_is_passed_on_after_the_grace() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("grace").await;
    gate.ask(brief(50, keyed("grace", "k"))).refusal().await;
    let behind = gate.queue(request("grace")).await;
    let start = Instant::now();
    gate.release(&lease).await;
    let (at, outcome) = behind.outcome().await;
    let lease = keep(outcome);
    let delay = at - start;
    assert!(delay < 10 * (GRACE + Duration::from_secs(1)), "{delay:?}");
    // Nobody has heard of that grant, so the key is not used.
    let late = gate.queue(keyed("grace", "k")).await;
    gate.release(&lease).await;
    let lease = late.lease().await;
    gate.release(&lease).await;
    assert_eq!(leftovers(&server, "grace").await, [""; 0]);
}

#[tokio::test]
async fn a_place_that_nobody_comes_back_for_is_gone_after_the_grace() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("unkept").await;
    gate.ask(brief(50, keyed("unkept", "k"))).refusal().await;
    let behind = gate.queue(request("unkept")).await;
    tokio::time::sleep(GRACE).await;
    gate.release(&lease).await;
    // Else the place that is kept would be granted the lock, and its grace would begin then.
    let state = ["GETRANGE", "lg:{unkept}:lock", "65", "65"];
    assert_ne!(server.text(&state).await, "k");
    behind.lease().await;
}

#[tokio::test]
async fn a_place_that_a_dead_gateway_kept_is_shown_no_longer_than_the_grace() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let _lease = here.take("shown").await;
    there.ask(brief(50, keyed("shown", "k"))).refusal().await;
    there.kill().await;
    let _behind = here.queue(request("shown")).await;
    let shown = here.look("shown").await;
    assert_eq!((shown.queue.len(), shown.waiters), (2, 2));
    here.until_queued("shown", 1).await;
    assert_eq!(here.look("shown").await.queue.len(), 1);
    let standing = server.integer(&["LLEN", "lg:{shown}:wait"]).await;
    assert_eq!(standing, 2, "nobody has taken it out");
}

#[tokio::test]
async fn a_caller_that_hangs_up_keeps_its_place_for_the_grace() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let lease = here.take("hangs").await;
    let asked = here.queue(keyed("hangs", "k")).await;
    let behind = here.queue(request("hangs")).await;
    drop(asked);
    until_detached(&server, "hangs", 1).await;
    let again = there.ask(keyed("hangs", "k"));
    until_detached(&server, "hangs", 0).await;
    here.release(&lease).await;
    let lease = again.lease().await;
    there.release(&lease).await;
    behind.lease().await;
}

#[tokio::test]
async fn an_attempt_whose_place_was_taken_over_does_not_come_back_for_it() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let lease = here.take("back").await;
    let older = waiting(keyed_attempt("back", "k"));
    let newer = waiting(keyed_attempt("back", "k"));
    let park = |gate: &TestGateway, attempt: &Attempt| {
        let parking = gate.store.parking();
        parking.park(attempt.name.clone(), attempt.token)
    };
    let mut told = park(&here, &older);
    here.store.acquire(&older).await.unwrap();
    let mut stands = park(&there, &newer);
    there.store.acquire(&newer).await.unwrap();
    assert_eq!(told.news().await, News::Superseded);
    // Its gateway asks again for it: the message was lost, or the queue seemed to be.
    drop(told);
    let _place = park(&here, &older);
    let answer = here.store.acquire(&older).await.unwrap();
    assert_eq!(answer, Acquisition::Superseded);
    let left = here.store.leave(&older.name, &older.token, Some(GRACE));
    assert_eq!(left.await.unwrap(), Leaving::Superseded);
    here.release(&lease).await;
    assert_eq!(stands.news().await, News::GrantedProvisionally);
}

#[tokio::test]
async fn a_grant_that_comes_while_its_attempt_leaves_has_its_full_ttl() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let lease = here.take("leaves").await;
    let asked = waiting(attempt("leaves"));
    let parking = there.store.parking();
    let _place = parking.park(asked.name.clone(), asked.token);
    there.store.acquire(&asked).await.unwrap();
    here.release(&lease).await;
    let left = there.store.leave(&asked.name, &asked.token, None).await;
    let Ok(Leaving::Granted(lease)) = left else {
        panic!("{left:?}");
    };
    assert!(lease.expires_in > Duration::from_secs(29));
    let left = server.integer(&["PTTL", "lg:{leaves}:lock"]).await;
    assert!(left > 29_000, "{left}");
}

#[tokio::test]
async fn who_leaves_a_lock_that_is_free_gets_it_in_the_last_moment() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    gate.take("last").await;
    let asked = waiting(keyed_attempt("last", "k"));
    let parking = gate.store.parking();
    let _place = parking.park(asked.name.clone(), asked.token);
    gate.store.acquire(&asked).await.unwrap();
    server.run(&["DEL", "lg:{last}:lock"]).await;
    let left = gate.store.leave(&asked.name, &asked.token, Some(GRACE));
    let left = left.await.unwrap();
    assert!(matches!(left, Leaving::Granted(_)), "{left:?}");
}

/// An attempt of the store alone under a key, which was granted the lock through another gateway and has not heard
/// of it; the grant is over, somebody else has the lock, and a newer request stands in the queue.
async fn one_that_was_overtaken(
    gates: &[TestGateway; 2],
    server: &RedisServer,
    lock: &str,
) -> Attempt {
    let lease = gates[0].take(lock).await;
    let older = waiting(keyed_attempt(lock, "k"));
    gates[1].store.acquire(&older).await.unwrap();
    gates[0].release(&lease).await;
    let key = format!("lg:{{{lock}}}:lock");
    server.run(&["SET", &key, "theirs"]).await;
    older
}

/// A newer request is queued, the older attempt does something, and a third request under the key takes over the
/// place of the newer one.
async fn none_stands_beside(gate: &TestGateway, lock: &str, ends: impl Future<Output = ()>) {
    let newer = waiting(keyed_attempt(lock, "k"));
    let queued = gate.store.acquire(&newer).await.unwrap();
    assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
    ends.await;
    let newest = waiting(keyed_attempt(lock, "k"));
    let queued = gate.store.acquire(&newest).await.unwrap();
    assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
    assert_eq!(gate.look(lock).await.waiters, 1);
}

#[tokio::test]
async fn an_older_attempt_that_leaves_late_does_not_free_the_key_of_a_newer_one() {
    let server = RedisServer::start().await;
    let gates = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    for keep in [None, Some(GRACE)] {
        let lock = if keep.is_some() { "keeps" } else { "leaves" };
        let older = one_that_was_overtaken(&gates, &server, lock).await;
        none_stands_beside(&gates[0], lock, async {
            let left = gates[1].store.leave(&older.name, &older.token, keep).await;
            assert!(
                matches!(left, Ok(Leaving::Left(_) | Leaving::Superseded)),
                "{left:?}"
            );
        })
        .await;
    }
}

#[tokio::test]
async fn an_older_attempt_that_is_given_back_late_does_not_free_the_key_of_a_newer_one() {
    let server = RedisServer::start().await;
    let gates = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let older = one_that_was_overtaken(&gates, &server, "gives").await;
    none_stands_beside(&gates[0], "gives", async {
        let back = gates[1].store.give_back(&older.name, &older.token).await;
        back.unwrap();
    })
    .await;
}

/// Whether the server has run the script that gives up the place of an attempt: the only one of one key that is given
/// its id.
async fn has_lapsed(server: &RedisServer, id: &str) -> bool {
    let Value::Array(log) = server.run(&["SLOWLOG", "GET", "-1"]).await else {
        panic!("the log is a list");
    };
    let [one, id] = ["1", id].map(|word| Value::BulkString(word.into()));
    log.iter().any(|entry| match entry {
        // Number, time, duration, and the command: EVALSHA, hash, number of keys, ..
        Value::Array(entry) => matches!(&entry[3], Value::Array(words)
            if words.get(2) == Some(&one) && words.contains(&id)),
        _ => panic!("an entry is a list"),
    })
}

#[tokio::test]
async fn a_kept_place_that_lapses_late_does_not_free_the_key_of_a_newer_one() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    write_down_everything(&server).await;
    let lease = gate.take("lapses").await;
    gate.ask(brief(50, keyed("lapses", "k"))).refusal().await;
    let older = server.text(&["LINDEX", "lg:{lapses}:wait", "0"]).await;
    gate.release(&lease).await;
    // What was granted to nobody ended, and somebody else has the lock.
    server.run(&["SET", "lg:{lapses}:lock", "theirs"]).await;
    let newer = gate.queue(keyed("lapses", "k")).await;
    eventually("the older place lapses", async || {
        has_lapsed(&server, &older).await.then_some(())
    })
    .await;
    let newest = gate.ask(keyed("lapses", "k"));
    let told = newer.refusal().await;
    assert!(matches!(told, AcquireError::Superseded), "{told:?}");
    assert_eq!(gate.look("lapses").await.waiters, 1);
    drop(newest);
}

#[tokio::test]
async fn a_ticket_whose_key_leads_elsewhere_is_granted_nothing() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("elsewhere").await;
    let older = gate.queue(keyed("elsewhere", "k")).await;
    let behind = gate.queue(request("elsewhere")).await;
    let keys = server.keys().await;
    let key = keys.iter().find(|key| key.contains(":key:")).unwrap();
    let newer = format!("q2{}", "0".repeat(64));
    server.run(&["SET", key, &newer, "PX", "60000"]).await;
    gate.release(&lease).await;
    gate.release(&behind.lease().await).await;
    let told = older.refusal().await;
    assert!(matches!(told, AcquireError::Superseded), "{told:?}");
    assert_eq!(server.text(&["GET", key]).await, newer);
}

#[tokio::test]
async fn an_older_attempt_that_asks_again_late_does_not_take_the_lease_of_a_newer_one() {
    let server = RedisServer::start().await;
    let gates = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let lease = gates[0].take("late").await;
    let older = waiting(keyed_attempt("late", "k"));
    // It is there, and does not get to confirm what it is granted.
    let parking = gates[1].store.parking();
    let _place = parking.park(older.name.clone(), older.token);
    gates[1].store.acquire(&older).await.unwrap();
    gates[0].release(&lease).await;
    server.run(&["DEL", "lg:{late}:lock"]).await;
    let newer = waiting(keyed_attempt("late", "k"));
    let granted = gates[0].store.acquire(&newer).await.unwrap();
    assert!(matches!(granted, Acquisition::Granted(_)), "{granted:?}");
    let late = gates[1].store.acquire(&older).await.unwrap();
    assert!(matches!(late, Acquisition::Superseded), "{late:?}");
}
