//! Which commands work while the slot of a lock moves between two servers, and which wait.

use crate::redis::prelude::*;

/// The keys of a lease that have moved ahead, in each step.
const STEPS: [&[&str]; 2] = [&[], &["lock"]];

fn keys(name: &str, kinds: &[&str]) -> Vec<String> {
    kinds
        .iter()
        .map(|kind| format!("lg:{{{name}}}:{kind}"))
        .collect()
}

async fn ahead(cluster: &Cluster, name: &str, kinds: &[&str]) {
    let keys = keys(name, kinds);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    cluster.move_keys(&keys, 0, 1).await;
}

#[tokio::test]
async fn a_lease_is_renewed_and_released_wherever_its_keys_are() {
    let (cluster, store) = Pooled::open().await;
    for (name, gone) in cluster.names_on(0, 2).iter().zip(STEPS) {
        let asked = attempt(name);
        let lease = granted(store.acquire(&asked).await);
        cluster.begin_move(slot_of(name), 0, 1).await;
        ahead(&cluster, name, gone).await;
        let renewed = store.must_renew(&asked, Some(ttl(60_000))).await;
        assert!(renewed.expires_in > Duration::from_secs(50) && renewed.fence == lease.fence);
        let recipient = Renewer::Recipient(RecipientId::of_attempt(&asked.token));
        store.must_renew_as(recipient, &asked).await;
        store.must_release(&asked).await;
        // The lock is free, but no attempt may get it before the move of the slot has ended.
        assert_unavailable(store.acquire(&attempt(name)).await);
        cluster.end_move(slot_of(name), 0, 1).await;
        let next = attempt(name);
        let after = granted(store.acquire(&next).await);
        assert!(after.fence > lease.fence);
        store.must_release(&next).await;
        cluster.move_slot(slot_of(name), 1, 0).await;
    }
}

#[tokio::test]
async fn a_lease_with_a_key_is_released_and_that_is_not_remembered() {
    let (cluster, store) = Pooled::open().await;
    for (name, gone) in cluster.names_on(0, 2).iter().zip(STEPS) {
        let asked = store.must_hold(keyed(name, "key")).await;
        cluster.begin_move(slot_of(name), 0, 1).await;
        ahead(&cluster, name, gone).await;
        store.must_renew(&asked, None).await;
        store.must_release(&asked).await;
        cluster.end_move(slot_of(name), 0, 1).await;
        // The tombstone may be at the other server.
        store.must_not_release(&asked, Loss::Free).await;
        // The use of the key was known before the move.
        store.must_expire(&keyed(name, "key")).await;
        cluster.move_slot(slot_of(name), 1, 0).await;
    }
}

/// A provisional grant lives three seconds. On a busy machine the test tries several times to confirm it sooner.
const PROVISIONAL: Duration = Duration::from_millis(2_500);
const TRIES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_confirmed_wherever_its_lock_is_and_nothing_else_is_touched() {
    let (cluster, gates) = Pooled::with_gateways().await;
    let names = cluster.names_on(0, STEPS.len() * TRIES);
    for (names, gone) in names.chunks(TRIES).zip(STEPS) {
        let mut tries = names.iter();
        loop {
            let name = tries.next().expect("a machine is not as slow every time");
            if confirms(&cluster, &gates, name, gone).await {
                break;
            }
        }
    }
}

/// Whether a grant was confirmed in time. The grant is made before the move of the slot begins.
async fn confirms(cluster: &Cluster, gates: &[TestGateway; 2], name: &str, gone: &[&str]) -> bool {
    let lease = gates[0].take(name).await;
    let asked = waiting(keyed(name, "key"));
    let store = &gates[1].store;
    let place = store.stand(&asked).await;
    let start = Instant::now();
    gates[0].release(&lease).await;
    cluster.begin_move(slot_of(name), 0, 1).await;
    ahead(cluster, name, gone).await;
    let others = others_of(cluster, name).await;
    assert_eq!(others.len(), 2, "{others:?}");
    let confirmed = store.confirm(&asked.name, &asked.token).await;
    let in_time = start.elapsed() < PROVISIONAL;
    let untouched = others_of(cluster, name).await == others;
    cluster.end_move(slot_of(name), 0, 1).await;
    if in_time {
        let Ok(Confirmation::Confirmed(confirmed)) = confirmed else {
            panic!("{gone:?}: {confirmed:?}");
        };
        assert!(
            confirmed.fence > lease.held.fence && confirmed.expires_in > Duration::from_secs(25),
            "{gone:?}: {confirmed:?}"
        );
        assert!(untouched, "{gone:?}: {others:?}");
        store.must_release(&asked).await;
    }
    drop(place);
    store
        .give_back(&asked.name, &asked.token, None)
        .await
        .unwrap();
    cluster.move_slot(slot_of(name), 1, 0).await;
    in_time
}

