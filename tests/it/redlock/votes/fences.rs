//! Fencing tokens of a quorum rise, whatever happens to a minority of its nodes.

use std::cell::Cell;

use crate::redlock::prelude::*;

#[tokio::test]
async fn a_minority_that_is_down_or_frozen_holds_nobody_up() {
    let mut rig = Rig::start(5).await;
    let mut last = 0;
    rig.rises(&mut last).await;
    rig.server_mut(0).kill();
    rig.server(3).freeze();
    for _ in 0..20 {
        rig.rises(&mut last).await;
    }
    rig.server(3).thaw();
    rig.server_mut(0).start_again().await;
    rig.server(1).freeze();
    rig.server_mut(4).kill();
    for _ in 0..20 {
        rig.rises(&mut last).await;
    }
    rig.server(1).thaw();
}

#[tokio::test]
async fn each_node_in_turn_is_replaced_by_an_empty_one() {
    let rig = Rig::start(3).await;
    let mut last = 0;
    for _ in 0..3 {
        for server in &rig.nodes.servers {
            rig.rises(&mut last).await;
            server.run(&["FLUSHALL"]).await;
            rig.rises(&mut last).await;
        }
    }
}

#[tokio::test]
async fn a_counter_far_ahead_at_one_node_is_passed_on_to_the_others() {
    let rig = Rig::start(3).await;
    let last = Cell::new(rig.turn("lock").await);
    let ahead = last.get() + 3_600_000_000;
    let key = fence_key("lock");
    rig.server(1).run(&["SET", &key, &ahead.to_string()]).await;
    // A gateway does not wait for the last node, which may be this one, so one of the next grants brings the token.
    eventually("one of the next hears of it", async || {
        let fence = rig.turn("lock").await;
        (fence > ahead).then(|| last.set(fence))
    })
    .await;
    let mut last = last.get();
    // The other nodes know the counter even without the node that was ahead.
    rig.server(1).freeze();
    for _ in 0..5 {
        rig.rises(&mut last).await;
    }
    rig.server(1).thaw();
    rig.server(0).freeze();
    rig.rises(&mut last).await;
    rig.server(0).thaw();
    for server in &rig.nodes.servers {
        // A gateway does not wait for the last node, which learns the token with one of the next grants.
        let heard = async |last: &mut u64| {
            rig.rises(last).await;
            server.text(&["GET", &key]).await == last.to_string()
        };
        let deadline = Instant::now() + TIMEOUT;
        while !heard(&mut last).await {
            assert!(Instant::now() < deadline, "one node never hears of it");
        }
    }
}

#[tokio::test]
async fn no_node_proposes_a_fence_from_an_impossible_counter() {
    let rig = Rig::start(3).await;
    rig.turn("lock").await;
    let key = fence_key("lock");
    rig.server(0).run(&["SET", &key, "soon"]).await;
    let before = rig.turn("lock").await;
    rig.server(1).run(&["SET", &key, "9007199254740991"]).await;
    let error = rig.store.acquire(&attempt("lock")).await.unwrap_err();
    assert!(
        ["fence-exhausted", "foreign-data"].contains(&error.label()),
        "{error:?}"
    );
    rig.server(0).run(&["SET", &key, &before.to_string()]).await;
    assert!(rig.turn("lock").await > before);
}

#[tokio::test]
async fn a_majority_has_the_fence_of_the_lease_and_no_node_another() {
    let rig = Rig::start(3).await;
    let (asked, lease) = rig.grant_everywhere("lock").await;
    for server in &rig.nodes.servers {
        let shown = server.text(&["HGET", "lg:{lock}:info", "fence"]).await;
        // A node that replied late does not know the token.
        assert!(shown == lease.fence.to_string() || shown == "1", "{shown}");
    }
    assert!(rig.have_accepted(&asked.name, &lease).await >= 2);
    let other = rig.store.acquire(&attempt("lock")).await.unwrap();
    let Acquisition::Held(contention) = other else {
        panic!("it is held: {other:?}");
    };
    assert!(matches!(contention.holder, Some(Holder::Lease(held)) if held.fence == lease.fence));
}
