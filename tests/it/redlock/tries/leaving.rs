//! A waiter that leaves the queue in the instant in which its gateway tries to get the lock for it.

use crate::redlock::prelude::*;

/// A held lock with a waiter, and then a release. The requests for the waiter meet a fault. Returns while the gateway
/// tries to get the lock for the waiter.
async fn tried_for_one_who_waits(fault: Fault) -> (Rig, Vec<Proxy>, Attempt, Parked) {
    let (rig, proxies) = Rig::behind_proxies(3, &patient()).await;
    let holder = attempt("lock");
    rig.grant(&holder).await;
    let waiter = waiting(attempt("lock"));
    let parked = rig.store.stand(&waiter).await;
    for proxy in &proxies {
        // The first request with the token finds the lock still held.
        proxy.strike_later(&waiter.token.to_string(), fault, 1);
    }
    for proxy in &proxies {
        // Otherwise this request finds the lock released at some nodes and held at others.
        proxy.gone_through(1).await;
    }
    rig.release(&holder).await;
    all_struck(&proxies, 1).await;
    (rig, proxies, waiter, parked)
}

#[tokio::test]
async fn is_not_told_that_it_has_left_before_it_is_known_whether_it_has_the_lock() {
    let (rig, proxies, waiter, mut parked) = tried_for_one_who_waits(Fault::HoldReply).await;
    let mut leaving = Box::pin(rig.store.leave(&waiter.name, &waiter.token, None));
    let early = timeout(Duration::from_millis(200), &mut leaving).await;
    assert!(early.is_err(), "{early:?} while it may have the lock");
    proxies.iter().for_each(Proxy::let_go);
    let left = leaving.await;
    let Ok(Leaving::Granted(lease)) = left else {
        panic!("{left:?}");
    };
    assert!(matches!(parked.news().await, News::Granted(told) if told.fence == lease.fence));
    rig.release_everywhere(&waiter).await;
}

#[tokio::test]
async fn has_left_when_the_try_for_it_has_come_to_nothing() {
    let (rig, proxies, waiter, parked) = tried_for_one_who_waits(Fault::HoldRequest).await;
    rig.store.must_leave(&waiter, None).await;
    drop(parked);
    proxies.iter().for_each(Proxy::let_go);
    rig.nothing_left(&waiter.name).await;
    rig.turn("lock").await;
}

/// The try for the waiter is reserved at one node, and the others do not reply. The withdrawal does not arrive before
/// the waiter has left, so only this node could say whether the waiter has the lock.
#[tokio::test]
async fn a_node_that_alone_answers_who_leaves_does_not_keep_the_try_that_came_to_nothing() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    for node in [1, 2] {
        let taken = ["SET", "lg:{lock}:lock", "theirs"];
        rig.server(node).run(&taken).await;
    }
    // The TTL is longer than any wait of this test, so that a reservation that stays is seen.
    let waiter = with(waiting(attempt("lock")), |it| {
        it.terms.set_ttl(ttl(600_000));
    });
    let parked = rig.store.stand(&waiter).await;
    for node in [1, 2] {
        rig.server(node).freeze();
    }
    // Only a reservation and a withdrawal name this key: one reservation passes.
    let wanted = "lg:{lock}:wanted";
    proxies[0].strike_later(wanted, Fault::CutRequest, 1);
    for _ in 0..1_000 {
        proxies[0].strike(wanted, Fault::CutRequest);
    }
    until("it is tried for at one node", async || {
        let token = rig.server(0).text(&["GET", "lg:{lock}:lock"]).await;
        token == waiter.token.to_string()
    })
    .await;
    rig.store.must_leave(&waiter, None).await;
    assert!(proxies[0].strikes() > 1, "the withdrawal was cut");
    drop(parked);
    proxies[0].take_back();
    until_integer(rig.server(0), &["EXISTS", "lg:{lock}:lock"], 0).await;
}
