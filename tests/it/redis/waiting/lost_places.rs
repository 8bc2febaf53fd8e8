//! Whoever waits and is not queued any more finds out, although others keep the queue.

use bb8_redis::redis::from_redis_value;

use super::gate::{Gate, request};
use crate::support::RedisServer;

/// Takes the first out of the queue behind its back.
async fn lose_first(server: &RedisServer, lock: &str) {
    let queue = format!("lg:{{{lock}}}:queue");
    let first = server.run(&["ZRANGE", &queue, "0", "0"]).await;
    let [first]: [String; 1] = from_redis_value::<Vec<_>>(first)
        .unwrap()
        .try_into()
        .unwrap();
    let waiters = format!("lg:{{{lock}}}:waiters");
    assert_eq!(server.integer(&["ZREM", &queue, &first]).await, 1);
    assert_eq!(server.integer(&["HDEL", &waiters, &first]).await, 1);
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
    let lost = ["ZREMRANGEBYRANK", "lg:{many}:queue", "0", "2999"];
    assert_eq!(server.integer(&lost).await, 3_000);
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    there.until_queued("many", 3_001).await;
    drop(crowd);
}
