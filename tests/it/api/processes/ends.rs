//! Ends of whole gateway processes while locks are held or waited for there.

use crate::{api::prelude::*, redlock::nodes::Nodes, support::is_busy};

async fn pair() -> (RedisServer, Gateway, Gateway) {
    let server = RedisServer::start().await;
    let start = || Gateway::start_with(Setup::on(&server));
    let (first, second) = (start(), start());
    (server, first, second)
}

async fn hold(gateway: &Gateway, headers: &str, body: &str) -> Listener {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    Listener::hold(stream, headers, body).await
}

fn fence(lease: &Value) -> u64 {
    lease["fencing_token"].as_u64().unwrap()
}

#[tokio::test]
async fn the_lock_of_a_gateway_that_is_killed_passes_on_when_the_ttl_is_over() {
    let (_server, mut first, second) = pair().await;
    let body = r#"{"ttl_ms": 3000, "wait_ms": 20000}"#;
    let mut held = hold(&first, "", body).await;
    let lease = held.expect("granted").await;
    let mut next = hold(&second, "", body).await;
    next.expect("queued").await;
    held.expect("renewed").await;
    let killed = Instant::now();
    first.kill();
    let after = next.expect("granted").await;
    let waited = killed.elapsed();
    // The lock is free after the TTL, counted from a renewal just before the end, and at most a few seconds later.
    assert!(waited > Duration::from_secs(2), "{waited:?}");
    assert!(waited < Duration::from_secs(15), "{waited:?}");
    assert!(fence(&after) > fence(&lease));
}

#[tokio::test]
async fn the_lock_of_a_gateway_that_is_told_to_end_is_adopted_at_another() {
    let (_server, mut first, second) = pair().await;
    let mut held = hold(&first, "", r#"{"ttl_ms": 3000}"#).await;
    let lease = held.expect("granted").await;
    let mut next = hold(&second, "", r#"{"wait_ms": 20000}"#).await;
    next.expect("queued").await;
    first.signal(Signal::TERM);
    held.expect("renewed").await;
    held.expect("draining").await;
    held.ends().await;
    drop(held);
    assert!(first.wait().success());
    let header = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
    let mut adopted = hold(&second, &header, "").await;
    assert_eq!(fence(&adopted.expect("granted").await), fence(&lease));
    drop(adopted);
    assert!(fence(&next.expect("granted").await) > fence(&lease));
}

#[tokio::test]
async fn a_gateway_that_is_killed_while_it_only_parks_delays_the_others_once() {
    let (_server, mut victim, other) = pair().await;
    let body = r#"{"wait_ms": 50000}"#;
    let held = hold(&other, "", "").await;
    let mut parked = Vec::new();
    for _ in 0..20 {
        let mut waits = hold(&victim, "", body).await;
        waits.expect("queued").await;
        parked.push(waits);
    }
    let mut others = Vec::new();
    for _ in 0..2 {
        let mut waits = hold(&other, "", body).await;
        waits.expect("queued").await;
        others.push(waits);
    }
    victim.kill();
    drop(held);
    let released = Instant::now();
    for mut next in others {
        // The dead waiters before this one are skipped, and each skip sends an event about the new position.
        while next.event().await.0 != "granted" {}
        let waited = released.elapsed();
        // A grant to each dead waiter would cost three seconds, in which no caller confirms it.
        assert!(waited < Duration::from_secs(30), "{waited:?}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_late_leaves_the_lock_to_the_gateway_that_adopted_it() {
    let (_server, first, second) = pair().await;
    let mut older = hold(&first, "", r#"{"ttl_ms": 3000}"#).await;
    let lease = older.expect("granted").await;
    let header = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
    let mut newer = hold(&second, &header, "").await;
    assert_eq!(fence(&newer.expect("granted").await), fence(&lease));
    // The first gateway learns only now that the older stream has no reader.
    drop(older);
    let mut next = hold(&first, "", r#"{"wait_ms": 20000}"#).await;
    next.expect("queued").await;
    // Four renewals take longer than a TTL.
    for _ in 0..4 {
        newer.expect("renewed").await;
    }
    drop(newer);
    assert!(fence(&next.expect("granted").await) > fence(&lease));
}

const WAITERS: usize = 1_000;
/// Ten times what it takes to remove as many waiters from a queue.
const SOON: Duration = Duration::from_secs(50);

/// How many requests wait for the lock, as this gateway shows.
async fn waiters(gateway: &Gateway) -> Option<u64> {
    let shown = Caller::connect(gateway.address).await.inspect("lock").await;
    shown["waiter_count"].as_u64()
}

/// Starts a thousand requests that wait at a gateway.
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
                // A thousand requests at once may be more than the nodes of a quorum can answer in time.
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

/// Ends the gateway and reads the answer to each waiter.
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

/// Asserts that the queue is empty, and that the lock is granted to the next request after the holder's release.
async fn goes_on(gateway: &Gateway, lease: &Value) {
    assert_eq!(waiters(gateway).await, Some(0));
    let mut caller = Caller::connect(gateway.address).await;
    caller.release("lock", lease).await;
    let (status, next) = caller.acquire("lock", &json!({})).await;
    assert_eq!(status, 201, "{next}");
    caller.release("lock", &next).await;
}

/// Ends a gateway at which a thousand requests wait for a lock that is held at another gateway.
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
