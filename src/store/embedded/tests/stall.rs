//! A slow disk: no change is answered or shown before it is durable.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use crate::store::{
    Store, StoreError, Unavailability, Uncertainty,
    contract::{Acquisition, Health, Renewal},
    embedded::store::{ACQUIRES, QUEUE},
};
use futures_util::future::{FutureExt, join_all};
use parking_lot::Mutex;

use super::{
    disk::Disk,
    rig::{LONG, Rig, attempt, limited, ttl, until},
};

/// A gate that holds every sync until it is opened.
pub(super) struct Gate {
    reached: mpsc::Receiver<()>,
    go_on: mpsc::SyncSender<()>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_answered_or_shown_before_it_is_durable() {
    let rig = Rig::start();
    let old = attempt("old", LONG);
    rig.granted(&old).await;
    let gate = Gate::close(&rig);
    let new = attempt("new", LONG);
    let commands = async {
        tokio::join!(
            rig.store().acquire(&new),
            rig.store().release(&old.name, &old.token)
        )
    };
    let watch = async {
        gate.wait().await;
        assert!(rig.is_free("new").await, "a grant was shown too early");
        assert!(!rig.is_free("old").await, "a release was shown too early");
        rig.clock.advance(Duration::from_secs(5));
        let health = rig.health().await;
        assert!(matches!(health, Health::Outage(_)), "{health:?}");
        gate.open();
    };
    let mut commands = std::pin::pin!(commands);
    tokio::select! {
        biased;
        _ = &mut commands => panic!("answered before it was durable"),
        () = watch => {}
    }
    let (acquired, released) = commands.await;
    assert!(
        matches!(acquired, Ok(Acquisition::Granted(_))),
        "{acquired:?}"
    );
    assert!(released.is_ok(), "{released:?}");
    assert!(!rig.is_free("new").await);
    assert!(rig.is_free("old").await);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_stuck_leaves_the_outcome_open() {
    let rig = Rig::start();
    let gate = Gate::close(&rig);
    // With paused time, a timeout passes at once when every task only waits.
    let outcome = rig.store().acquire(&attempt("lock", LONG)).await;
    assert_eq!(outcome, Err(Uncertainty::TimedOut.into()));
    gate.open();
}

#[tokio::test]
async fn more_acquires_than_there_is_room_for_are_refused_and_a_holder_keeps_its_lock() {
    let rig = Rig::start();
    let kept = attempt("kept", LONG);
    rig.granted(&kept).await;
    let gate = Gate::close(&rig);
    let first = attempt("first", LONG);
    let mut first = std::pin::pin!(rig.store().acquire(&first));
    tokio::select! {
        biased;
        _ = &mut first => panic!("answered before it was durable"),
        () = gate.wait() => {}
    }
    // The writer is blocked, so all of these commands are sent before it continues.
    let others: Vec<_> = (0..ACQUIRES + 10).map(|_| attempt("lock", LONG)).collect();
    let others = join_all(others.iter().map(|attempt| rig.store().acquire(attempt)));
    let mut others = std::pin::pin!(others);
    let answered = others.as_mut().now_or_never();
    assert!(answered.is_none(), "answered before it was durable");
    let renewals = (0..QUEUE - ACQUIRES).map(|_| rig.store().renew(&kept.name, &kept.token, None));
    let mut renewals = std::pin::pin!(join_all(renewals));
    let answered = renewals.as_mut().now_or_never();
    assert!(answered.is_none(), "answered before it was durable");
    gate.open();
    let (_first, others, renewals) = tokio::join!(first, others, renewals);
    let is_renewed = |it: &_| matches!(it, Ok(Renewal::Renewed(..)));
    assert!(renewals.iter().all(is_renewed));
    let overloaded = StoreError::from(Unavailability::Overloaded);
    let refused = others.iter().filter(|it| **it == Err(overloaded.clone()));
    assert_eq!(refused.count(), 10);
    let is_granted = |it: &&_| matches!(it, Ok(Acquisition::Granted(_)));
    assert_eq!(others.iter().filter(is_granted).count(), 1);
}

#[tokio::test]
async fn what_is_left_is_told_as_of_the_answer() {
    let rig = Rig::start();
    let clock = Arc::clone(&rig.clock);
    rig.disk
        .on_sync(move || clock.advance(Duration::from_secs(2)));
    let held = rig.granted(&limited("lock", 10_000, 60_000)).await;
    assert_eq!(held.expires_in, Duration::from_secs(8));
    assert_eq!(held.held_for, Duration::from_secs(2));
    assert_eq!(held.hold_expires_in, Some(Duration::from_secs(58)));
}

#[tokio::test]
async fn a_lease_that_ended_while_it_was_written_is_not_answered_as_granted() {
    let rig = Rig::start();
    let clock = Arc::clone(&rig.clock);
    rig.disk
        .on_sync(move || clock.advance(Duration::from_secs(20)));
    let outcome = rig.store().acquire(&attempt("lock", 10_000)).await;
    let late = StoreError::from(Uncertainty::TimedOut);
    assert_eq!(outcome, Err(late.clone()));
    let long = attempt("long", 25_000);
    rig.granted(&long).await;
    let short = Some(ttl(10_000));
    let outcome = rig.store().renew(&long.name, &long.token, short).await;
    assert_eq!(outcome, Err(late));
}

// === impl Gate ===

impl Gate {
    pub(super) fn close(rig: &Rig) -> Self {
        Self::close_when(rig, |_disk| true)
    }

    /// Closes a gate that holds only the syncs during which the disk meets the condition.
    pub(super) fn close_when(rig: &Rig, is_so: fn(&Disk) -> bool) -> Self {
        let (reach, reached) = mpsc::sync_channel(100);
        let (go_on, gone_on) = mpsc::sync_channel(1);
        let gone_on = Mutex::new(gone_on);
        let disk = rig.disk.clone();
        rig.disk.on_sync(move || {
            if !is_so(&disk) {
                return;
            }
            reach.try_send(()).ok();
            // When the sender is dropped, the gate stays open.
            gone_on.lock().recv().ok();
        });
        Self { reached, go_on }
    }

    pub(super) async fn wait(&self) {
        until("a sync", async || self.reached.try_recv().is_ok()).await;
    }

    pub(super) fn open(self) {
        drop(self.go_on);
    }
}
