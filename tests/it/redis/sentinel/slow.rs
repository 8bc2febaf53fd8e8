//! Sentinels that take longer to answer than those who want to know the master wait for all of them.

use std::time::Duration;

use futures_util::future::join_all;
use latchgate::{
    config::Millis,
    lifecycle::Lifecycle,
    store::{Store, contract::Health, redis::RedisStore},
};

use super::{
    super::rig::{attempt, eventually, granted, health, open, quick},
    FakeSentinel, SentinelReply,
    watched::url,
};
use crate::support::RedisServer;

/// Much longer than the others are waited for when most have answered, much less than one may take.
const SLOW: Duration = Duration::from_millis(400);

async fn answering(store: &RedisStore, wanted: [bool; 3]) {
    eventually("it is known which sentinels answer", async || {
        let sentinels = store.figures().sentinels;
        let answer = sentinels.iter().map(|(_, answers)| *answers);
        answer.eq(wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn one_that_is_back_and_slow_is_not_said_to_be_away() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let says = SentinelReply::Master(server.port(), 1);
    let sentinels = join_all((0..3).map(|_| FakeSentinel::start(says, &lifecycle))).await;
    let mut config = quick();
    config.sentinel.timeout_ms = Millis(10_000);
    let store = open(
        &url(sentinels.iter().map(FakeSentinel::node)),
        &config,
        &lifecycle,
    );
    granted(store.acquire(&attempt("a")).await);
    answering(&store, [true; 3]).await;
    sentinels[2].say(SentinelReply::Nothing);
    answering(&store, [true, true, false]).await;

    sentinels[2].think(SLOW);
    sentinels[2].say(says);
    answering(&store, [true; 3]).await;
    // As it was told: what is asked for is a second old at most.
    eventually("readiness says so", async || {
        (health(&store, "sentinels").await == Some(Health::Passing)).then_some(())
    })
    .await;
    // It goes away again, and takes its time for that.
    sentinels[2].say(SentinelReply::Nothing);
    answering(&store, [true, true, false]).await;
}
