//! Late and unanswered messages take no lock and leave nothing behind.

use crate::redlock::prelude::*;

#[tokio::test]
async fn a_reservation_that_arrives_after_the_release_is_refused() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    write_down_everything(rig.server(2)).await;
    let asked = attempt("lock");
    proxies[2].strike(&asked.token.to_string(), Fault::HoldRequest);
    rig.grant(&asked).await;
    proxies[2].struck(1).await;
    assert_eq!(rig.holds(&asked.name).await, 2);
    rig.release(&asked).await;
    proxies[2].let_go();
    until_runs(rig.server(2), &asked.token, 2).await;
    rig.nothing_left(&asked.name).await;
    rig.turn("lock").await;
}

#[tokio::test]
async fn a_node_that_is_frozen_during_the_first_round_carries_it_out_later_in_vain() {
    let rig = Rig::start(3).await;
    rig.turn("lock").await;
    rig.server(1).freeze();
    let asked = attempt("lock");
    rig.grant(&asked).await;
    rig.release(&asked).await;
    let fence = rig.turn("lock").await;
    rig.server(1).thaw();
    rig.nothing_left(&asked.name).await;
    assert!(rig.turn("lock").await > fence);
}

#[tokio::test]
async fn where_the_replies_of_a_majority_are_lost_the_try_is_withdrawn_and_another_granted() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let asked = attempt("lock");
    for proxy in &proxies[..2] {
        proxy.strike(&asked.token.to_string(), Fault::CutReply);
    }
    let lease = rig.grant(&asked).await;
    all_struck(&proxies[..2], 1).await;
    assert!(rig.holds(&asked.name).await >= 2);
    rig.release_everywhere(&asked).await;
    assert!(rig.turn("lock").await > lease.fence.get());
}

#[tokio::test]
async fn where_the_second_round_is_lost_the_lease_is_not_granted_by_it() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let asked = attempt("lock");
    for proxy in &proxies[..2] {
        // The first request with the token passes: it is the reservation.
        proxy.strike_later(&asked.token.to_string(), Fault::CutRequest, 1);
    }
    let lease = rig.grant(&asked).await;
    all_struck(&proxies[..2], 1).await;
    // The lease comes from another try, whose own fencing token a majority has.
    let same = rig.have_accepted(&asked.name, &lease).await;
    assert!(same >= 2, "{same} nodes have the fence");
    rig.release_everywhere(&asked).await;
}

#[tokio::test]
async fn what_was_given_back_is_not_granted_by_a_copy_that_comes_late() {
    let rig = Rig::start(3).await;
    let asked = attempt("lock");
    rig.store
        .must_give_back(&asked, GiveBack::NothingHeld)
        .await;
    rig.server(0).freeze();
    let late = rig.store.acquire(&asked).await;
    rig.server(0).thaw();
    assert_eq!(late.unwrap_err().label(), "unavailable");
    rig.nothing_left(&asked.name).await;
}

#[tokio::test]
async fn a_release_reaches_a_node_that_was_away_when_it_is_back() {
    let rig = Rig::start(3).await;
    let asked = attempt("lock");
    rig.grant(&asked).await;
    rig.server(2).freeze();
    rig.release(&asked).await;
    rig.server(2).thaw();
    rig.nothing_left(&asked.name).await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_in_the_middle_leaves_nothing_behind() {
    // Once for the first round, which reserves, and once for the second.
    for first in [0, 1] {
        let (rig, proxies) = Rig::with_proxies(3).await;
        let asked = attempt("lock");
        for proxy in &proxies {
            proxy.strike_later(&asked.token.to_string(), Fault::HoldReply, first);
        }
        hang_up_when_struck(&rig, &asked, &proxies, 1).await;
        proxies.iter().for_each(Proxy::let_go);
        rig.nothing_left(&asked.name).await;
        rig.turn("lock").await;
    }
}

#[tokio::test]
async fn a_caller_that_hangs_up_while_a_try_is_withdrawn_leaves_nothing_behind() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    for node in [0, 1] {
        let taken = ["SET", "lg:{lock}:lock", "theirs", "NX", "PX", "30000"];
        rig.server(node).run(&taken).await;
    }
    let asked = attempt("lock");
    let token = asked.token.to_string();
    // The refusing nodes reply last: otherwise the caller could be answered before the node with the reservation is,
    // and could not hang up during its withdrawal.
    for proxy in &proxies[..2] {
        proxy.strike(&token, Fault::HoldReply);
    }
    proxies[2].strike_later(&token, Fault::CutRequest, 1);
    let refused = async {
        all_struck(&proxies[..2], 1).await;
        until("it is reserved", async || {
            let reserved = rig.server(2).text(&["GET", "lg:{lock}:lock"]).await;
            !reserved.is_empty()
        })
        .await;
        proxies[..2].iter().for_each(Proxy::let_go);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = hang_up_when_struck(&rig, &asked, &proxies[2..], 1) => {}
        () = refused => {}
    }
    until_integer(rig.server(2), &["EXISTS", "lg:{lock}:lock"], 0).await;
}

/// Acquires, and hangs up when the proxies have applied this many faults.
async fn hang_up_when_struck(rig: &Rig, asked: &Attempt, proxies: &[Proxy], times: usize) {
    let acquire = rig.store.acquire(asked);
    tokio::select! {
        biased;
        () = all_struck(proxies, times) => {}
        outcome = acquire => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn who_is_told_of_a_loss_hears_of_the_holder_although_the_node_that_decides_it_is_late() {
    // Longer than the gateway waits for a node that cannot change the outcome.
    let a_while = Duration::from_millis(300);
    for renews in [false, true] {
        let (rig, proxies) = Rig::behind_proxies(3, &patient()).await;
        rig.grant_everywhere("lock").await;
        // A majority has the lease, and one node does not.
        let forgotten = ["DEL", "lg:{lock}:lock", "lg:{lock}:info"];
        rig.server(0).run(&forgotten).await;
        let other = attempt("lock");
        proxies[2].strike(&other.token.to_string(), Fault::HoldReply);
        let mut told = Box::pin(async {
            if renews {
                rig.store.must_lose(&other, Loss::HeldByAnother).await;
            } else {
                rig.store
                    .must_not_release(&other, Loss::HeldByAnother)
                    .await;
            }
        });
        let early = timeout(a_while, &mut told).await;
        assert!(early.is_err(), "nobody can know yet");
        proxies[2].let_go();
        told.await;
    }
}

#[tokio::test]
async fn a_node_that_refused_a_lease_does_not_take_it_after_its_release() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    write_down_everything(rig.server(2)).await;
    let theirs = ["SET", "lg:{lock}:lock", "theirs"];
    rig.server(2).run(&theirs).await;
    let asked = attempt("lock");
    // The first request with the token is refused; the second repeats the question after the grant.
    proxies[2].strike_later(&asked.token.to_string(), Fault::HoldRequest, 1);
    rig.grant(&asked).await;
    proxies[2].struck(1).await;
    rig.server(2).run(&["DEL", "lg:{lock}:lock"]).await;
    rig.release(&asked).await;
    let (ended, attempt_ended) = ("lg:{lock}:ended", format!("g:{}", asked.token));
    until("the node knows of the release", async || {
        let until = rig.server(2).text(&["ZSCORE", ended, &attempt_ended]).await;
        !until.is_empty()
    })
    .await;
    let before = runs(rig.server(2), &asked.token).await;
    proxies[2].let_go();
    until_runs(rig.server(2), &asked.token, before + 1).await;
    rig.nothing_left(&asked.name).await;
}
