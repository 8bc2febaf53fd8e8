//! Groups of locks, acquired by gateways on this store.

use std::convert::Infallible;

use latchgate::{
    engine::{GrantedGroup, GroupAcquireError, GroupRequest},
    lock::GroupNames,
};

use tokio::runtime::{self, Runtime};

use crate::conformance::prelude::*;

/// Longer than all clients of a case take together, on a busy machine and with a quorum.
const WAIT: Duration = Duration::from_secs(50);

fn engine(store: &AnyStore) -> Engine {
    let limits = LimitsConfig::default();
    Engine::start(store.clone(), Lifecycle::new(), &limits, Metrics::default())
}

/// A group request for these locks.
fn group(
    locks: &[&str],
    ttl_ms: u64,
    wait: Duration,
    key: Option<&IdempotencyKey>,
) -> GroupRequest {
    let names = GroupNames::parse(locks.iter().copied()).unwrap();
    let part = |name: &LockName| {
        Ok::<_, Infallible>(AcquireRequest {
            ttl: ttl(ttl_ms),
            wait,
            owner: None,
            idempotency_key: key.cloned(),
            ..request(name.as_str(), "nobody")
        })
    };
    GroupRequest::new(names, part).unwrap()
}

/// A runtime for a gateway that the test stops in the middle of a wait.
fn doomed() -> Runtime {
    let mut threads = runtime::Builder::new_multi_thread();
    threads.worker_threads(1).enable_all().build().unwrap()
}

async fn acquire(
    engine: &Engine,
    request: GroupRequest,
) -> Result<GrantedGroup, GroupAcquireError> {
    engine.acquire_group(request, || {}).await
}

async fn release(engine: &Engine, held: GrantedGroup) {
    for lease in &held.leases {
        let released = engine.release(lease.name.clone(), held.hash).await;
        released.unwrap();
    }
    held.delivery.delivered();
}

pub(super) async fn twenty_clients_of_overlapping_groups_are_all_served(fixture: &dyn Fixture) {
    const LOCKS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let stores = fixture.gateways();
    let engines: Vec<_> = stores.iter().map(engine).collect();
    let held: BTreeMap<_, _> = LOCKS
        .map(|lock| (name(lock), AtomicBool::new(false)))
        .into();
    let held = Arc::new(held);
    let clients = (0..20).map(|client| {
        let engine = engines[client % engines.len()].clone();
        let held = Arc::clone(&held);
        // Each client wants two or three of the locks, and names them in another order.
        let wanted: Vec<_> = (0..2 + client % 2)
            .map(|part| LOCKS[(client + 2 * part) % LOCKS.len()])
            .rev()
            .collect();
        // Half of the clients send an idempotency key.
        let key = (client % 2 == 0).then(IdempotencyKey::random);
        async move {
            let request = group(&wanted, LONG, WAIT, key.as_ref());
            let granted = acquire(&engine, request).await;
            let granted = granted.unwrap_or_else(|error| panic!("client {client}: {error:?}"));
            for lease in &granted.leases {
                let before = held[&lease.name].swap(true, Ordering::SeqCst);
                assert!(!before, "{} is held by two", lease.name);
            }
            sleep(Duration::from_millis(3)).await;
            for lease in &granted.leases {
                held[&lease.name].store(false, Ordering::SeqCst);
            }
            release(&engine, granted).await;
        }
    });
    let all = timeout(WAIT, join_all(clients)).await;
    all.expect("nothing waits for ever");
    for lock in LOCKS {
        // The locks of a group that was not granted are released a moment later.
        fixture.store().until_free(lock).await;
    }
}

pub(super) async fn each_part_is_an_ordinary_lease_that_shows_its_group(fixture: &dyn Fixture) {
    let store = fixture.store();
    let engine = engine(&store);
    let held = acquire(
        &engine,
        group(&["y", "x/a", "z"], LONG, Duration::ZERO, None),
    )
    .await;
    let held = held.unwrap();
    for lease in &held.leases {
        let shown = store.must_be_held(&lease.name).await;
        assert_eq!((shown.fence, shown.ttl), (lease.held.fence, ttl(LONG)));
        let group = shown.metadata.group().unwrap();
        assert_eq!((group.first, group.count), (name("x/a"), 3));
        assert_eq!(shown.metadata.iter().count(), 0);
    }
    // One lease is released separately, and the others go on with the same token.
    let token = held.leases[0].token.clone();
    engine.release(name("y"), held.hash).await.unwrap();
    assert!(is_free(&store, "y").await);
    let renewal = engine.renew(name("z"), token, RenewalTtl::default());
    assert_eq!(renewal.await.unwrap().held.fence, held.leases[2].held.fence);
    for lock in ["x/a", "z"] {
        engine.release(name(lock), held.hash).await.unwrap();
    }
    held.delivery.delivered();
}

