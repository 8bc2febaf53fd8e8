//! Holders that are no gateways tell nobody when they release.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::rig::assert_most_precede_rounds,
    gate::{TestGateway, keep, request},
};
use crate::support::RedisServer;

/// Ten times a period and a second, for a machine that is busy with something else.
const NOTICED: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_foreign_release_is_noticed_within_a_period() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let set = ["SET", "lg:{theirs}:lock", "x", "NX", "PX", "60000"];
    server.run(&set).await;
    let asked = gate.queue(request("theirs")).await;
    let start = Instant::now();
    server.run(&["DEL", "lg:{theirs}:lock"]).await;
    let (at, outcome) = asked.outcome().await;
    keep(outcome);
    assert!(at - start < NOTICED, "{:?}", at - start);
}

#[tokio::test]
async fn a_foreign_holder_without_an_expiry_is_waited_for() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    server.run(&["SET", "lg:{ever}:lock", "x"]).await;
    let asked = gate.queue(request("ever")).await;
    // They take it again without asking anybody, for a moment.
    server
        .run(&["SET", "lg:{ever}:lock", "y", "PX", "500"])
        .await;
    let start = Instant::now();
    let (at, outcome) = asked.outcome().await;
    keep(outcome);
    assert!(at - start < NOTICED, "{:?}", at - start);
}

#[tokio::test]
async fn a_foreign_holder_is_waited_for_until_its_lock_expires() {
    const LASTS: Duration = Duration::from_millis(600);
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let mut late = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let set = ["SET", "lg:{soon}:lock", "x", "PX", "600"];
        server.run(&set).await;
        let (at, outcome) = gate.ask(request("soon")).outcome().await;
        let lease = keep(outcome);
        let waited = at - start;
        assert!(waited >= LASTS, "{waited:?}");
        late.push(waited.saturating_sub(LASTS));
        gate.release(&lease).await;
    }
    assert_most_precede_rounds(late);
}
