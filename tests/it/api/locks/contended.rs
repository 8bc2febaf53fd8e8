//! Many callers that contend for one lock at two gateways with a real store; and which requests with the same
//! idempotency key count as the same.

use latchgate::{
    config::StoreUrl,
    store::{self, AnyStore},
};
use tokio::task::JoinHandle;

use crate::api::prelude::*;

const KEY: (&str, &str) = ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");

/// Two gateways on one store. With the embedded store they share one handle; on Redis each has a handle of its own,
/// like two processes.
pub(super) struct Pair {
    pub(super) gateways: [Arc<Service>; 2],
    _kept: (Option<TempDir>, Option<RedisServer>),
}

// === impl Pair ===

impl Pair {
    /// A pair on each kind of store.
    pub(super) async fn each() -> [Self; 2] {
        Self::each_with(30_000).await
    }

    /// A pair on each kind of store. The second gateway of each has another default TTL.
    pub(super) async fn each_with(default_ttl_ms: u64) -> [Self; 2] {
        let directory = TempDir::new().unwrap();
        let embedded = configs(
            &StoreUrl::Embedded(directory.path().to_owned()),
            default_ttl_ms,
        );
        let store = open(&embedded[0]).await;
        let server = RedisServer::start().await;
        let redis = configs(&StoreUrl::Servers(server.url()), default_ttl_ms);
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

    /// Starts a wait at a gateway. Its request is in the queue when this returns.
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

    /// The owners of the waiters, in the order of the queue.
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
        let answer = self.gateways[at].call("DELETE /locks/a", &token).await;
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

async fn acquire(gateway: &Service, body: &str) -> ApiResponse {
    let headers = [KEY, ("content-type", "application/json")];
    gateway
        .ask("POST /locks/a", &headers, body.to_owned())
        .await
}

#[tokio::test]
async fn what_was_acquired_can_be_held_under_its_key_and_the_other_way_round() {
    let header = format!("Idempotency-Key: {}\r\n", KEY.1);
    for body in ["", r#"{"ttl_ms": 20000, "owner": "me"}"#] {
        for pair in Pair::each().await {
            let acquired = acquire(&pair.gateways[0], body).await.is(201);
            let lease = acquired.json();
            let mut held = pair.hold(1, &header, body).await;
            assert_eq!(fence(&held.expect("granted").await), fence(&lease));
            let again = acquire(&pair.gateways[0], body).await.is(200);
            assert_eq!(again["token"], lease["token"]);
        }
        for pair in Pair::each().await {
            let mut held = pair.hold(0, &header, body).await;
            let lease = held.expect("granted").await;
            let again = acquire(&pair.gateways[1], body).await.is(200);
            let again = again.json();
            assert_eq!(again["token"], lease["token"]);
            assert!(again["hold_expires_in_ms"].is_u64(), "it keeps its limit");
        }
    }
}

#[tokio::test]
async fn another_default_at_the_next_gateway_is_no_other_request() {
    for pair in Pair::each_with(7_000).await {
        let lease = acquire(&pair.gateways[0], "").await.json();
        let again = acquire(&pair.gateways[1], "").await.is(200);
        let again = again.json();
        assert_eq!(again["token"], lease["token"]);
        assert_eq!(again["ttl_ms"], 30_000, "the lease is as it was granted");
    }
}

#[tokio::test]
async fn other_words_are_another_request_by_whatever_operation() {
    let header = format!("Idempotency-Key: {}\r\n", KEY.1);
    for pair in Pair::each().await {
        let lease = acquire(&pair.gateways[0], r#"{"ttl_ms": 20000}"#).await;
        assert_eq!(lease.status, 201, "{}", lease.body);
        for other in [
            r#"{"ttl_ms": 20001}"#,
            r#"{"ttl_ms": 20000, "max_hold_ms": 86400000}"#,
            r#"{"ttl_ms": 20000, "owner": "me"}"#,
            r#"{"ttl_ms": 20000, "metadata": {"a": "b"}}"#,
            "",
        ] {
            let refused = acquire(&pair.gateways[1], other).await;
            let mismatch = (409, "idempotency-mismatch");
            assert_eq!(refused.problem(), mismatch, "{other}");
            let held = pair.hold(1, &header, other).await;
            assert!(held.head.starts_with("http/1.1 409 "), "{}", held.head);
        }
    }
}
