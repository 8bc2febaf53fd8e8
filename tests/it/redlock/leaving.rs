//! Whoever leaves the line in the instant in which the lock is tried for it.

use std::time::Duration;

use latchgate::{
    config::{Millis, RedlockConfig},
    store::{
        Store,
        contract::{Acquisition, Attempt, Leaving, Waiting},
        parking::{News, Parked},
    },
};
use tokio::time::timeout;

use super::{
    nodes::quick,
    rig::{Rig, attempt},
};
use crate::support::{Fault, Proxy};

/// A lock that is held, one that waits for it, and then a release: what is asked for the one that waits
/// is struck. Ends when the lock is being tried for it.
async fn tried_for_one_who_waits(fault: Fault) -> (Rig, Vec<Proxy>, Attempt, Parked) {
    let patient = RedlockConfig {
        node_timeout_ms: Millis(2_500),
        ..quick()
    };
    let (rig, proxies) = Rig::behind_proxies(3, &patient).await;
    let holder = attempt("lock");
    rig.grant(&holder).await;
    let waiter = Attempt {
        wait: Some(Waiting {
            max_wait: Duration::from_mins(1),
            longest_queue: 10,
        }),
        ..attempt("lock")
    };
    let parked = rig.store.parking().park(waiter.name.clone(), waiter.token);
    let queued = rig.store.acquire(&waiter).await;
    assert!(matches!(queued, Ok(Acquisition::Queued(_))), "{queued:?}");
    for proxy in &proxies {
        // The first is the look at a lock that is held still.
        proxy.strike_later(&waiter.token.to_string(), fault, 1);
    }
    for proxy in &proxies {
        // Else the look finds the lock released at some nodes and held at others.
        proxy.gone_through(1).await;
    }
    rig.release(&holder).await;
    for proxy in &proxies {
        proxy.struck(1).await;
    }
    (rig, proxies, waiter, parked)
}

#[tokio::test]
async fn is_not_told_that_it_has_left_before_it_is_known_whether_it_has_the_lock() {
    let (rig, proxies, waiter, mut parked) = tried_for_one_who_waits(Fault::HoldReply).await;
    let mut leaving = Box::pin(rig.store.leave(&waiter.name, &waiter.token, None));
    let early = timeout(Duration::from_millis(200), &mut leaving).await;
    assert!(early.is_err(), "{early:?} while it may have the lock");
    for proxy in &proxies {
        proxy.let_go();
    }
    let left = leaving.await;
    let Ok(Leaving::Granted(lease)) = left else {
        panic!("{left:?}");
    };
    assert!(matches!(parked.news().await, News::Granted(told) if told.fence == lease.fence));
    rig.release(&waiter).await;
    rig.nothing_left(&waiter.name).await;
}

#[tokio::test]
async fn has_left_when_the_try_for_it_has_come_to_nothing() {
    let (rig, proxies, waiter, parked) = tried_for_one_who_waits(Fault::HoldRequest).await;
    let left = rig.store.leave(&waiter.name, &waiter.token, None).await;
    assert!(matches!(left, Ok(Leaving::Left(_))), "{left:?}");
    drop(parked);
    for proxy in &proxies {
        proxy.let_go();
    }
    rig.nothing_left(&waiter.name).await;
    rig.turn("lock").await;
}
