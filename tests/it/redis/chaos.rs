//! Two gateways, a few locks, and a server that closes connections and forgets scripts all the time.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use latchgate::{
    lifecycle::Lifecycle,
    store::{Store, StoreError, contract::Acquisition, redis::RedisStore},
};
use tokio::time::{Instant, sleep};

use super::rig::{attempt, eventually, name, open, quick};
use crate::support::{RedisServer, cmd};

const LOCKS: [&str; 3] = ["chaos-a", "chaos-b", "chaos-c"];
const GATEWAYS: usize = 2;
const CALLERS: usize = 6;
const LASTS: Duration = Duration::from_secs(2);
/// So many visits and killed connections make a test of it.
const TRAFFIC: usize = 100;
const FAULTS: i64 = 20;

/// What is known of one lock: who is in it, and its last fence.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    last_fence: Mutex<u64>,
    visits: AtomicUsize,
}

/// Takes and leaves a lock once.
async fn visit(store: &RedisStore, lock: &str, room: &Room) {
    let asked = attempt(lock);
    match store.acquire(&asked).await {
        Ok(Acquisition::Granted(lease)) => {
            assert_eq!(
                room.inside.fetch_add(1, Ordering::SeqCst),
                0,
                "two are in {lock}"
            );
            {
                let mut last = room.last_fence.lock().unwrap();
                assert!(
                    lease.fence.get() > *last,
                    "the fence of {lock} has not risen"
                );
                *last = lease.fence.get();
            }
            room.visits.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            room.inside.fetch_sub(1, Ordering::SeqCst);
            // It may be unknown whether it was released; then it is given back until that is known.
            if store.release(&asked.name, &asked.token).await.is_ok() {
                return;
            }
        }
        Ok(_) => return,
        Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
    eventually("it is given back", async || {
        store.give_back(&asked.name, &asked.token).await.ok()
    })
    .await;
}

#[tokio::test]
async fn no_two_are_in_and_fences_rise_while_connections_die() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let stores: Vec<_> = (0..GATEWAYS)
        .map(|_| open(&server.url(), &quick(), &lifecycle))
        .collect();
    let rooms: BTreeMap<&str, Room> = LOCKS.map(|lock| (lock, Room::default())).into();
    let over = AtomicBool::new(false);

    let callers = (0..GATEWAYS * CALLERS).map(|n| {
        let (store, rooms, over) = (&stores[n % GATEWAYS], &rooms, &over);
        async move {
            for round in n.. {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let lock = LOCKS[round % LOCKS.len()];
                visit(store, lock, &rooms[lock]).await;
            }
        }
    });
    let harm = async {
        let mut hand = server.connection().await;
        let start = Instant::now();
        let mut killed = 0;
        let visits = || -> usize {
            let of = |room: &Room| room.visits.load(Ordering::SeqCst);
            rooms.values().map(of).sum()
        };
        // On a machine that does much else it takes longer until there was enough of both.
        let enough = |killed| visits() > TRAFFIC && killed > FAULTS;
        while start.elapsed() < LASTS || (!enough(killed) && start.elapsed() < 15 * LASTS) {
            for harm in [
                &["CLIENT", "KILL", "TYPE", "normal"][..],
                &["SCRIPT", "FLUSH"],
            ] {
                let done = hand.send_packed_command(&cmd(harm)).await;
                if let Ok(bb8_redis::redis::Value::Int(count)) = done {
                    killed += count;
                }
            }
            // Between two blows there is some time to get up.
            sleep(Duration::from_millis(15)).await;
        }
        over.store(true, Ordering::SeqCst);
        killed
    };
    let (_, killed) = tokio::join!(futures_util::future::join_all(callers), harm);

    let visits: usize = rooms
        .values()
        .map(|room| room.visits.load(Ordering::SeqCst))
        .sum();
    assert!(
        killed > FAULTS,
        "the fault happened: {killed} connections were killed"
    );
    assert!(visits > TRAFFIC, "there was traffic: {visits} visits");
    for lock in LOCKS {
        let left = stores[0].inspect(&name(lock)).await.unwrap();
        assert_eq!(left, super::expected::free(), "nobody is left in {lock}");
    }
}
