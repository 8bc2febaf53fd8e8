//! Commands that the server carries out after their caller has given up.

use latchgate::store::history::{HistoryBatch, HistoryBounds, HistoryCounts, HistoryRecord};

use crate::redis::prelude::*;

/// Releases the copy that the proxy holds, and waits until the server has run it. Commands that were sent behind it on
/// the same connection, and were given up as well, arrive after it.
pub(super) async fn let_late_copy_arrive(rig: &Rig, proxy: &Proxy, asked: &Attempt) {
    write_down_everything(&rig.server).await;
    assert_eq!(runs(&rig.server, &asked.token).await, 0);
    proxy.let_go();
    until_runs(&rig.server, &asked.token, 1).await;
}

#[tokio::test]
async fn a_late_copy_does_not_take_a_lock_that_was_released() {
    let (rig, proxy) = Rig::with_proxy().await;
    let asked = attempt("late");
    proxy.strike("{late}", Fault::HoldRequest);
    rig.grant(&asked).await;
    assert_eq!(proxy.strikes(), 1, "the second copy was granted");
    rig.must_release(&asked).await;
    let_late_copy_arrive(&rig, &proxy, &asked).await;
    rig.must_be_free(&asked.name).await;
}

#[tokio::test]
async fn a_late_copy_of_an_attempt_that_was_refused_does_not_take_the_lock_either() {
    for [holder, asked] in [
        [attempt("busy"), attempt("busy")],
        [one_of(1, "busy"), one_of(1, "busy")],
    ] {
        let (rig, proxy) = Rig::with_proxy().await;
        rig.grant(&holder).await;
        proxy.strike(&asked.token.to_string(), Fault::HoldRequest);
        rig.must_refuse(&asked).await;
        assert_eq!(proxy.strikes(), 1);
        rig.must_release(&holder).await;
        let_late_copy_arrive(&rig, &proxy, &asked).await;
        rig.must_be_free(&asked.name).await;
    }
}

#[tokio::test]
async fn a_refusal_is_unknown_while_a_late_copy_cannot_be_withdrawn() {
    let (rig, proxy) = Rig::with_proxy().await;
    let (holder, asked) = (attempt("stuck"), attempt("stuck"));
    rig.grant(&holder).await;
    proxy.strike(
        &format!("{}\r\n$5\r\n30000\r\n", asked.token),
        Fault::HoldRequest,
    );
    // Only a release of an undelivered lease has these bytes after the token: a floor and a gateway.
    let give_back = format!("{}\r\n$32\r\n", asked.token);
    for _ in 0..1_000 {
        proxy.strike(&give_back, Fault::CutRequest);
    }
    assert_unknown(rig.acquire(&asked).await);
    assert!(proxy.strikes() > 2, "the give-back was tried");
}

#[tokio::test]
async fn an_attempt_that_was_given_back_before_it_arrived_is_refused_when_it_does() {
    let (rig, proxy) = Rig::with_proxy().await;
    let asked = attempt("gone");
    proxy.strike("{gone}", Fault::HoldRequest);
    // The caller of the acquire hangs up.
    tokio::select! {
        answered = rig.acquire(&asked) => panic!("{answered:?}"),
        () = proxy.struck(1) => {}
    }
    rig.must_give_back(&asked, GiveBack::NothingHeld).await;
    let_late_copy_arrive(&rig, &proxy, &asked).await;
    rig.must_be_free(&asked.name).await;
}

#[tokio::test]
async fn a_frozen_server_leaves_nothing_behind_that_was_given_back() {
    let rig = Rig::start().await;
    rig.grant(&attempt("warm")).await;
    let asked = attempt("frozen");
    rig.server.freeze();
    assert_unknown(rig.acquire(&asked).await);
    // No connection can be made any more, so the command is known not to have been sent.
    assert_unavailable(rig.give_back(&asked.name, &asked.token, None).await);
    rig.server.thaw();
    // All copies of the acquire are carried out now, before or after the next command.
    let give_back = timeout(TIMEOUT, rig.give_back(&asked.name, &asked.token, None));
    give_back.await.expect("the server answers again").unwrap();
    rig.must_withdraw(&asked).await;
    rig.must_be_free(&asked.name).await;
    rig.grant(&attempt("frozen")).await;
}

#[tokio::test]
async fn a_pause_shorter_than_the_deadline_is_survived() {
    let rig = Rig::with(&patient()).await;
    let asked = attempt("paused");
    rig.grant(&attempt("warm")).await;
    rig.server.freeze();
    let thaw = async {
        // Longer than one command may take, so that at least one copy was given up.
        sleep(Duration::from_millis(1_200)).await;
        rig.server.thaw();
    };
    let (lease, ()) = tokio::join!(rig.grant(&asked), thaw);
    let fence = fence_at(&rig.server, "paused").await;
    assert_eq!(fence, lease.fence.to_string(), "all copies are one grant");
    rig.must_release(&asked).await;
}

#[tokio::test]
async fn late_copies_of_a_renewal_do_not_make_a_lease_end_earlier_than_its_holder_was_told() {
    let (rig, proxy) = Rig::with_proxy().await;
    let asked = rig.must_hold(attempt("shorter")).await;
    let (name, token) = (&asked.name, &asked.token);
    for _ in 0..100 {
        let renewal = format!("{token}\r\n$4\r\n5000\r\n");
        proxy.strike(&renewal, Fault::HoldRequest);
    }
    assert_unknown(rig.renew(name, token, Some(ttl(5_000))).await);
    rig.must_renew(&asked, Some(ttl(60_000))).await;
    write_down_everything(&rig.server).await;
    proxy.let_go();
    let is_so = async || runs(&rig.server, token).await == proxy.strikes();
    until("all copies arrive", is_so).await;
    let left = rig.integer(&["PTTL", "lg:{shorter}:lock"]).await;
    assert!(left > 40_000, "{left}");
}

#[tokio::test]
async fn a_late_copy_of_records_of_the_history_brings_no_record_back_and_adds_none_twice() {
    let (rig, proxy) = Rig::with_proxy().await;
    let lock = name("late");
    // The oldest records are removed beside a record whose fencing token ends with 0.
    let batch = |numbers: std::ops::RangeInclusive<u64>| HistoryBatch {
        name: lock.clone(),
        bounds: HistoryBounds {
            entries: 1,
            keep: Duration::from_hours(1),
        },
        records: numbers
            .map(|number| HistoryRecord::new(10 * number, "fact", false))
            .collect(),
        counts: HistoryCounts::default(),
    };
    proxy.strike("0000000000000010 fact", Fault::HoldRequest);
    rig.store.record_history(&[batch(1..=3)]).await.unwrap();
    assert_eq!(proxy.strikes(), 1, "the second copy was recorded");
    rig.store.record_history(&[batch(3..=6)]).await.unwrap();
    let before = rig.store.history(&lock).await.unwrap();
    let newest = (3..=6)
        .rev()
        .map(|fence| format!("{:016} fact", 10 * fence));
    assert_eq!(before.records, newest.collect::<Vec<_>>());
    write_down_everything(&rig.server).await;
    proxy.let_go();
    until("the late copy arrives", async || {
        let is_copy = |words: &Vec<Value>| format!("{words:?}").contains("0000000000000010 fact");
        written_down(&rig.server).await.iter().any(is_copy)
    })
    .await;
    assert_eq!(rig.store.history(&lock).await.unwrap(), before);
}
