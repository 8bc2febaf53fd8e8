//! A gateway that is told to end while a thousand wait there: the real program.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    redlock::nodes::Nodes,
    support::{
        Caller, RedisServer, eventually,
        gateway::{Gateway, Setup},
        is_busy, raise_the_limit,
    },
};

const WAITERS: usize = 1_000;
/// Ten times what it takes to take as many out of a queue.
const SOON: Duration = Duration::from_secs(50);

/// How many wait for the lock, as this gateway says.
async fn waiters(gateway: &Gateway) -> Option<u64> {
    let shown = Caller::connect(gateway.address).await.inspect("lock").await;
    shown["waiter_count"].as_u64()
}

/// Has a thousand wait there.
async fn crowd(gateway: &Gateway) -> JoinSet<(u16, Value)> {
    raise_the_limit();
    let mut waiting = JoinSet::new();
    let address = gateway.address;
    for _ in 0..WAITERS {
        waiting.spawn(async move {
            let mut caller = Caller::connect(address).await;
            let body = json!({ "wait_ms": 55_000 });
            loop {
                let (status, told) = caller.acquire("lock", &body).await;
                // So many at once may be more than the nodes of a quorum answer in time.
                if !is_busy(&told) {
                    return (status, told);
                }
            }
        });
    }
    eventually("all are queued", async || {
        (waiters(gateway).await == Some(WAITERS as u64)).then_some(())
    })
    .await;
    waiting
}

/// Ends the gateway, and hears what each is told.
async fn end(gateway: &mut Gateway, mut waiting: JoinSet<(u16, Value)>) {
    let start = Instant::now();
    gateway.signal(Signal::TERM);
    while let Some(told) = waiting.join_next().await {
        let (status, problem) = told.expect("everybody is answered");
        assert_eq!(status, 503, "{problem}");
        assert_eq!(problem["code"], "draining", "{problem}");
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(gateway.wait().success(), "{}", gateway.log());
}

/// Nobody is left in the queue, the holder releases, and the next has the lock.
async fn goes_on(gateway: &Gateway, lease: &Value) {
    assert_eq!(waiters(gateway).await, Some(0));
    let mut caller = Caller::connect(gateway.address).await;
    caller.release("lock", lease).await;
    let (status, next) = caller.acquire("lock", &json!({})).await;
    assert_eq!(status, 201, "{next}");
    caller.release("lock", &next).await;
}

/// Ends one gateway while a thousand wait there for what is held at another.
async fn everybody_is_told_and_nobody_is_left(store: &str) {
    let setup = Setup::default()
        .with("LATCHGATE_STORE", store)
        .with("LATCHGATE_REDLOCK_PERSISTENCE", "aof-always");
    let start = || Gateway::start_with(setup.clone());
    let (mut ending, other) = (start(), start());
    let mut holder = Caller::connect(other.address).await;
    let (status, lease) = holder.acquire("lock", &json!({ "ttl_ms": 60_000 })).await;
    assert_eq!(status, 201, "{lease}");
    let waiting = crowd(&ending).await;
    end(&mut ending, waiting).await;
    goes_on(&other, &lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_embedded_store_each_is_told_so_and_the_next_has_the_lock_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", directory.path().display());
    let setup = Setup::default().with("LATCHGATE_STORE", &store);
    let mut ending = Gateway::start_with(setup.clone());
    let mut holder = Caller::connect(ending.address).await;
    let (status, lease) = holder.acquire("lock", &json!({ "ttl_ms": 600_000 })).await;
    assert_eq!(status, 201, "{lease}");
    let waiting = crowd(&ending).await;
    end(&mut ending, waiting).await;
    goes_on(&Gateway::start_with(setup), &lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_each_is_told_so_and_the_next_has_the_lock_at_another_gateway() {
    let server = RedisServer::start().await;
    let store = format!("redis://127.0.0.1:{}", server.port());
    everybody_is_told_and_nobody_is_left(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_quorum_each_is_told_so_and_the_next_has_the_lock_at_another_gateway() {
    let nodes = Nodes::start(3).await;
    everybody_is_told_and_nobody_is_left(&nodes.url().to_string()).await;
}
