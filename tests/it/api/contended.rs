//! One lock, many callers, two gateways, and a store that keeps what it is told.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{Method, Request};
use latchgate::{
    clock::SystemClock,
    config::{Config, Millis, StoreUrl},
    lifecycle::Lifecycle,
    store::{self, AnyStore},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{
    listener::Listener,
    service::{ApiResponse, JSON, Service},
};
use crate::support::{RedisServer, eventually};

/// Less than what so many dead waiters would cost.
const SOON: Duration = Duration::from_secs(25);
const DEAD: usize = 15;
const KEY: (&str, &str) = ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");

/// Two gateways on one store. The embedded one has one handle, which they share; on Redis each has
/// its own, as two processes would.
pub(super) struct Pair {
    pub(super) gateways: [Arc<Service>; 2],
    _kept: (Option<TempDir>, Option<RedisServer>),
}

// === impl Pair ===

impl Pair {
    /// A pair on each store, one after the other.
    pub(super) async fn each() -> [Self; 2] {
        Self::each_with(30_000).await
    }

    /// The same; the second gateway of each has another default TTL.
    pub(super) async fn each_with(default_ttl_ms: u64) -> [Self; 2] {
        let directory = TempDir::new().unwrap();
        let embedded = configs(
            &StoreUrl::Embedded(directory.path().to_owned()),
            default_ttl_ms,
        );
        let store = open(&embedded[0]).await;
        let server = RedisServer::start().await;
        let redis = configs(&StoreUrl::Redis(server.url()), default_ttl_ms);
        let stores = [open(&redis[0]).await, open(&redis[1]).await];
        [
            Self {
                gateways: embedded.map(|config| Arc::new(Service::over(store.clone(), config))),
                _kept: (Some(directory), None),
            },
            Self {
                gateways: {
                    let [first, second] = redis;
                    let [one, other] = stores;
                    [(one, first), (other, second)]
                        .map(|(store, config)| Arc::new(Service::over(store, config)))
                },
                _kept: (None, Some(server)),
            },
        ]
    }

    /// Begins to wait at a gateway, and is in the queue when this returns.
    async fn wait(&self, at: usize, owner: &str) -> JoinHandle<ApiResponse> {
        let gateway = Arc::clone(&self.gateways[at]);
        let body = json!({"wait_ms": 20_000, "owner": owner}).to_string();
        #[expect(
            clippy::disallowed_methods,
            reason = "a caller is no task of the program"
        )]
        let answer = tokio::spawn(async move { gateway.acquire(&body).await });
        self.until_queued(owner).await;
        answer
    }

    async fn until_queued(&self, owner: &str) {
        eventually("it is queued", async || {
            let queue = self.queue().await;
            queue.iter().any(|other| other == owner).then_some(())
        })
        .await;
    }

    /// The owners in the queue, in the order in which they are shown.
    async fn queue(&self) -> Vec<String> {
        let lock = self.gateways[0].get("/locks/a").await.json();
        let waiters = lock["waiters"].as_array().unwrap();
        for (position, waiter) in (1..).zip(waiters) {
            assert_eq!(waiter["position"], position);
        }
        let owners = waiters
            .iter()
            .map(|waiter| waiter["owner"].as_str().unwrap().to_owned());
        owners.collect()
    }

    async fn release(&self, at: usize, lease: &Value) {
        let token = [("lock-token", lease["token"].as_str().unwrap())];
        let answer = self.gateways[at]
            .ask(Method::DELETE, "/locks/a", &token, "")
            .await;
        assert_eq!(answer.status, 204, "{}", answer.body);
    }

    pub(super) async fn hold(&self, at: usize, headers: &str, body: &str) -> Listener {
        Listener::hold(self.gateways[at].connect().await, headers, body).await
    }
}

/// The configurations of two gateways on one store.
fn configs(store: &StoreUrl, default_ttl_ms: u64) -> [Config; 2] {
    let first = Config {
        store: store.clone(),
        ..Config::default()
    };
    let mut second = first.clone();
    second.limits.default_ttl_ms = Millis(default_ttl_ms);
    [first, second]
}

async fn open(config: &Config) -> AnyStore {
    let lifecycle = Lifecycle::new();
    let clock = Arc::new(SystemClock);
    store::open(config, clock, &lifecycle).await.unwrap()
}

