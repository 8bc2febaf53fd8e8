//! A thousand clients take turns at one lock, at gateways that are real processes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::support::{
    Caller, RedisServer, eventually, full,
    gateway::{Gateway, Setup},
};

const CLIENTS: usize = 1_000;
/// How often each client acquires the lock.
const TURNS: u64 = 10;
/// How often each client acquires the lock at a single gateway without `--full`.
const FEW_TURNS: u64 = 3;
/// More time than all turns need on two cores that do other work.
const BOUND: Duration = Duration::from_mins(4);
const LOCK: &str = "contended";
/// A wait that does not run out, however long a turn of all clients takes.
const WAIT_MS: u64 = 240_000;

/// Records which client holds the lock, as the clients themselves report it.
#[derive(Default)]
struct Observer(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    inside: Option<usize>,
    fence: u64,
    served: Vec<u64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_at_two_gateways_on_redis_take_one_lock_in_turns() {
    let server = RedisServer::start().await;
    let store = format!("redis://127.0.0.1:{}", server.port());
    let start = || Gateway::start_with(patient().with("LATCHGATE_STORE", &store));
    println!("{}", contend(&[start(), start()], TURNS).await);
    let left = server.keys().await;
    let of_the_queue = |key: &String| key.ends_with(":wait");
    assert!(!left.iter().any(of_the_queue), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_at_a_gateway_with_its_own_store_take_one_lock_in_turns() {
    let turns = if full() { TURNS } else { FEW_TURNS };
    println!(
        "{}",
        contend(&[Gateway::start_with(patient())], turns).await
    );
}

fn patient() -> Setup {
    Setup::default().with("LATCHGATE_LIMITS_MAX_WAIT_MS", &WAIT_MS.to_string())
}

/// Lets the clients contend for the lock. Answers the speed, as text.
async fn contend(gateways: &[Gateway], turns: u64) -> String {
    let observer = Arc::new(Observer::new());
    let mut first = Caller::connect(gateways[0].address).await;
    let (status, lease) = first.acquire(LOCK, &json!({"ttl_ms": 600_000})).await;
    assert_eq!(status, 201, "{lease}");

    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let caller = Caller::connect(gateways[client % gateways.len()].address).await;
        clients.spawn(take_turns(caller, client, turns, Arc::clone(&observer)));
    }
    eventually("all are queued", async || {
        let mut looking = Caller::connect(gateways[0].address).await;
        let shown = looking.inspect(LOCK).await;
        (waiters(&shown) == CLIENTS as u64).then_some(())
    })
    .await;
    assert_eq!(observer.least_and_most(), (0, 0));
    let started = Instant::now();
    first.release(LOCK, &lease).await;
    timeout(BOUND, clients.join_all())
        .await
        .expect("all are served in time");
    let took = started.elapsed();
    let total = CLIENTS as u64 * turns;
    assert_eq!(observer.least_and_most(), (turns, turns));
    for gateway in gateways {
        let shown = Caller::connect(gateway.address).await.inspect(LOCK).await;
        assert_eq!(shown["state"], "free", "{shown}");
        assert_eq!(waiters(&shown), 0, "{shown}");
    }
    let per_second = total as f64 / took.as_secs_f64();
    format!("{total} turns in {took:?}: {per_second:.0} hand-offs/s")
}

async fn take_turns(mut caller: Caller, client: usize, turns: u64, observer: Arc<Observer>) {
    let request =
        json!({"wait_ms": WAIT_MS, "ttl_ms": 60_000, "owner": format!("client {client}")});
    for _ in 0..turns {
        let (status, lease) = caller.acquire(LOCK, &request).await;
        assert_eq!(status, 201, "{lease}");
        observer.enter(client, lease["fencing_token"].as_u64().unwrap());
        // Other clients have the chance to enter while this client holds the lock.
        tokio::task::yield_now().await;
        observer.leave(client);
        caller.release(LOCK, &lease).await;
    }
}

fn waiters(shown: &Value) -> u64 {
    shown["waiter_count"].as_u64().unwrap()
}

// === impl Observer ===

impl Observer {
    fn new() -> Self {
        Self(Mutex::new(Seen {
            served: vec![0; CLIENTS],
            ..Seen::default()
        }))
    }

    fn enter(&self, client: usize, fence: u64) {
        let mut seen = self.0.lock().unwrap();
        let (inside, last) = (seen.inside.replace(client), seen.fence);
        seen.fence = fence;
        seen.served[client] += 1;
        let ahead = seen.served[client] - seen.served.iter().min().unwrap();
        drop(seen);
        assert_eq!(inside, None, "{client} came in while it was inside");
        assert!(fence > last, "{fence} came after {last}");
        assert!(
            ahead <= 2,
            "{client} was served {ahead} times more than another"
        );
    }

    fn leave(&self, client: usize) {
        let inside = self.0.lock().unwrap().inside.take();
        assert_eq!(inside, Some(client));
    }

    /// The smallest and the largest number of turns that a client had.
    fn least_and_most(&self) -> (u64, u64) {
        let seen = self.0.lock().unwrap();
        let served = seen.served.iter();
        (*served.clone().min().unwrap(), *served.max().unwrap())
    }
}