/// The other keys of a lock at the old server: its ticket and its idempotency key.
async fn others_of(cluster: &Cluster, name: &str) -> Vec<(String, String)> {
    let server = &cluster.servers[0];
    let mut others = Vec::new();
    for kind in ["of:", "key:"] {
        let ours = keys(name, &[kind]).remove(0);
        for key in server.keys().await {
            if key.starts_with(&ours) {
                let value = server.text(&["GET", &key]).await;
                others.push((key, value));
            }
        }
    }
    others
}

#[tokio::test]
async fn what_a_token_without_a_lease_is_told_waits_until_the_slot_has_come_to_rest() {
    let (cluster, store) = Pooled::open().await;
    let name = &cluster.names_on(0, 1)[0];
    let (holder, other) = (attempt(name), attempt(name));
    granted(store.acquire(&holder).await);
    cluster.begin_move(slot_of(name), 0, 1).await;
    assert_unavailable(store.renew(&other.name, &other.token, None).await);
    assert_unavailable(store.release(&other.name, &other.token).await);
    cluster.end_move(slot_of(name), 0, 1).await;
    store.must_not_release(&other, Loss::HeldByAnother).await;
    store.must_release(&holder).await;
    cluster.move_slot(slot_of(name), 1, 0).await;
}

/// Grants the lock to each of these waiters, and asserts that the order is that of the queue.
async fn served_in_order(
    gates: &[TestGateway; 2],
    queue: Vec<PendingAcquire>,
    mut last: FencingToken,
) {
    for (turn, asked) in queue.into_iter().enumerate() {
        let lease = asked.lease().await;
        assert!(lease.held.fence > last, "{turn}: in the order of asking");
        last = lease.held.fence;
        gates[turn % 2].release(&lease).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_keep_their_places_and_are_served_when_the_slot_has_come_to_rest() {
    let (cluster, gates) = Pooled::with_gateways().await;
    let name = &cluster.names_on(0, 1)[0];
    let first = gates[0].take(name).await;
    let mut queue = Vec::new();
    for turn in 0..4 {
        queue.push(gates[turn % 2].queue(request(name)).await);
    }
    cluster.begin_move(slot_of(name), 0, 1).await;
    ahead(&cluster, name, &["lock", "wait"]).await;
    gates[0].release(&first).await;
    // Longer than a silent gateway counts as alive; in the short run, longer than its round.
    sleep(Duration::from_secs(if full() { 7 } else { 3 })).await;
    cluster.end_move(slot_of(name), 0, 1).await;
    served_in_order(&gates, queue, first.held.fence).await;
    cluster.move_slot(slot_of(name), 1, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_script_is_begun_that_could_come_upon_a_key_that_has_gone_ahead() {
    let (cluster, gates) = Pooled::with_gateways().await;
    let name = &cluster.names_on(0, 1)[0];
    let holder = keyed(name, "key");
    let last = granted(gates[0].acquire(&holder).await).fence;
    let mut queue = Vec::new();
    for turn in 0..4 {
        queue.push(gates[1 - turn % 2].queue(request(name)).await);
    }
    // Every key of the lock has stayed; only the keys that mark gateways as alive have moved.
    cluster.begin_move(slot_of(name), 0, 1).await;
    let here = cluster.servers[0].keys().await;
    let gone: Vec<_> = here.iter().filter(|key| key.contains("}:gw:")).collect();
    assert_eq!((here.len(), gone.len()), (10, 2), "{here:?}");
    let gone: Vec<&str> = gone.into_iter().map(String::as_str).collect();
    cluster.move_keys(&gone, 0, 1).await;
    let waits = waiting(attempt(name));
    assert_unavailable(gates[0].acquire(&waits).await);
    gates[0].must_release(&holder).await;
    let queued = format!("lg:{{{name}}}:wait");
    assert_eq!(cluster.servers[0].integer(&["LLEN", &queued]).await, 4);
    cluster.end_move(slot_of(name), 0, 1).await;
    served_in_order(&gates, queue, last).await;
    cluster.move_slot(slot_of(name), 1, 0).await;
}
