//! What the log says of a caller that hung up and could not be taken out of the queue.

use super::{
    super::rig::eventually,
    gate::{TestGateway, request},
};
use crate::{api::lines::Lines, support::RedisServer};

#[tokio::test]
async fn one_who_hangs_up_and_cannot_be_taken_out_of_the_queue_is_logged() {
    let lines = Lines::default();
    let _collecting = lines.collect();
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("a").await;
    let waiter = gate.queue(request("a")).await;
    server.freeze();
    drop(waiter);
    eventually("the log says so", async || {
        let log = lines.read();
        log.contains("could not be taken out of the queue")
            .then_some(())
    })
    .await;
    server.thaw();
    // The reaper sees to it.
    gate.until_queued("a", 0).await;
    gate.release(&lease).await;
}
