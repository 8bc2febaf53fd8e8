//! Shared locks while their slot moves between two servers.

use crate::redis::prelude::*;

/// Moves the first `count` keys of a shared lock ahead: the key of the lock, and then those of its leases.
async fn ahead(cluster: &Cluster, lock: &str, count: usize) {
    let keys = shared_keys(lock);
    let keys: Vec<&str> = keys.iter().take(count).map(String::as_str).collect();
    cluster.move_keys(&keys, 0, 1).await;
}

async fn renewed(store: &RedisStore, asked: &Attempt) -> Result<Renewal, StoreError> {
    store
        .renew(&asked.name, &asked.token, Some(ttl(60_000)))
        .await
}

#[tokio::test]
async fn leases_that_share_a_lock_are_renewed_and_released_at_either_server() {
    let (cluster, store) = Pooled::open().await;
    for (name, gone) in cluster.names_on(0, 2).iter().zip([0, 4]) {
        let sharing = [reader(name), one_of(3, name), one_of(3, name)];
        store.must_grant_each(&sharing).await;
        cluster.begin_move(slot_of(name), 0, 1).await;
        ahead(&cluster, name, gone).await;
        for (asked, slot) in sharing.iter().zip([None, Some(0), Some(1)]) {
            let lease = store.must_renew(asked, Some(ttl(60_000))).await;
            assert_eq!(lease.mode.slot(), slot, "{gone}");
            store.must_pass(name, lease.fence).await;
        }
        // Room that becomes free is granted to no attempt before the move of the slot has ended.
        store.must_release(&sharing[1]).await;
        assert_unavailable(store.acquire(&reader(name)).await);
        assert_unavailable(store.acquire(&attempt(name)).await);
        cluster.end_move(slot_of(name), 0, 1).await;
        let next = one_of(3, name);
        assert_eq!(granted(store.acquire(&next).await).mode.slot(), Some(0));
        store.must_refuse(&one_of(3, name)).await;
        store
            .must_release_each([&sharing[0], &sharing[2], &next])
            .await;
        cluster.move_slot(slot_of(name), 1, 0).await;
    }
}

#[tokio::test]
async fn a_lock_rests_that_is_released_while_its_slot_moves() {
    let (cluster, store) = Pooled::open().await;
    let names = cluster.names_on(0, 4);
    let attempts: [fn(&str) -> Attempt; 2] = [attempt, |name| one_of(3, name)];
    for (at, name) in names.iter().enumerate() {
        let asked = attempts[at % 2](name);
        let min_hold = MinHold::from_millis(20_000, asked.terms.ttl()).ok();
        let asked = with(asked, |it| it.terms.min_hold = min_hold);
        let lease = store.must_hold(asked).await;
        cluster.begin_move(slot_of(name), 0, 1).await;
        if at >= 2 {
            let count = if at % 2 == 0 { 1 } else { 4 };
            ahead(&cluster, name, count).await;
        }
        store.must_release(&lease).await;
        cluster.end_move(slot_of(name), 0, 1).await;
        let holder = store.inspect(&lease.name).await.unwrap().holder;
        assert!(holder.is_some_and(|holder| holder.is_resting()), "{at}");
        store.must_refuse(&attempt(name)).await;
        cluster.move_slot(slot_of(name), 1, 0).await;
    }
}

#[tokio::test]
async fn the_last_who_shared_a_lock_leaves_nothing_behind_on_the_way() {
    let (cluster, store) = Pooled::open().await;
    for (name, gone) in cluster.names_on(0, 2).iter().zip([0, 4]) {
        let sharing = [one_of(2, name), one_of(2, name)];
        store.must_grant_each(&sharing).await;
        cluster.begin_move(slot_of(name), 0, 1).await;
        ahead(&cluster, name, gone).await;
        store.must_release_each(&sharing).await;
        let keys = shared_keys(name);
        for server in &cluster.servers[..2] {
            let here = server.keys().await;
            let left: Vec<_> = here.iter().filter(|key| keys.contains(key)).collect();
            assert!(left.is_empty(), "{gone}: {left:?}");
        }
        cluster.end_move(slot_of(name), 0, 1).await;
        let alone = store.must_hold(attempt(name)).await;
        store.must_release(&alone).await;
        cluster.move_slot(slot_of(name), 1, 0).await;
    }
}

#[tokio::test]
async fn while_its_keys_are_in_two_places_nothing_of_a_lock_that_is_shared_changes() {
    let (cluster, store) = Pooled::open().await;
    for (name, gone) in cluster.names_on(0, 3).iter().zip([1, 2, 3]) {
        let sharing = [one_of(2, name), one_of(2, name)];
        let held = store.must_grant_each(&sharing).await;
        cluster.begin_move(slot_of(name), 0, 1).await;
        ahead(&cluster, name, gone).await;
        if gone < 3 {
            let query = fence_query(name, held[0].fence);
            assert_unavailable(store.check_fence(&query).await);
        } else {
            store.must_pass(name, held[0].fence).await;
        }
        assert_unavailable(renewed(&store, &sharing[0]).await);
        let Attempt {
            name: lock, token, ..
        } = &sharing[1];
        assert_unavailable(store.release(lock, token).await);
        assert_unavailable(store.acquire(&reader(name)).await);
        cluster.end_move(slot_of(name), 0, 1).await;
        let holders = store.must_be_shared(&sharing[0].name).await;
        assert_eq!(holders.count, 2, "{gone}");
        for asked in &sharing {
            store.must_renew(asked, None).await;
            store.must_release(asked).await;
        }
        cluster.move_slot(slot_of(name), 1, 0).await;
    }
}

/// A provisional grant lives three seconds. On a busy machine the test tries several times to confirm it sooner.
const PROVISIONAL: Duration = Duration::from_millis(2_500);
const TRIES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_beside_others_is_confirmed_while_the_slot_moves() {
    let (cluster, gates) = Pooled::with_gateways().await;
    for gone in [0, 4] {
        let names = cluster.names_on(0, TRIES);
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
async fn confirms(cluster: &Cluster, gates: &[TestGateway; 2], lock: &str, gone: usize) -> bool {
    let (store, other) = (&gates[0].store, &gates[1].store);
    let stays = store.must_hold(reader(lock)).await;
    let alone = gates[0].queue(request(lock)).await;
    let asked = waiting(one_of(3, lock));
    let place = other.stand(&asked).await;
    // The head of the queue leaves, and the next waiter is granted the lock beside the first lease.
    let start = Instant::now();
    drop(alone);
    eventually("it is granted", async || {
        let shown = store.inspect(&asked.name).await.ok()?;
        (shown.holder?.count() == 2).then_some(())
    })
    .await;
    cluster.begin_move(slot_of(lock), 0, 1).await;
    ahead(cluster, lock, gone).await;
    let confirmed = other.confirm(&asked.name, &asked.token).await;
    let in_time = start.elapsed() < PROVISIONAL;
    cluster.end_move(slot_of(lock), 0, 1).await;
    if in_time {
        let Ok(Confirmation::Confirmed(lease)) = confirmed else {
            panic!("{gone}: {confirmed:?}");
        };
        assert_eq!(lease.mode.slot(), Some(0));
        assert!(lease.expires_in > Duration::from_secs(25), "{lease:?}");
    }
    drop(place);
    other
        .give_back(&asked.name, &asked.token, None)
        .await
        .unwrap();
    store.must_release(&stays).await;
    cluster.move_slot(slot_of(lock), 1, 0).await;
    in_time
}
