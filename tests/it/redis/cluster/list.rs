//! Lists on a cluster, which the store scans server by server.

use crate::redis::prelude::*;

fn names(page: &Page) -> impl Iterator<Item = String> {
    page.locks.iter().map(|lock| lock.name.to_string())
}

#[tokio::test]
async fn a_list_while_slots_move_shows_every_lock_that_rests() {
    let (cluster, store) = Pooled::open().await;
    let names_there = cluster.names_on(0, 3);
    let [rests, ahead, behind] = names_there.as_slice() else {
        panic!("three were asked for");
    };
    for name in &names_there {
        granted(store.acquire(&attempt(name)).await);
    }
    for name in [ahead, behind] {
        cluster.begin_move(slot_of(name), 0, 1).await;
    }
    let key = format!("lg:{{{ahead}}}:lock");
    cluster.move_keys(&[&key], 0, 1).await;
    let pages = store.pages(100, None).await;
    let shown: BTreeSet<_> = pages.iter().flat_map(names).collect();
    assert!(shown.contains(rests), "{shown:?}");
    for name in [ahead, behind] {
        cluster.end_move(slot_of(name), 0, 1).await;
        cluster.move_slot(slot_of(name), 1, 0).await;
    }
}

#[tokio::test]
async fn a_slot_with_many_locks_is_shown_page_by_page() {
    let (_cluster, store) = Pooled::open().await;
    let slot = slot_of("crowded");
    let crowd: Vec<String> = (0..)
        .map(|n| format!("c{n}"))
        .filter(|name| slot_of(name) == slot)
        .take(20)
        .collect();
    for name in &crowd {
        granted(store.acquire(&attempt(name)).await);
    }
    let pages = store.pages(3, None).await;
    let seen: Vec<_> = pages.iter().flat_map(names).collect();
    assert_eq!(seen.len(), crowd.len(), "each once");
    let seen: BTreeSet<_> = seen.into_iter().collect();
    assert_eq!(seen, crowd.into_iter().collect());
}