pub(super) async fn a_lock_that_is_held_leaves_the_others_free(fixture: &dyn Fixture) {
    let store = fixture.store();
    let engine = engine(&store);
    let other = store.must_hold(attempt("y", LONG)).await;
    for key in [None, Some(IdempotencyKey::random())] {
        let request = group(&["x", "y", "z"], LONG, Duration::ZERO, key.as_ref());
        let error = acquire(&engine, request).await.unwrap_err();
        assert_eq!(error.name, Some(name("y")));
        let expected = matches!(error.error, AcquireError::Held { .. });
        assert!(expected, "{error:?}");
        for lock in ["x", "z"] {
            store.until_free(lock).await;
        }
        // With an idempotency key, the refused request may be repeated with success.
        if let Some(key) = key {
            released(&store, &other).await;
            let request = group(&["x", "y", "z"], LONG, Duration::ZERO, Some(&key));
            let held = acquire(&engine, request).await.unwrap();
            release(&engine, held).await;
        }
    }
}

pub(super) async fn a_request_that_is_repeated_is_answered_the_same_leases(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    let key = IdempotencyKey::random();
    let request = || group(&["x", "y"], LONG, Duration::ZERO, Some(&key));
    let first_engine = engine(&stores[0]);
    let first = acquire(&first_engine, request()).await.unwrap();
    let fences = |held: &GrantedGroup| {
        let fences = held.leases.iter().map(|lease| lease.held.fence);
        fences.collect::<Vec<_>>()
    };
    // The repeated request goes to another gateway, if there is one. The answer to the first request counts as lost
    // only then.
    let other_engine = engine(&stores[stores.len() - 1]);
    let again = acquire(&other_engine, request()).await.unwrap();
    assert!(again.delivery.is_replay());
    assert_eq!((again.hash, fences(&again)), (first.hash, fences(&first)));
    again.delivery.delivered();
    drop(first.delivery);
    sleep(Duration::from_millis(100)).await;
    let others = group(&["w", "y"], LONG, Duration::ZERO, Some(&key));
    let mismatch = acquire(&other_engine, others).await.unwrap_err();
    let expected = matches!(mismatch.error, AcquireError::IdempotencyMismatch);
    assert!(expected, "{mismatch:?}");
    for lock in ["x", "y"] {
        other_engine.release(name(lock), first.hash).await.unwrap();
    }
    let ended = acquire(&other_engine, request()).await.unwrap_err();
    let expected = matches!(ended.error, AcquireError::IdempotencyExpired);
    assert!(expected, "{ended:?}");
}

pub(super) async fn a_gateway_that_is_killed_leaves_what_ends_by_itself(fixture: &dyn Fixture) {
    const BRIEF: u64 = 1_000;
    let (store, _other) = holding(fixture, attempt("y", LONG)).await;
    // Everything of this gateway runs on a runtime that the test stops in the middle of the wait.
    let doomed = doomed();
    let killed = store.clone();
    doomed.spawn(async move {
        let engine = engine(&killed);
        drop(acquire(&engine, group(&["x", "y"], BRIEF, WAIT, None)).await);
    });
    let is_so = async || !is_free(&store, "x").await;
    until("it takes the first lock", is_so).await;
    // The first lock is kept while the group waits for the second.
    sleep(Duration::from_millis(2 * BRIEF)).await;
    assert!(!is_free(&store, "x").await);
    doomed.shutdown_background();
    store.until_free("x").await;
}

pub(super) async fn a_group_of_a_killed_gateway_is_finished_for_who_asks_again(
    fixture: &dyn Fixture,
) {
    let (store, other) = holding(fixture, attempt("y", LONG)).await;
    let key = IdempotencyKey::random();
    let request = group(&["x", "y"], LONG, WAIT, Some(&key));
    let doomed = doomed();
    let (killed, asked) = (store.clone(), request.clone());
    doomed.spawn(async move {
        let engine = engine(&killed);
        drop(acquire(&engine, asked).await);
    });
    let waiters = async || store.inspect(&name("y")).await.unwrap().waiters;
    until("it waits for the second lock", async || waiters().await > 0).await;
    doomed.shutdown_background();
    // The lock passes to the stopped gateway's request, unless the store notices its end first.
    released(&store, &other).await;
    let engine = engine(&fixture.gateways()[0]);
    let held = acquire(&engine, request).await.unwrap();
    for lease in &held.leases {
        assert_eq!(lease.held.ttl, ttl(LONG), "{}", lease.name);
    }
    release(&engine, held).await;
}
