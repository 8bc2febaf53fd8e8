//! Connections of which nobody hears any more, neither that they live nor that they have ended.

use std::time::Duration;

use latchgate::{
    lifecycle::Lifecycle,
    store::{Store, StoreError},
};
use tokio::time::Instant;

use super::{
    rig::{attempt, eventually, granted, open, patient, quick},
    waiting::gate::{TestGateway, request},
};
use crate::support::{Cable, RedisServer, url};

/// Ten times three seconds for a grant that nobody confirms, and a period.
const NOTICED: Duration = Duration::from_secs(50);

fn by(cable: &Cable) -> latchgate::config::RedisUrl {
    url(&format!("redis://127.0.0.1:{}", cable.port()))
}

#[tokio::test]
async fn what_is_sent_over_them_is_given_up_in_time_and_a_new_one_serves() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let cable = Cable::to(server.port(), &lifecycle).await;
    let store = open(&by(&cable), &quick(), &lifecycle);
    let held = attempt("held");
    granted(store.acquire(&held).await);
    cable.cut();
    let start = Instant::now();
    let unknown = store.acquire(&attempt("lock")).await;
    assert!(
        matches!(
            unknown,
            Err(StoreError::Indeterminate(_) | StoreError::Unavailable(_))
        ),
        "{unknown:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(30), "it is told");
    let nothing = server.text(&["GET", "lg:{lock}:lock"]).await;
    assert_eq!(nothing, "", "nothing came through");
    cable.mend();
    eventually("it serves again", async || {
        store.release(&held.name, &held.token).await.ok()
    })
    .await;
    granted(store.acquire(&attempt("held")).await);
}

#[tokio::test]
async fn a_gateway_that_has_no_others_delays_those_behind_it_once_and_loses_no_waiter() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let cable = Cable::to(server.port(), &lifecycle).await;
    let here = TestGateway::on(&server).await;
    // It is cut off for as long as `quick` has patience.
    let there = TestGateway::with(&by(&cable), &patient());
    let lease = here.take("lock").await;
    let first = there.queue(request("lock")).await;
    let second = here.queue(request("lock")).await;
    cable.cut();
    let start = Instant::now();
    here.release(&lease).await;
    // The first is granted it and hears nothing.
    let lease = second.lease().await;
    assert!(start.elapsed() < NOTICED, "{:?}", start.elapsed());
    cable.mend();
    here.release(&lease).await;
    let mended = Instant::now();
    let last = first.lease().await;
    assert!(mended.elapsed() < NOTICED, "{:?}", mended.elapsed());
    assert!(last.held.fence > lease.held.fence);
    there.release(&last).await;
}
