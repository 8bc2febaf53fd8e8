//! Whoever waits and is not queued any more finds out, although others keep the queue.

use super::gate::{Gate, request};
use crate::support::RedisServer;

/// Takes the first out of the queue behind its back. Its ticket is there yet, as after a grant that has ended.
async fn lose_first(server: &RedisServer, lock: &str) {
    let queue = format!("lg:{{{lock}}}:wait");
    let first = server.text(&["LPOP", &queue]).await;
    let ticket = format!("lg:{{{lock}}}:of:{first}");
    assert_eq!(server.integer(&["EXISTS", &ticket]).await, 1);
}

#[tokio::test]
async fn one_who_lost_its_place_unheard_is_queued_again() {
    let server = RedisServer::start().await;
    let [here, there] = [Gate::on(&server).await, Gate::on(&server).await];
    let lease = here.take("unheard").await;
    let missing = there.queue(request("unheard")).await;
    let stays = here.queue(request("unheard")).await;
    // As after a grant of which it was not told and which has ended before it was looked for.
    lose_first(&server, "unheard").await;
    here.until_queued("unheard", 2).await;
    here.release(&lease).await;
    here.release(&stays.lease().await).await;
    missing.lease().await;
}

#[tokio::test]
async fn all_places_are_looked_up_at_once_when_messages_may_have_been_missed() {
    let server = RedisServer::start().await;
    let [here, there] = [Gate::on(&server).await, Gate::on(&server).await];
    here.take_for("many", 600_000).await;
    // More than are come by in the time for which anybody waits here.
    let crowd = there.crowd("many", 3_000).await;
    let _stays = here.queue(request("many")).await;
    server.run(&["LTRIM", "lg:{many}:wait", "3000", "-1"]).await;
    assert_eq!(server.integer(&["LLEN", "lg:{many}:wait"]).await, 1);
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    there.until_queued("many", 3_001).await;
    drop(crowd);
}
