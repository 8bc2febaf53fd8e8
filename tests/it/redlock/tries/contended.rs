//! Gateways that contend for one lock, checked by an observer; and more callers at once than the nodes can answer in
//! time.

use std::convert::Infallible;

use latchgate::{engine::GroupRequest, lock::GroupNames};

use crate::redlock::{faults::Seen, prelude::*};

const CLIENTS: u64 = 50;
/// Ten times as long as this takes on a busy machine.
const BOUND: Duration = Duration::from_mins(1);

fn engine(nodes: &Nodes) -> Engine {
    let lifecycle = Lifecycle::new();
    let store = Arc::new(nodes.open(&lifecycle));
    let (limits, history) = (LimitsConfig::default(), HistoryConfig::default());
    Engine::start(store, lifecycle, &limits, &history, Metrics::default())
}

fn request() -> AcquireRequest {
    new_request("contended", ttl(30_000), BOUND)
}

#[tokio::test]
async fn a_quorum_shares_no_lock_lets_none_rest_takes_no_waiter_out_and_does_not_ask_its_nodes_for_it()
 {
    let nodes = Nodes::start(3).await;
    let engine = engine(&nodes);
    for has_slot in [false, true] {
        let limit = Limit::new(3).unwrap();
        let shared = with(request(), |it| {
            it.terms.sharing = Some(Sharing { limit, has_slot });
        });
        let refused = timeout(BOUND, engine.acquire(shared)).await.unwrap();
        let expected = matches!(
            refused,
            Err(AcquireError::Unsupported(StoreFeature::Sharing))
        );
        assert!(expected, "{refused:?}");
    }
    let min_hold = MinHold::from_millis(1_000, ttl(30_000)).ok();
    let resting = with(request(), |it| it.terms.min_hold = min_hold);
    let refused = timeout(BOUND, engine.acquire(resting)).await.unwrap();
    let expected = matches!(
        refused,
        Err(AcquireError::Unsupported(StoreFeature::MinHold))
    );
    assert!(expected, "{refused:?}");
    let newest = with(request(), |it| {
        it.terms.supersedes = Some(SupersedeKey::new("deploy").unwrap().into());
    });
    let refused = timeout(BOUND, engine.acquire(newest)).await.unwrap();
    let expected = matches!(
        refused,
        Err(AcquireError::Unsupported(StoreFeature::Supersedes))
    );
    assert!(expected, "{refused:?}");
    let alone = timeout(BOUND, engine.acquire(request())).await.unwrap();
    assert!(alone.is_ok(), "the lock is free: {alone:?}");
}

#[tokio::test]
async fn a_quorum_takes_no_lock_of_a_group_of_which_one_is_to_be_shared() {
    let nodes = Nodes::start(3).await;
    let (engine, store) = (engine(&nodes), nodes.open(&Lifecycle::new()));
    // `contended` is the last of the three, and would be asked for first with an idempotency key.
    let names = GroupNames::parse(["a", "b", "contended"]).unwrap();
    for (shared, key) in [
        ("a", None),
        ("b", None),
        ("b", Some(IdempotencyKey::random())),
    ] {
        let group = GroupRequest::new(names.clone(), |part| {
            let limit = Limit::new(3).unwrap();
            let has_slot = true;
            let part = with(request(), |it| {
                it.name = part.clone();
                it.terms.sharing = (part.as_str() == shared).then_some(Sharing { limit, has_slot });
                it.idempotency_key = key.clone();
            });
            Ok::<_, Infallible>(part)
        });
        let refused = engine.acquire_group(group.unwrap(), || {});
        let refused = timeout(BOUND, refused).await.unwrap();
        let expected = matches!(&refused, Err(it) if matches!(it.error, AcquireError::Unsupported(StoreFeature::Sharing)));
        assert!(expected, "{refused:?}");
        for lock in names.iter() {
            let shown = store.inspect(lock).await.unwrap();
            assert_eq!(shown.holder, None, "{lock}");
        }
    }
}

