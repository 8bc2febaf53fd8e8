//! A walk through the locks of a cluster misses none, whatever moves meanwhile.

use std::collections::BTreeSet;

use latchgate::{
    lifecycle::Lifecycle,
    store::{
        Store,
        contract::{Holder, ListQuery, Page},
        cursor::Cursor,
        list_filter::ListFilter,
        redis::RedisStore,
    },
};

use super::{
    super::rig::{attempt, granted, open, quick},
    pool::Pooled,
    servers::slot_of,
};
use crate::support::full;

/// How many locks are held: several pages of them.
fn locks() -> usize {
    if full() { 120 } else { 45 }
}

async fn page(store: &RedisStore, limit: usize, cursor: Option<Cursor>) -> Page {
    let query = ListQuery {
        filter: ListFilter::default(),
        limit,
        cursor,
    };
    store.list(&query).await.unwrap()
}

async fn hold(store: &RedisStore) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for n in 0..locks() {
        let name = format!("walk-{n}");
        granted(store.acquire(&attempt(&name)).await);
        names.insert(name);
    }
    names
}

fn names(page: &Page) -> impl Iterator<Item = String> {
    page.locks.iter().map(|lock| lock.name.to_string())
}

#[tokio::test]
async fn a_lock_whose_slot_moves_back_behind_the_walk_or_ahead_of_it_is_shown() {
    let pooled = Pooled::take().await;
    let cluster = pooled.cluster();
    let lifecycle = Lifecycle::new();
    let stores = [(); 2].map(|()| open(&cluster.url(), &quick(), &lifecycle));
    let held = hold(&stores[0]).await;
    let mut seen = BTreeSet::new();
    let mut moved: Vec<(String, usize)> = Vec::new();
    let (mut cursor, mut pages) = (None, 0);
    loop {
        // Each page through another gateway.
        let page = page(&stores[pages % 2], 10, cursor).await;
        assert!(page.locks.len() <= 10);
        seen.extend(names(&page));
        pages += 1;
        let Some(next) = page.next else {
            break;
        };
        cursor = Some(next);
        // What was not shown yet goes where the walk has been already, or will not come by again.
        let unseen = held.iter().filter(|name| !seen.contains(*name));
        for name in unseen.take(6) {
            let at = moved.iter().find(|(it, _)| it == name);
            let from = at.map_or(cluster.owner(name), |(_, at)| *at);
            let to = (from + pages) % 3;
            if from != to {
                cluster.move_slot(slot_of(name), from, to).await;
                moved.retain(|(it, _)| it != name);
                moved.push((name.clone(), to));
            }
        }
    }
    assert!(pages > 3 && !moved.is_empty());
    assert_eq!(seen, held);
    for (name, at) in moved {
        let home = cluster.owner(&name);
        if at != home {
            cluster.move_slot(slot_of(&name), at, home).await;
        }
    }
}

#[tokio::test]
async fn locks_in_a_slot_that_is_half_way_are_all_shown() {
    let pooled = Pooled::take().await;
    let cluster = pooled.cluster();
    let store = open(&cluster.url(), &quick(), &Lifecycle::new());
    let names_there = cluster.names_on(0, 4);
    let [ahead, apart, behind, foreign] = names_there.as_slice() else {
        panic!("four were asked for");
    };
    for name in [ahead, apart, behind] {
        granted(store.acquire(&attempt(name)).await);
    }
    let lock = |name: &str| format!("lg:{{{name}}}:lock");
    cluster.servers[0]
        .run(&["SET", &lock(foreign), "theirs", "PX", "60000"])
        .await;
    for name in &names_there {
        cluster.begin_move(slot_of(name), 0, 1).await;
    }
    cluster.move_keys(&[&lock(ahead), &lock(apart)], 0, 1).await;
    // What belongs together is waited for, so a page may take its time and be short.
    let (mut cursor, mut shown) = (None, Vec::new());
    loop {
        let page = page(&store, 100, cursor).await;
        shown.extend(page.locks);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let seen = shown.iter().map(|lock| lock.name.to_string());
    assert_eq!(
        seen.collect::<BTreeSet<_>>(),
        names_there.iter().cloned().collect()
    );
    for lock in &shown {
        let ours = lock.name.as_str() != foreign.as_str();
        assert_eq!(
            matches!(lock.holder, Holder::Lease(_)),
            ours,
            "{}",
            lock.name
        );
    }
    for name in &names_there {
        cluster.end_move(slot_of(name), 0, 1).await;
        cluster.move_slot(slot_of(name), 1, 0).await;
    }
}

#[tokio::test]
async fn a_slot_with_many_locks_is_shown_page_by_page() {
    let pooled = Pooled::take().await;
    let cluster = pooled.cluster();
    let store = open(&cluster.url(), &quick(), &Lifecycle::new());
    let slot = slot_of("crowded");
    let crowd: Vec<String> = (0..)
        .map(|n| format!("c{n}"))
        .filter(|name| slot_of(name) == slot)
        .take(20)
        .collect();
    for name in &crowd {
        granted(store.acquire(&attempt(name)).await);
    }
    let (mut cursor, mut seen) = (None, Vec::new());
    for _ in 0..100 {
        let page = page(&store, 3, cursor).await;
        assert!(page.locks.len() <= 3);
        seen.extend(names(&page));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(cursor, None);
    assert_eq!(seen.len(), crowd.len(), "each once");
    assert_eq!(
        seen.into_iter().collect::<BTreeSet<_>>(),
        crowd.into_iter().collect()
    );
}
