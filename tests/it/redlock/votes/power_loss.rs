//! The machine of one node loses power, so that the end of its log is missing; or an old log is restored.

use std::fs;

use super::{
    delayed::forgetful,
    learning::{NODE, rises_without_the_first, run_ahead},
};
use crate::redis::server::power_loss::{length, log, lose_the_end, read_again};
use crate::redlock::prelude::*;

/// A quorum whose nodes may lose data, and vote at once all the same.
async fn may_forget() -> Rig {
    let config = with(forgetful(60_000), |it| it.vote_at_once = true);
    let rig = Rig::on(Nodes::start(3).await, &config);
    rig.all_vote().await;
    rig
}

/// The run of its server for which a node has learned.
async fn run(rig: &Rig, node: usize) -> String {
    rig.server(node).text(&["HGET", NODE, "run"]).await
}

/// Asserts that all nodes but one have the lease, and that this is enough.
async fn is_held_by_the_others(rig: &Rig, held: &Attempt, lease: &HeldLease) {
    assert_eq!(rig.have_accepted(&held.name, lease).await, 2);
    rig.store.must_refuse(&attempt(held.name.as_str())).await;
    rig.keeps(held, lease).await;
}

#[tokio::test]
async fn what_one_node_has_forgotten_the_others_hold_and_fences_rise_without_another_one() {
    let mut rig = Rig::start(3).await;
    let before = length(rig.server(1));
    let (held, lease) = rig.grant_everywhere("held").await;
    let last = rig.turn("lock").await;
    lose_the_end(rig.server_mut(1), before + 1).await;
    is_held_by_the_others(&rig, &held, &lease).await;
    rig.release(&held).await;
    rises_without_the_first(&rig, last).await;
}

#[tokio::test]
async fn a_node_that_may_forget_learns_first_how_far_fences_had_come_in_the_end_that_is_missing() {
    let mut rig = may_forget().await;
    let run_before = run(&rig, 1).await;
    let before = length(rig.server(1));
    let (held, lease) = rig.grant_everywhere("held").await;
    let last = run_ahead(&rig).await;
    lose_the_end(rig.server_mut(1), before + 1).await;
    rig.all_vote().await;
    assert_ne!(run(&rig, 1).await, run_before);
    is_held_by_the_others(&rig, &held, &lease).await;
    rig.release(&held).await;
    rises_without_the_first(&rig, last).await;
}

#[tokio::test]
async fn a_backup_that_is_restored_at_one_node_gives_nobody_an_old_lease_and_fences_rise() {
    let mut rig = may_forget().await;
    let (old, _) = rig.grant_everywhere("held").await;
    let backup = fs::read(log(rig.server(1))).unwrap();
    rig.release_everywhere(&old).await;
    let (current, lease) = rig.grant_everywhere("held").await;
    let last = run_ahead(&rig).await;
    let run_before = run(&rig, 1).await;
    rig.server_mut(1).kill();
    fs::write(log(rig.server(1)), backup).unwrap();
    read_again(rig.server_mut(1)).await;
    rig.all_vote().await;
    assert_ne!(run(&rig, 1).await, run_before);
    let restored = rig.server(1).text(&["GET", "lg:{held}:lock"]).await;
    assert_eq!(restored, old.token.to_string());

    let shown = rig.store.inspect(&old.name).await.unwrap();
    let expected = matches!(&shown.holder, Some(Holder::Lease(held)) if held.fence == lease.fence);
    assert!(expected, "{shown:?}");
    is_held_by_the_others(&rig, &current, &lease).await;
    rig.release(&current).await;
    let next = attempt("held");
    assert!(rig.grant(&next).await.fence > lease.fence);
    rig.store.must_lose(&old, Loss::HeldByAnother).await;
    rig.release(&next).await;
    rig.nothing_left(&old.name).await;
    rises_without_the_first(&rig, last).await;
}