async fn visits(engine: Engine, seen: Arc<Seen>, turns: u64) {
    for _ in 0..turns {
        let granted = timeout(BOUND, engine.acquire(request())).await;
        let granted = granted.expect("its turn comes").unwrap();
        granted.delivery.delivered();
        seen.enters(granted.lease.held.fence.get());
        tokio::task::yield_now().await;
        seen.leaves();
        let released = engine.release(name("contended"), granted.hash, None).await;
        released.unwrap();
    }
}

/// Lets each caller acquire the lock this many times.
async fn all_are_served(nodes: &Nodes, turns: u64) {
    let engines = [engine(nodes), engine(nodes)];
    let seen = Arc::new(Seen::default());
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let engine = engines[usize::try_from(client % 2).unwrap()].clone();
        clients.spawn(visits(engine, Arc::clone(&seen), turns));
    }
    let start = Instant::now();
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(seen.visits(), CLIENTS * turns);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_at_two_gateways_are_each_alone_with_rising_fences() {
    all_are_served(&Nodes::start(3).await, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_with_two_of_five_nodes_frozen() {
    // At first all nodes are needed.
    let nodes = Rig::start(5).await.nodes;
    for node in [0, 3] {
        nodes.servers[node].freeze();
    }
    // The remaining three nodes must all agree, so that the gateways often split them.
    all_are_served(&nodes, 1).await;
    for node in [0, 3] {
        nodes.servers[node].thaw();
    }
}

/// How long a hand-off may take: ten times the promise for 99 of 100.
const HAND_OFF: Duration = Duration::from_millis(500);

/// A holder that got the lock from the queue releases it at the other gateway. That gateway has no waiters and hands
/// nothing on, so the waiters' gateway must learn of the release from the nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_next_although_the_holder_releases_at_another_gateway() {
    let nodes = Nodes::start(3).await;
    let [here, there] = [engine(&nodes), engine(&nodes)];
    let mut slow = Vec::new();
    for _ in 0..5 {
        let first = here.acquire(request()).await.unwrap();
        first.delivery.delivered();
        let mut waiting = JoinSet::new();
        for waiters in 1..=2 {
            let engine = here.clone();
            waiting.spawn(async move {
                let granted = engine.acquire(request()).await.unwrap();
                granted.delivery.delivered();
                granted.hash
            });
            until("it waits", async || {
                let shown = here.inspect(&name("contended")).await.unwrap();
                shown.waiters == waiters
            })
            .await;
        }
        let released = here.release(name("contended"), first.hash, None).await;
        released.unwrap();
        let mut next = async || {
            let next = timeout(BOUND, waiting.join_next()).await;
            next.expect("its turn comes").unwrap().unwrap()
        };
        let second = next().await;
        let released = there.release(name("contended"), second, None).await;
        released.unwrap();
        let began = Instant::now();
        let third = next().await;
        let took = began.elapsed();
        if took >= HAND_OFF {
            slow.push(took);
        }
        there.release(name("contended"), third, None).await.unwrap();
    }
    assert!(slow.len() <= 1, "{slow:?}");
}

/// As many callers as a busy machine serves within their wait for room.
const CALLERS: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_granted_their_locks_one_after_the_other() {
    let rig = Rig::start(3).await;
    // The default time-out.
    let config = with(quick(), |it| {
        it.node_timeout_ms = RedlockConfig::default().node_timeout_ms;
    });
    let store = nodes::open(&rig.nodes.url(), &config, &rig.lifecycle);
    let begun = Instant::now();
    let callers = (0..CALLERS).map(async |caller| {
        let asked = attempt(&format!("lock:{caller}"));
        let outcome = store.acquire(&asked).await;
        (asked, outcome)
    });
    let mut refused = Vec::new();
    for (asked, outcome) in join_all(callers).await {
        match outcome {
            Ok(Acquisition::Granted(_)) => {
                store.must_release(&asked).await;
            }
            other => refused.push(other),
        }
    }
    println!("{CALLERS} callers at once: {:?}", begun.elapsed());
    assert!(
        refused.is_empty(),
        "{} of {CALLERS}: {:?}",
        refused.len(),
        refused[0]
    );
}
