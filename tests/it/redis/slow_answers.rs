//! What is told of a lease by a Redis whose replies are under way for long.

use std::time::Duration;

use latchgate::{
    config::{Millis, RedisConfig},
    engine::HoldEvent,
    lifecycle::Lifecycle,
    store::contract::RenewalTtl,
};
use tokio::time::{Instant, sleep};

use super::{
    rig::{patient, ttl},
    waiting::gate::{TestGateway, request},
};
use crate::support::{Fault, Proxy, RedisServer};

/// For how long a reply is under way.
const LATE: Duration = Duration::from_millis(500);
/// The TTL of every lease here.
const TTL_MS: u64 = 6_000;

#[tokio::test]
async fn a_stream_tells_its_renewal_without_the_time_that_the_reply_took() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let proxy = Proxy::start(server.port(), &lifecycle).await;
    let config = RedisConfig {
        command_timeout_ms: Millis(TTL_MS),
        ..patient()
    };
    let gate = TestGateway::with(&proxy.url(), &config);
    // From then on the server knows the scripts.
    let warm = gate.take("warm").await;
    gate.engine
        .renew(warm.name.clone(), warm.token.clone(), RenewalTtl::default())
        .await
        .unwrap();
    let mut asked = request("slow");
    asked.ttl = ttl(TTL_MS);
    asked.wait = Duration::ZERO;
    let mut hold = gate.engine.hold(asked).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Granted(_))));
    proxy.strike("{slow}", Fault::HoldReply);
    let held_back = async {
        proxy.struck(1).await;
        let since = Instant::now();
        sleep(LATE).await;
        proxy.let_go();
        since
    };
    let (event, since) = tokio::join!(hold.next(), held_back);
    let Some(HoldEvent::Renewed(lease)) = event else {
        panic!("{event:?}");
    };
    let now = Instant::now();
    let (left, took) = (lease.left_at(now), now - since);
    assert!(took >= LATE);
    assert!(
        left + took <= lease.ttl.duration(),
        "{left:?} after {took:?}"
    );
    assert!(!left.is_zero());
}
