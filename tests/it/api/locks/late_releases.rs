//! Releases that reach their store after their callers have hung up, while another request is answered the same lease.

use latchgate::store::redis::RedisStore;

use crate::{
    api::prelude::*,
    redis::{
        prelude::{until_runs, write_down_everything},
        rig::quick,
    },
    support::{Fault, Proxy},
};

/// Two gateways on one Redis server. The first reaches the server through a proxy.
struct Pair {
    server: RedisServer,
    proxy: Proxy,
    gateways: [Service; 2],
    _lifecycle: Lifecycle,
}

/// The idempotency key of every acquire.
const KEY: &str = "b47a0b4e-3b1c-4c4e";
/// A request that the proxy does not let pass, for as long as a release is repeated.
const ALWAYS: usize = 1_000;

// === impl Pair ===

impl Pair {
    async fn start() -> Self {
        let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
        let proxy = Proxy::start(server.port(), &lifecycle).await;
        let gateways = [proxy.url(), server.url()].map(|url| {
            let lifecycle = Lifecycle::new();
            let store = RedisStore::open(
                &url,
                &quick(),
                Arc::new(SystemClock),
                &lifecycle,
                latchgate::config::OrderLimits::default(),
            );
            Service::over(Arc::new(store), Config::default())
        });
        // Every script is known to the server then, so that one request carries it out.
        for (gateway, lock) in gateways.iter().zip(["warm", "warmer"]) {
            let warm = acquire(gateway, lock).await;
            assert_eq!(release(gateway, lock, &warm).await, 204);
        }
        Self {
            server,
            proxy,
            gateways,
            _lifecycle: lifecycle,
        }
    }
}

async fn acquire(gateway: &Service, lock: &str) -> Value {
    let headers = [JSON[0], ("idempotency-key", KEY)];
    let line = format!("POST /locks/{lock}");
    loop {
        let answer = gateway.ask(&line, &headers, r#"{"ttl_ms":60000}"#).await;
        // The requests of the release may take the connection of the acquire with them.
        if answer.status < 500 {
            assert!(answer.status < 300, "{}", answer.body);
            return serde_json::from_str(&answer.body).unwrap();
        }
    }
}

async fn release(gateway: &Service, lock: &str, lease: &Value) -> u16 {
    let token = lease["token"].as_str().unwrap();
    let line = format!("DELETE /locks/{lock}");
    gateway.call(&line, &[("lock-token", token)]).await.status
}

async fn is_held_by(gateway: &Service, lease: &Value) -> bool {
    let shown = gateway.get("/locks/a").await;
    shown["holders"][0]["fencing_token"] == lease["fencing_token"]
}

/// Releases a lease through the first gateway, whose requests to the store fail in this way, and hangs up. Then the same
/// lease is answered again through a gateway.
async fn ends_nothing(fault: Fault, times: usize, answered_by: usize, query: &str) {
    let pair = Pair::start().await;
    let Pair {
        server,
        proxy,
        gateways,
        ..
    } = &pair;
    let lease = acquire(&gateways[0], "a").await;
    let token = Token::parse(lease["token"].as_str().unwrap()).unwrap();
    let hash = token.hash();
    write_down_everything(server).await;
    // Only a release has these bytes after the token: a floor and a gateway.
    let needle = format!("{hash}\r\n$32\r\n");
    for _ in 0..times {
        proxy.strike(&needle, fault);
    }
    let mut caller = Connection::new(gateways[0].connect().await);
    let request = HttpRequest::new("DELETE", format!("/locks/a{query}"));
    let request = request.with("Lock-Token", &token.expose());
    caller.send(&request).await.unwrap();
    proxy.struck(1).await;
    drop(caller);
    let again = acquire(&gateways[answered_by], "a").await;
    assert_eq!(again["token"], lease["token"]);
    proxy.take_back();
    until_runs(server, &hash, 1).await;
    assert!(is_held_by(&gateways[1], &lease).await, "by a repetition");
    proxy.let_go();
    let copies = if fault == Fault::HoldRequest { 2 } else { 1 };
    until_runs(server, &hash, copies).await;
    assert!(is_held_by(&gateways[1], &lease).await, "by a late copy");
    // A caller that waits releases the lease through any gateway.
    assert_eq!(release(&gateways[1 - answered_by], "a", &lease).await, 204);
    assert!(!is_held_by(&gateways[1], &lease).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_caller_hung_up_ends_no_lease_that_this_gateway_answered_again() {
    for query in ["", "?unused=true"] {
        ends_nothing(Fault::CutRequest, ALWAYS, 0, query).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_caller_hung_up_ends_no_lease_that_another_gateway_answered_again() {
    for query in ["", "?unused=true"] {
        ends_nothing(Fault::HoldRequest, 1, 1, query).await;
    }
    ends_nothing(Fault::CutRequest, ALWAYS, 1, "").await;
}
