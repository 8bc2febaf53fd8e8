//! Groups of locks, acquired by gateways on this store.

use std::{convert::Infallible, sync::atomic::AtomicU64};

use latchgate::{
    engine::{AwaitedLock, GrantedGroup, GroupAcquireError, GroupRequest},
    lock::GroupNames,
};

use tokio::runtime::{self, Runtime};

use crate::conformance::prelude::*;

/// Longer than all clients of a case take together, on a busy machine and with a quorum.
const WAIT: Duration = Duration::from_secs(50);

fn engine(store: &AnyStore) -> Engine {
    let (limits, history) = (LimitsConfig::default(), HistoryConfig::default());
    let (lifecycle, metrics) = (Lifecycle::new(), Metrics::default());
    Engine::start(store.clone(), lifecycle, &limits, &history, metrics)
}

/// A group request for these locks.
fn group(
    locks: &[&str],
    ttl_ms: u64,
    wait: Duration,
    key: Option<&IdempotencyKey>,
) -> GroupRequest {
    let locks: Vec<_> = locks.iter().map(|lock| (*lock, None)).collect();
    mixed(&locks, ttl_ms, wait, key)
}

/// A group request for these locks, each with its own sharing.
fn mixed(
    locks: &[(&str, Option<Sharing>)],
    ttl_ms: u64,
    wait: Duration,
    key: Option<&IdempotencyKey>,
) -> GroupRequest {
    let names = GroupNames::parse(locks.iter().map(|(lock, _)| *lock)).unwrap();
    let part = |part: &LockName| {
        let own = locks.iter().find(|(lock, _)| name(lock) == *part);
        let part = with(new_request(part.as_str(), ttl(ttl_ms), wait), |it| {
            it.terms.sharing = own.and_then(|(_, sharing)| *sharing);
            it.idempotency_key = key.cloned();
        });
        Ok::<_, Infallible>(part)
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
        let released = engine.release(lease.name.clone(), held.hash, None).await;
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
        let group = shown.said.group.unwrap();
        assert_eq!((group.first, group.count), (name("x/a"), 3));
        assert_eq!(shown.said.metadata.iter().count(), 0);
    }
    // One lease is released separately, and the others go on with the same token.
    let token = held.leases[0].token.clone();
    engine.release(name("y"), held.hash, None).await.unwrap();
    assert!(is_free(&store, "y").await);
    let renewal = engine.renew(name("z"), token, RenewalTtl::default());
    assert_eq!(renewal.await.unwrap().held.fence, held.leases[2].held.fence);
    for lock in ["x/a", "z"] {
        engine.release(name(lock), held.hash, None).await.unwrap();
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
    // A release of the group that came before the repeated request ends no part of it.
    let earlier = Releaser::Recipient(RecipientId::of_attempt(&first.hash));
    for lock in ["x", "y"] {
        let released = stores[0]
            .release_as(earlier, &name(lock), &first.hash, true)
            .await;
        assert!(
            matches!(released, Ok(Release::Adopted(_))),
            "{lock}: {released:?}"
        );
    }
    let others = group(&["w", "y"], LONG, Duration::ZERO, Some(&key));
    let mismatch = acquire(&other_engine, others).await.unwrap_err();
    let expected = matches!(mismatch.error, AcquireError::IdempotencyMismatch);
    assert!(expected, "{mismatch:?}");
    for lock in ["x", "y"] {
        other_engine
            .release(name(lock), first.hash, None)
            .await
            .unwrap();
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

/// The lock that the group of the lease at this lock waits for, as this gateway finds it.
async fn awaited(engine: &Engine, lock: &str) -> Option<AwaitedLock> {
    let holder = engine.inspect(&name(lock)).await.unwrap().holder.unwrap();
    let mut awaited = engine.awaited_locks(&holder).await.into_iter();
    awaited.next().map(|(_, awaited)| awaited)
}

pub(super) async fn a_group_that_waits_is_marked_until_it_is_complete(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    let (store, other) = holding(fixture, owned("ann", attempt("z", LONG))).await;
    let (first_engine, other_engine) = (engine(&stores[0]), engine(&stores[stores.len() - 1]));
    let waiting = {
        let request = group(&["x", "y", "z"], LONG, WAIT, None);
        let engine = first_engine.clone();
        spawned(async move { acquire(&engine, request).await })
    };
    let waiters = async || store.inspect(&name("z")).await.unwrap().waiters;
    until("it waits for the last lock", async || waiters().await > 0).await;
    for lock in ["x", "y"] {
        assert!(store.must_be_held(&name(lock)).await.is_waiting(), "{lock}");
        let awaited = awaited(&other_engine, lock).await.unwrap();
        assert_eq!(awaited.name, name("z"), "{lock}");
        let holder = awaited.holder.unwrap();
        assert_eq!(
            holder.leases()[0].said.owner,
            Some(Owner::new("ann").unwrap())
        );
    }
    let query = ListQuery {
        filter: ListFilter::default(),
        limit: 100,
        cursor: None,
    };
    let page = store.list(&query).await.unwrap();
    let leases = page.locks.iter().flat_map(|lock| lock.holder.leases());
    assert_eq!(leases.filter(|lease| lease.is_waiting()).count(), 2);
    released(&store, &other).await;
    let held = waiting.await.unwrap().unwrap();
    for lock in ["x", "y", "z"] {
        let shown = store.must_be_held(&name(lock)).await;
        assert_eq!(
            (shown.ttl, shown.is_waiting()),
            (ttl(LONG), false),
            "{lock}"
        );
        assert_eq!(awaited(&other_engine, lock).await, None, "{lock}");
    }
    release(&first_engine, held).await;
}

pub(super) async fn a_renewal_of_a_complete_group_removes_a_mark_that_came_back(
    fixture: &dyn Fixture,
) {
    let store = fixture.store();
    let engine = engine(&store);
    let request = group(&["x", "y"], LONG, Duration::ZERO, None);
    let held = acquire(&engine, request).await.unwrap();
    let token = &held.leases[0].token;
    // As after a failover that has lost the renewal by which the group became complete.
    let brief = ttl(LONG).while_collected();
    let renewed = store.renew(&name("x"), &held.hash, Some(brief)).await;
    assert!(matches!(renewed, Ok(Renewal::Renewed(lease, _)) if lease.is_waiting()));
    assert_eq!(
        awaited(&engine, "x").await,
        None,
        "the group has all of its locks"
    );
    for (asked, expected) in [(None, ttl(LONG)), (Some(brief), brief.while_collected())] {
        let asked = RenewalTtl { asked, max: None };
        let renewal = engine.renew(name("x"), token.clone(), asked);
        assert_eq!(renewal.await.unwrap().held.ttl, expected);
        let shown = store.must_be_held(&name("x")).await;
        assert_eq!((shown.ttl, shown.is_waiting()), (expected, false));
    }
    release(&engine, held).await;
}

// === Modes ===
//
// Groups whose locks have modes of their own, on stores that share locks.

pub(super) async fn each_lock_of_a_group_is_held_in_its_own_mode(fixture: &dyn Fixture) {
    let store = fixture.store();
    let engine = engine(&store);
    let (reader, pool) = (Some(share(None)), Some(share(Some(2))));
    let modes = |held: &GrantedGroup| {
        let modes = held.leases.iter().map(|lease| lease.held.mode);
        modes.collect::<Vec<_>>()
    };
    let take = async |locks: &[(&str, Option<Sharing>)], key: Option<&IdempotencyKey>| {
        acquire(&engine, mixed(locks, LONG, Duration::ZERO, key)).await
    };
    let key = IdempotencyKey::random();
    let first = [("x", None), ("y", pool), ("z", reader)];
    let held = take(&first, None).await.unwrap();
    let slot = |slot| Mode::Shared { slot };
    assert_eq!(modes(&held), [Mode::Exclusive, slot(Some(0)), slot(None)]);
    let second = [("w", None), ("y", pool), ("z", reader)];
    let beside = take(&second, Some(&key)).await.unwrap();
    assert_eq!(modes(&beside), [Mode::Exclusive, slot(Some(1)), slot(None)]);
    for lease in &beside.leases {
        let token = beside.leases[0].token.clone();
        let renewal = engine.renew(lease.name.clone(), token, RenewalTtl::default());
        assert_eq!(renewal.await.unwrap().held.mode, lease.held.mode);
    }
    assert_eq!(
        (holders(&store, "y").await, holders(&store, "z").await),
        (2, 2)
    );
    // Each lock refuses by its own mode, and nothing is left of a refused group.
    for (locks, refusing) in [
        ([("v", None), ("x", reader)], "x"),
        ([("v", reader), ("y", pool)], "y"),
        ([("v", pool), ("z", None)], "z"),
    ] {
        for key in [None, Some(IdempotencyKey::random())] {
            let error = take(&locks, key.as_ref()).await.unwrap_err();
            let expected = matches!(error.error, AcquireError::Held { .. });
            assert!(expected && error.name == Some(name(refusing)), "{error:?}");
            store.until_free("v").await;
        }
    }
    release(&engine, held).await;
    let held = take(&first, Some(&IdempotencyKey::random())).await.unwrap();
    assert_eq!(modes(&held)[1], slot(Some(0)), "the slot that became free");
    release(&engine, held).await;
    release(&engine, beside).await;
}

pub(super) async fn a_group_stands_in_the_queue_in_the_mode_of_each_lock(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    let (store, engines) = (&stores[0], stores.iter().map(engine));
    let engines: Vec<_> = engines.collect();
    let other = &engines[engines.len() - 1];
    let deploy = |lock| {
        let locks = [(lock, None), ("freeze", Some(share(None)))];
        mixed(&locks, LONG, WAIT, None)
    };
    let under_way = acquire(&engines[0], deploy("deploy:a")).await.unwrap();
    let freezes = {
        let (engine, request) = (other.clone(), request("freeze", "ann"));
        spawned(async move { engine.acquire(request).await })
    };
    let waiting = async |count| store.inspect(&name("freeze")).await.unwrap().waiters == count;
    until("the freeze waits for what is under way", async || {
        waiting(1).await
    })
    .await;
    let late = {
        let (engine, request) = (engines[0].clone(), deploy("deploy:b"));
        spawned(async move { acquire(&engine, request).await })
    };
    until("the later group stands behind it", async || {
        waiting(2).await
    })
    .await;
    release(&engines[0], under_way).await;
    let frozen = freezes.await.unwrap().unwrap();
    assert_eq!(frozen.lease.held.mode, Mode::Exclusive);
    assert!(!late.is_finished(), "all is frozen");
    other
        .release(name("freeze"), frozen.hash, None)
        .await
        .unwrap();
    frozen.delivery.delivered();
    let late = late.await.unwrap().unwrap();
    assert!(late.leases[1].held.mode.is_shared());
    release(&engines[0], late).await;
}

pub(super) async fn a_repeated_group_must_have_the_same_modes(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    let key = IdempotencyKey::random();
    let request = |x, y| mixed(&[("x", x), ("y", y)], LONG, Duration::ZERO, Some(&key));
    let pool = |limit| Some(share(Some(limit)));
    let first_engine = engine(&stores[0]);
    let first = acquire(&first_engine, request(pool(2), None))
        .await
        .unwrap();
    let other_engine = engine(&stores[stores.len() - 1]);
    let again = acquire(&other_engine, request(pool(2), None))
        .await
        .unwrap();
    assert!(again.delivery.is_replay());
    assert_eq!(again.hash, first.hash);
    for (again, first) in again.leases.iter().zip(&first.leases) {
        assert_eq!(
            (again.held.mode, again.held.fence),
            (first.held.mode, first.held.fence)
        );
    }
    again.delivery.delivered();
    for (x, y) in [
        (None, None),
        (pool(3), None),
        (Some(share(None)), None),
        (pool(2), pool(2)),
    ] {
        let error = acquire(&other_engine, request(x, y)).await.unwrap_err();
        let expected = matches!(error.error, AcquireError::IdempotencyMismatch);
        assert!(expected, "{x:?} {y:?}: {error:?}");
    }
    release(&first_engine, first).await;
}

pub(super) async fn many_groups_in_mixed_modes_are_all_served(fixture: &dyn Fixture) {
    const LOCKS: [&str; 4] = ["a", "b", "c", "d"];
    // For each lock, how many hold it shared; an exclusive holder counts as many.
    const ALONE: u64 = 1_000;
    let engines: Vec<_> = fixture.gateways().iter().map(engine).collect();
    let held: Arc<BTreeMap<_, _>> =
        Arc::new(LOCKS.map(|lock| (name(lock), AtomicU64::new(0))).into());
    let clients = (0..20).map(|client| {
        let engine = engines[client % engines.len()].clone();
        let held = Arc::clone(&held);
        let wanted: Vec<_> = (0..2 + client % 2)
            .map(|part| {
                // Each lock is wanted alone, as one of two, and without a limit.
                let sharing = match (client + part) % 3 {
                    0 => None,
                    1 => Some(share(Some(2))),
                    _ => Some(share(None)),
                };
                (LOCKS[(client + 3 * part) % LOCKS.len()], sharing)
            })
            .collect();
        let key = (client % 2 == 0).then(IdempotencyKey::random);
        async move {
            let granted = acquire(&engine, mixed(&wanted, LONG, WAIT, key.as_ref())).await;
            let granted = granted.unwrap_or_else(|error| panic!("client {client}: {error:?}"));
            let weight = |lease: &Lease| {
                if lease.held.mode.is_shared() {
                    1
                } else {
                    ALONE
                }
            };
            for lease in &granted.leases {
                let before = held[&lease.name].fetch_add(weight(lease), Ordering::SeqCst);
                let own = wanted.iter().find(|(lock, _)| name(lock) == lease.name);
                let most = own.unwrap().1.map_or(0, |it| u64::from(it.limit.get()) - 1);
                assert!(before <= most, "{} is held by {before} besides", lease.name);
            }
            sleep(Duration::from_millis(3)).await;
            for lease in &granted.leases {
                held[&lease.name].fetch_sub(weight(lease), Ordering::SeqCst);
            }
            release(&engine, granted).await;
        }
    });
    let all = timeout(WAIT, join_all(clients)).await;
    all.expect("nothing waits for ever");
    for lock in LOCKS {
        fixture.store().until_free(lock).await;
    }
}

pub(super) async fn what_a_killed_gateway_shares_ends_by_itself_and_nothing_else(
    fixture: &dyn Fixture,
) {
    const BRIEF: u64 = 1_000;
    let (store, _other) = holding(fixture, attempt("y", LONG)).await;
    let sharer = one_of(2, "x", LONG);
    granted(&store, &sharer).await;
    let doomed = doomed();
    let killed = store.clone();
    doomed.spawn(async move {
        let engine = engine(&killed);
        let locks = [("x", Some(share(Some(2)))), ("y", None)];
        drop(acquire(&engine, mixed(&locks, BRIEF, WAIT, None)).await);
    });
    let shared_by = async |count| holders(&store, "x").await == count;
    until("it takes the first lock", async || shared_by(2).await).await;
    doomed.shutdown_background();
    until("its lease has ended", async || shared_by(1).await).await;
    released(&store, &sharer).await;
}

#[expect(
    clippy::disallowed_methods,
    reason = "the caller of a test is no task of the program"
)]
fn spawned<T: Send + 'static>(
    caller: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(caller)
}