fn fence(lease: &Value) -> u64 {
    lease["fencing_token"].as_u64().unwrap()
}

#[tokio::test]
async fn callers_are_served_in_the_order_in_which_they_came_whichever_gateway_they_asked() {
    for pair in Pair::each().await {
        let mut lease = pair.gateways[0].acquire("").await.json();
        let mut callers = Vec::new();
        let owners = ["first", "second", "third", "fourth", "fifth", "sixth"];
        for (i, owner) in owners.iter().enumerate() {
            callers.push((i % 2, pair.wait(i % 2, owner).await));
        }
        assert_eq!(pair.queue().await, owners);
        let mut at = 0;
        for (i, (gateway, caller)) in callers.into_iter().enumerate() {
            pair.release(at, &lease).await;
            let answer = caller.await.unwrap();
            assert_eq!(answer.status, 201, "{}", answer.body);
            let next = answer.json();
            assert_eq!(next["owner"], owners[i]);
            assert!(fence(&next) > fence(&lease));
            assert_eq!(pair.queue().await, owners[i + 1..]);
            (at, lease) = (gateway, next);
        }
    }
}

#[tokio::test]
async fn whoever_asks_without_waiting_does_not_pass_those_who_wait() {
    for pair in Pair::each().await {
        let lease = pair.gateways[0].acquire("").await.json();
        let waiting = pair.wait(1, "patient").await;
        pair.release(0, &lease).await;
        let barging = pair.gateways[0].acquire("").await;
        assert_eq!(barging.status, 423, "{}", barging.body);
        assert_eq!(waiting.await.unwrap().json()["owner"], "patient");
    }
}

#[tokio::test]
async fn a_caller_that_hangs_up_costs_those_behind_it_nothing() {
    for pair in Pair::each().await {
        let lease = pair.gateways[0].acquire("").await.json();
        let mut first = Vec::new();
        for _ in 0..DEAD {
            first.push(pair.wait(0, "first").await);
        }
        let last = pair.wait(1, "last").await;
        first.iter().for_each(JoinHandle::abort);
        pair.release(0, &lease).await;
        let answer = tokio::time::timeout(SOON, last).await;
        assert_eq!(answer.unwrap().unwrap().json()["owner"], "last");
    }
}

