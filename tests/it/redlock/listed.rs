//! A list over a quorum: what is held throughout is on one page at least.

use latchgate::store::{
    Store,
    contract::{ListQuery, Page},
    cursor::Cursor,
    list_filter::ListFilter,
};

use super::rig::{Rig, attempt, eventually};
use crate::support::Fault;

async fn page(rig: &Rig, cursor: Option<Cursor>) -> Page {
    let query = ListQuery {
        filter: ListFilter::default(),
        limit: 1,
        cursor,
    };
    rig.store.list(&query).await.unwrap()
}

fn names(page: &Page) -> Vec<String> {
    let locks = page.locks.iter();
    locks.map(|lock| lock.name.to_string()).collect()
}

#[tokio::test]
async fn a_lease_that_comes_to_a_node_behind_the_walk_is_shown_by_the_next() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    rig.grant_everywhere("first").await;
    let late = attempt("late");
    proxies[0].strike(&late.token.to_string(), Fault::HoldRequest);
    rig.grant(&late).await;
    proxies[0].struck(1).await;
    assert_eq!(rig.holds(&late.name).await, 2);
    // The walk passes the node that does not have it yet.
    let mut shown = page(&rig, None).await;
    let mut seen = names(&shown);
    while let Some(next @ Cursor::Quorum { node: 0, .. }) = shown.next {
        shown = page(&rig, Some(next)).await;
        seen.extend(names(&shown));
    }
    assert!(!seen.contains(&"late".to_owned()), "{seen:?}");
    proxies[0].let_go();
    eventually("it is everywhere", async || {
        (rig.holds(&late.name).await == 3).then_some(())
    })
    .await;
    assert!(shown.next.is_some(), "the walk is over");
    while let Some(next) = shown.next {
        shown = page(&rig, Some(next)).await;
        seen.extend(names(&shown));
    }
    assert!(seen.contains(&"late".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn a_lease_that_is_older_than_the_walk_is_shown_once() {
    let rig = Rig::start(3).await;
    for lock in ["a", "b", "c"] {
        rig.grant_everywhere(lock).await;
    }
    // Much older than a walk takes.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let mut shown = page(&rig, None).await;
    let mut seen = names(&shown);
    while let Some(next) = shown.next {
        shown = page(&rig, Some(next)).await;
        seen.extend(names(&shown));
    }
    seen.sort();
    assert_eq!(seen, ["a", "b", "c"]);
}
