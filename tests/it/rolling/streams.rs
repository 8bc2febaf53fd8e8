//! Clients that hold a lock by a stream, permanently or in turns, and go on at the other gateway.

use serde_json::{Value, json};
use tokio::time::timeout_at;

use super::client::{Client, Load};
use crate::support::HttpRequest;
use crate::support::prelude::*;

/// The TTL, long enough for a machine that does other work.
const TTL_MS: u64 = 7_500;
/// How many locks the clients take turns for.
const LOCKS: usize = 2;
/// How long a turn keeps its lock.
const TURN: Duration = Duration::from_millis(200);
/// The pause between two checks of whether the test is over.
const LOOK: Duration = Duration::from_millis(100);

/// A stream that holds a lock.
struct Held {
    client: Client,
    path: String,
    token: String,
    fence: u64,
}

/// Holds a lock until the test is over.
pub(super) async fn hold(load: Arc<Load>, number: usize) {
    let client = Client::new(&load, "stream", number);
    let lock = format!("held:{number}");
    let mut held = Held::acquire(client, &lock).await;
    load.rooms.enter(&lock, &held.client.name, held.fence);
    while !load.is_over() {
        held.go_on(Instant::now() + LOOK).await;
    }
    load.rooms.leave(&lock, &held.client.name);
    held.client.hang_up();
}

/// Takes turns until the test is over. Each turn ends with its connection.
pub(super) async fn take_turns(load: Arc<Load>, number: usize) {
    let mut client = Client::new(&load, "stream in turn", number);
    let lock = format!("streams:{}", number / 2 % LOCKS);
    let mut served = Instant::now();
    while !load.is_over() {
        let mut held = Held::acquire(client, &lock).await;
        load.tally.count("grants to streams in turn");
        load.tally
            .took("a stream in turn between two grants", served.elapsed());
        served = Instant::now();
        load.rooms.enter(&lock, &held.client.name, held.fence);
        held.go_on(Instant::now() + TURN).await;
        load.rooms.leave(&lock, &held.client.name);
        client = held.client;
        client.hang_up();
    }
}

// === impl Held ===

impl Held {
    /// Waits until a stream of the client holds a lock.
    async fn acquire(mut client: Client, lock: &str) -> Self {
        let path = format!("/locks/{lock}/hold");
        let key = IdempotencyKey::random();
        let wanted = json!({"wait_ms": 20_000, "ttl_ms": TTL_MS, "owner": client.name});
        let wanted = HttpRequest::new("POST", path.clone())
            .with("Idempotency-Key", key.expose())
            .body(wanted);
        let lease = loop {
            client.open(&wanted).await;
            match client.first_event().await {
                Some(lease) => break lease,
                // The gateway drains, and the position in the queue is kept.
                None => client.move_on(),
            }
        };
        Self {
            client,
            path,
            token: lease["token"].as_str().unwrap().to_owned(),
            fence: lease["fencing_token"].as_u64().unwrap(),
        }
    }

    /// Keeps the lock until an instant, at the gateway that does not drain.
    async fn go_on(&mut self, until: Instant) {
        while let Ok(event) = timeout_at(until, self.client.event()).await {
            match (event.0.as_str(), event.1) {
                ("renewed", left) => {
                    assert!(left["expires_in_ms"].as_u64() > Some(TTL_MS / 2), "{left}");
                    self.client.load.tally.count("renewals by streams");
                }
                ("draining", left) => self.adopt(&left).await,
                other => panic!("{}: {other:?}", self.client.name),
            }
        }
    }

    async fn adopt(&mut self, left: &Value) {
        let name = self.client.name.clone();
        assert!(
            left["expires_in_ms"].as_u64() > Some(TTL_MS / 2),
            "{name}: {left}"
        );
        let began = Instant::now();
        self.client.move_on();
        let adoption = HttpRequest::new("POST", self.path.clone()).with("Lock-Token", &self.token);
        self.client.open(&adoption).await;
        let lease = self
            .client
            .first_event()
            .await
            .expect("the other gateway does not drain");
        assert_eq!(lease["fencing_token"], self.fence, "{name}");
        self.client.load.tally.count("adoptions by streams");
        self.client
            .load
            .tally
            .took("a stream from draining to adopted", began.elapsed());
    }
}

// === impl Client ===

impl Client {
    /// The lease that the stream is granted; `None` if the gateway drains before the grant.
    async fn first_event(&mut self) -> Option<Value> {
        loop {
            match self.event().await {
                (name, lease) if name == "granted" => return Some(lease),
                (name, _) if name == "queued" => {}
                (name, left) if name == "draining" => {
                    assert!(left["expires_in_ms"].is_null(), "{}: {left}", self.name);
                    self.load.tally.count("retries: draining while queued");
                    return None;
                }
                other => panic!("{}: {other:?}", self.name),
            }
        }
    }
}
