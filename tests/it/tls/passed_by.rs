//! Connections over HTTP/2 to a gateway that is about to stop.

use http::Method;
use rustix::process::Signal;

use super::{
    certified::Certified,
    h2_client::{H2, head, piece},
};
use crate::support::gateway::Setup;

#[tokio::test]
async fn a_connection_takes_no_more_requests_ends_what_it_has_and_a_new_one_is_served() {
    let mut certified = Certified::start_with(|_| {
        Setup::default()
            .with("LATCHGATE_SHUTDOWN_DELAY_MS", "3000")
            .with("LATCHGATE_SHUTDOWN_GRACE_MS", "60000")
    });
    let (mut idle, mut holder) = (H2::connect(&certified).await, H2::connect(&certified).await);
    idle.inspect("a").await;
    let held = holder.send(Method::POST, "/locks/a/hold", &[], "").await;
    let mut events = head(held.unwrap()).await.into_body();
    certified.gateway.signal(Signal::TERM);
    // The client is told to go, and has nothing left to wait for.
    idle.ended().await;
    let log = certified.gateway.log();
    assert!(!log.contains("draining"), "{log}");
    // A balancer that has not heard of it yet sends somebody here.
    let mut late = H2::connect(&certified).await;
    assert_eq!(late.inspect("a").await["state"], "held");
    assert_eq!(late.acquire("b", r#"{"ttl_ms": 100}"#).await.0, 201);
    let mut text = String::new();
    while let Some(piece) = piece(&mut events).await {
        text += std::str::from_utf8(&piece).unwrap();
    }
    assert!(text.contains("event: draining"), "{text}");
    // While this waits for the gateway, no client of this thread can close its connection.
    holder.ended().await;
    late.ended().await;
    let status = certified.gateway.wait();
    assert!(status.success(), "{status}: {}", certified.gateway.log());
}
