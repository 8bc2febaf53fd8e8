//! A waiter that has lost its position in the queue is told so, also while other waiters remain in the queue.

use super::gate::keyed_request as keyed;
use crate::redis::prelude::*;

/// Removes the first id from the queue without a script. Its ticket stays, as after a grant that has ended.
async fn lose_first(server: &RedisServer, lock: &str) {
    let queue = format!("lg:{{{lock}}}:wait");
    let first = server.text(&["LPOP", &queue]).await;
    let ticket = format!("lg:{{{lock}}}:of:{first}");
    assert_eq!(server.integer(&["EXISTS", &ticket]).await, 1);
}

#[tokio::test]
async fn one_who_lost_its_place_unheard_is_queued_again() {
    let (server, [here, there], lease) = two_gateways_holding("unheard").await;
    let missing = there.queue(request("unheard")).await;
    let stays = here.queue(request("unheard")).await;
    // As after a grant that its gateway was not told about, and that ended before the gateway looked for it.
    lose_first(&server, "unheard").await;
    here.until_queued("unheard", 2).await;
    here.release(&lease).await;
    here.release(&stays.lease().await).await;
    missing.lease().await;
}

#[tokio::test]
async fn all_places_are_looked_up_at_once_when_messages_may_have_been_missed() {
    let (server, [here, there]) = two_gateways().await;
    here.take_for("many", 600_000).await;
    // More waiters than may ask at once, and than two rounds look up.
    let crowd = there.crowd("many", 1_100).await;
    let _stays = here.queue(request("many")).await;
    server.run(&["LTRIM", "lg:{many}:wait", "1100", "-1"]).await;
    assert_eq!(server.integer(&["LLEN", "lg:{many}:wait"]).await, 1);
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    there.until_queued("many", 1_101).await;
    drop(crowd);
}

/// Removes an id from the queue without a script, and replaces the first byte of its ticket.
async fn lose(server: &RedisServer, lock: &str, at: i64, state: &str) {
    let queue = format!("lg:{{{lock}}}:wait");
    let id = server.text(&["LINDEX", &queue, &at.to_string()]).await;
    assert_eq!(server.integer(&["LREM", &queue, "1", &id]).await, 1);
    let ticket = format!("lg:{{{lock}}}:of:{id}");
    if state == "w" {
        server.run(&["SETRANGE", &ticket, "0", state]).await;
    } else {
        server.run(&["SET", &ticket, state, "PX", "60000"]).await;
    }
}

#[tokio::test]
async fn of_many_at_one_gateway_each_who_lost_its_place_unheard_finds_out() {
    let (server, [here, there]) = two_gateways().await;
    here.take_for("crowd", 600_000).await;
    let before = there.crowd("crowd", 600).await;
    let older = there.queue(keyed("crowd", "k")).await;
    let behind = there.crowd("crowd", 200).await;
    // As after a newer request at another gateway, whose message was lost. The older attempt must not enter the queue
    // again, even when the newer one is forgotten.
    lose(&server, "crowd", 600, "s").await;
    let told = older.refusal().await;
    assert!(matches!(told, AcquireError::Replaced), "{told:?}");
    // As after a grant that has ended, and that the gateway was not told about.
    for at in [0, 300, 790] {
        lose(&server, "crowd", at, "w").await;
    }
    until_integer(&server, &["LLEN", "lg:{crowd}:wait"], 800).await;
    // As after an eviction.
    server.run(&["DEL", "lg:{crowd}:wait"]).await;
    there.until_queued("crowd", 800).await;
    drop((before, behind));
}

#[tokio::test]
async fn who_is_granted_a_lock_elsewhere_does_not_stand_in_the_queue() {
    let (server, [here, there], lease) = two_gateways_holding("granted").await;
    let asked = there.queue(request("granted")).await;
    let id = server.text(&["LINDEX", "lg:{granted}:wait", "0"]).await;
    there.kill().await;
    here.release(&lease).await;
    let ticket = format!("lg:{{granted}}:of:{id}");
    let state = server.text(&["GETRANGE", &ticket, "0", "0"]).await;
    assert_eq!(state, "w");
    drop(asked);
}

#[tokio::test]
async fn a_gateway_that_was_thought_dead_says_at_once_that_it_is_alive() {
    let (server, gate, _) = gateway_holding("alive").await;
    let patient = with(request("alive"), |it| it.wait = Duration::from_mins(5));
    let asked = gate.queue(patient).await;
    let alive = &alive(&server).await[0];
    let mut took = Vec::new();
    for _ in 0..5 {
        assert_eq!(server.integer(&["DEL", alive]).await, 1);
        let start = Instant::now();
        until_integer(&server, &["CLIENT", "KILL", "TYPE", "pubsub"], 1).await;
        until_integer(&server, &["EXISTS", alive], 1).await;
        took.push(start.elapsed());
    }
    drop(asked);
    assert_most_precede_rounds(took);
}

#[tokio::test]
async fn an_id_without_a_ticket_is_not_shown_and_not_counted() {
    let (server, gate, _) = gateway_holding("shown").await;
    let asked = gate.queue(request("shown")).await;
    for (digit, memory) in [("a", Some("g")), ("b", None)] {
        let id = format!("2{}", digit.repeat(64));
        server.run(&["LPUSH", "lg:{shown}:wait", &id]).await;
        if let Some(letter) = memory {
            let key = format!("lg:{{shown}}:of:{id}");
            server.run(&["SET", &key, letter, "PX", "60000"]).await;
        }
    }
    let seen = gate.look("shown").await;
    assert_eq!((seen.queue.len(), seen.waiters), (1, 1));
    drop(asked);
}