#[tokio::test]
async fn what_was_answered_to_no_copy_of_a_request_is_given_back() {
    for pair in Pair::each().await {
        for _ in 0..3 {
            let request = Request::post("/locks/a").header(JSON[0].0, JSON[0].1);
            let request = request.header(KEY.0, KEY.1);
            let request = request.body(Body::from(r#"{"ttl_ms": 600000}"#)).unwrap();
            let answer = pair.gateways[0].unread(request).await;
            assert!(answer.status().is_success(), "{answer:?}");
            // Its caller has gone.
            drop(answer);
        }
        eventually("the lock is free", async || {
            let lock = pair.gateways[0].get("/locks/a").await.json();
            (lock["state"] == "free").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_chain_of_short_waits_with_one_key_keeps_its_place() {
    for pair in Pair::each().await {
        let lease = pair.gateways[0].acquire("").await.json();
        let poll = async |at: usize| {
            let body = json!({"wait_ms": 50, "owner": "poller"}).to_string();
            let headers = [JSON[0], KEY];
            let gateway = &pair.gateways[at];
            gateway.ask(Method::POST, "/locks/a", &headers, body).await
        };
        assert_eq!(poll(0).await.status, 423);
        let behind = pair.wait(0, "behind").await;
        assert_eq!(pair.queue().await, ["poller", "behind"]);
        assert_eq!(poll(1).await.status, 423);
        assert_eq!(pair.queue().await, ["poller", "behind"]);
        // Between two requests the lock falls to it.
        pair.release(0, &lease).await;
        let granted = poll(0).await;
        assert!(granted.status.is_success(), "{}", granted.body);
        assert_eq!(granted.json()["owner"], "poller");
        let again = poll(1).await;
        assert_eq!(again.status, 200, "{}", again.body);
        assert_eq!(again.json()["token"], granted.json()["token"]);
        pair.release(1, &granted.json()).await;
        assert_eq!(behind.await.unwrap().json()["owner"], "behind");
    }
}

#[tokio::test]
async fn a_held_lock_passes_on_when_its_connection_closes() {
    for pair in Pair::each().await {
        let mut listener = pair.hold(0, "", "").await;
        let lease = listener.expect("granted").await;
        let waiting = pair.wait(1, "next").await;
        drop(listener);
        let answer = tokio::time::timeout(SOON, waiting).await;
        let next = answer.unwrap().unwrap().json();
        assert_eq!(next["owner"], "next");
        assert!(fence(&next) > fence(&lease));
    }
}

#[tokio::test]
async fn a_held_lock_outlives_its_ttl() {
    for pair in Pair::each().await {
        let mut listener = pair.hold(0, "", r#"{"ttl_ms": 4500}"#).await;
        let lease = listener.expect("granted").await;
        // Each a third of its TTL after the one before.
        for _ in 0..4 {
            listener.expect("renewed").await;
        }
        let holder = &pair.gateways[1].get("/locks/a").await.json()["holders"][0];
        assert_eq!(fence(holder), fence(&lease));
    }
}

#[tokio::test]
async fn a_hold_ends_at_its_limit_and_the_lock_passes_on() {
    for pair in Pair::each().await {
        let body = r#"{"ttl_ms": 1500, "max_hold_ms": 1500}"#;
        let mut listener = pair.hold(0, "", body).await;
        listener.expect("granted").await;
        let waiting = pair.wait(1, "next").await;
        let (name, data) = loop {
            let event = listener.event().await;
            if event.0 != "renewed" {
                break event;
            }
        };
        assert_eq!(
            (name.as_str(), &data["reason"]),
            ("lost", &json!("hold-limit"))
        );
        listener.ends().await;
        assert_eq!(waiting.await.unwrap().json()["owner"], "next");
    }
}

#[tokio::test]
async fn a_hold_waits_in_the_same_queue() {
    for pair in Pair::each().await {
        let lease = pair.gateways[0].acquire("").await.json();
        let first = pair.wait(0, "first").await;
        let body = r#"{"wait_ms": 20000, "owner": "second"}"#;
        let mut second = pair.hold(1, "", body).await;
        assert_eq!(second.expect("queued").await["position"], 2);
        pair.release(0, &lease).await;
        let first = first.await.unwrap().json();
        pair.release(0, &first).await;
        let second = second.expect("granted").await;
        assert_eq!(second["owner"], "second");
        assert!(fence(&second) > fence(&first));
    }
}

#[tokio::test]
async fn a_lease_is_adopted_at_another_gateway_when_the_first_one_drains() {
    for pair in Pair::each().await {
        let mut listener = pair.hold(0, "", r#"{"ttl_ms": 20000}"#).await;
        let lease = listener.expect("granted").await;
        let waiting = pair.wait(1, "next").await;
        pair.gateways[0].lifecycle.drain();
        let left = loop {
            match listener.event().await {
                (name, data) if name == "draining" => {
                    break data["expires_in_ms"].as_u64().unwrap();
                }
                (name, _) => assert_eq!(name, "renewed"),
            }
        };
        assert!(left > 10_000, "most of one TTL is left: {left}");
        drop(listener);
        pair.gateways[0]
            .lifecycle
            .stop(Duration::from_mins(1))
            .await
            .unwrap();

        let header = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
        let mut adopted = pair.hold(1, &header, "").await;
        let again = adopted.expect("granted").await;
        assert_eq!(again["fencing_token"], lease["fencing_token"]);
        assert_eq!(again["token"], lease["token"]);
        assert!(!waiting.is_finished(), "nobody got it in between");
        drop(adopted);
        assert_eq!(waiting.await.unwrap().json()["owner"], "next");
    }
}

#[tokio::test]
async fn a_released_lease_is_not_adopted() {
    for pair in Pair::each().await {
        let lease = pair.gateways[0].acquire("").await.json();
        pair.release(0, &lease).await;
        let token = [("lock-token", lease["token"].as_str().unwrap())];
        let gateway = &pair.gateways[1];
        let answer = gateway.ask(Method::POST, "/locks/a/hold", &token, "").await;
        assert_eq!(answer.problem(), (410, "lease-lost".to_owned()));
    }
}
