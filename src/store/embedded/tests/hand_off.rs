//! Hand-off on a disk that fails or takes its time: nobody is told what is not durable, nobody is
//! lost, and no lock is left to somebody who has gone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use parking_lot::Mutex;
use tokio::time::{Duration, sleep};

use super::{
    disk::Fault,
    line::{LONG, queued, released, told_of_its_grant, waiting, waiting_under},
    rig::{Rig, attempt, key},
    stall::Gate,
};
use crate::{
    lock::FencingToken,
    store::{
        Store, StoreError,
        contract::{Acquisition, Holder},
    },
};

#[tokio::test]
async fn a_release_that_cannot_be_written_hands_nothing_off_and_loses_nobody() {
    for fault in [
        Fault::Full(0),
        Fault::ReadOnly,
        Fault::SyncLands(1),
        Fault::SyncLoses(1),
        Fault::SyncLoses(usize::MAX),
    ] {
        let rig = Rig::start();
        let holder = attempt("lock", LONG);
        let fence = rig.granted(&holder).await.fence;
        let [a, b] = [waiting("lock"), waiting("lock")];
        let (mut first, mut second) = (queued(&rig, &a).await, queued(&rig, &b).await);
        rig.disk.fail(fault);
        let release = rig.store().release(&holder.name, &holder.token).await;
        assert!(release.is_err(), "{fault:?}: {release:?}");
        assert_eq!(shown(&rig).await, (Some(fence), 2), "{fault:?}");
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
        assert_eq!(first.try_news(), None, "{fault:?}");
        assert_eq!(second.try_news(), None, "{fault:?}");

        released(&rig, &holder).await;
        let held = told_of_its_grant(&mut first).await;
        assert_eq!(shown(&rig).await, (Some(held.fence), 1), "{fault:?}");
        released(&rig, &a).await;
        told_of_its_grant(&mut second).await;
    }
}

#[tokio::test]
async fn a_release_and_the_grant_to_the_next_are_one_transaction() {
    let mut rig = Rig::start();
    let holder = attempt("lock", LONG);
    let fence = rig.granted(&holder).await.fence;
    let _place = queued(&rig, &waiting("lock")).await;
    // Everything reaches the disk, and the process dies before it can say so.
    rig.disk.fail(Fault::SyncLands(usize::MAX));
    let release = rig.store().release(&holder.name, &holder.token).await;
    assert!(
        matches!(release, Err(StoreError::Indeterminate(_))),
        "{release:?}"
    );
    rig.lose_power().await;
    let (after, waiters) = shown(&rig).await;
    assert!(after > Some(fence), "neither of them holds the lock");
    assert_eq!(waiters, 0);
}

#[tokio::test]
async fn a_lease_that_expires_while_the_disk_fails_is_handed_off_when_it_heals() {
    let rig = Rig::start();
    rig.granted(&attempt("lock", 10_000)).await;
    let mut place = queued(&rig, &waiting("lock")).await;
    rig.disk.fail(Fault::ReadOnly);
    rig.clock.advance(Duration::from_secs(11));
    let refused = rig.store().acquire(&attempt("other", LONG)).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(place.try_news(), None);
    rig.disk.fail(Fault::None);
    told_of_its_grant(&mut place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_of_a_grant_before_it_is_durable() {
    let rig = Rig::start();
    let holder = attempt("lock", LONG);
    let fence = rig.granted(&holder).await.fence;
    let next = waiting("lock");
    let mut place = queued(&rig, &next).await;
    let _last = queued(&rig, &waiting("lock")).await;
    let gate = Gate::close(&rig);
    let watch = async {
        gate.wait().await;
        assert_eq!(place.try_news(), None);
        assert_eq!(shown(&rig).await, (Some(fence), 2));
        let confirmed = rig.store().confirm(&next.name, &next.token).await.unwrap();
        assert_eq!(confirmed, crate::store::contract::Confirmation::Lost);
        gate.open();
    };
    tokio::join!(released(&rig, &holder), watch);
    let held = told_of_its_grant(&mut place).await;
    assert_eq!(shown(&rig).await, (Some(held.fence), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_which_nobody_hears_passes_on_at_once() {
    let rig = Rig::start();
    let holder = attempt("lock", LONG);
    rig.granted(&holder).await;
    let key = key();
    let gone = queued(&rig, &waiting_under("lock", key)).await;
    let mut next = queued(&rig, &waiting("lock")).await;
    let gate = Gate::close(&rig);
    let hang_up = async {
        gate.wait().await;
        drop(gone);
        gate.open();
    };
    tokio::join!(released(&rig, &holder), hang_up);
    told_of_its_grant(&mut next).await;
    // Nobody has heard of that grant, so its key is as good as new.
    let _again = queued(&rig, &waiting_under("lock", key)).await;
}

#[tokio::test]
async fn a_grant_of_which_nobody_hears_passes_on_when_the_disk_heals() {
    let rig = Rig::start();
    let syncs = syncs_of_a_release(&rig).await;
    let holder = attempt("lock", LONG);
    rig.granted(&holder).await;
    let gone = Mutex::new(Some(queued(&rig, &waiting("lock")).await));
    let mut next = queued(&rig, &waiting("lock")).await;
    let disk = rig.disk.clone();
    let seen = AtomicUsize::new(0);
    rig.disk.on_sync(move || {
        if seen.fetch_add(1, Ordering::SeqCst) + 1 == syncs {
            // The last of this transaction: it succeeds, and the next one does not.
            drop(gone.lock().take());
            disk.fail(Fault::ReadOnly);
        }
    });
    released(&rig, &holder).await;
    while rig.store().check().await[0].health == crate::store::contract::Health::Passing {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(next.try_news(), None);
    rig.disk.fail(Fault::None);
    told_of_its_grant(&mut next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_was_answered_under_its_key_is_kept_although_its_attempt_has_gone() {
    let rig = Rig::start();
    let syncs = syncs_of_a_release(&rig).await;
    let [holder, before] = ["lock", "before"].map(|lock| attempt(lock, LONG));
    rig.granted(&holder).await;
    rig.granted(&before).await;
    let key = key();
    let gone = Mutex::new(Some(queued(&rig, &waiting_under("lock", key)).await));
    let mut next = queued(&rig, &waiting("lock")).await;
    let (reach, reached) = mpsc::sync_channel(1);
    let (go_on, gone_on) = mpsc::sync_channel(1);
    let (gone_on, seen) = (Mutex::new(gone_on), AtomicUsize::new(0));
    rig.disk
        .on_sync(move || match seen.fetch_add(1, Ordering::SeqCst) {
            // Until the commands of the next transaction are there.
            0 => {
                reach.send(()).unwrap();
                gone_on.lock().recv().unwrap();
            }
            number if number == syncs => drop(gone.lock().take()),
            _ => {}
        });
    let again = waiting_under("lock", key);
    let in_one_transaction = async {
        while reached.try_recv().is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        let all_are_sent = async { go_on.send(()).unwrap() };
        // The first of them is polled first.
        let ((), answered, ()) = tokio::join!(
            released(&rig, &holder),
            rig.store().acquire(&again),
            all_are_sent
        );
        assert!(
            matches!(answered, Ok(Acquisition::Replayed(..))),
            "{answered:?}"
        );
    };
    tokio::join!(released(&rig, &before), in_one_transaction);
    // Whatever is taken back is taken back with the next command.
    let (fence, waiters) = shown(&rig).await;
    rig.granted(&attempt("after", LONG)).await;
    assert_eq!(shown(&rig).await, (fence, waiters));
    assert_eq!(next.try_news(), None);
}

#[tokio::test]
async fn those_who_are_gone_are_passed_over_in_one_transaction() {
    let rig = Rig::start();
    let syncs = syncs_of_a_release(&rig).await;
    let holder = attempt("lock", LONG);
    rig.granted(&holder).await;
    for _ in 0..500 {
        drop(queued(&rig, &waiting("lock")).await);
    }
    let mut place = queued(&rig, &waiting("lock")).await;
    let count = count_syncs(&rig);
    released(&rig, &holder).await;
    told_of_its_grant(&mut place).await;
    assert_eq!(count.load(Ordering::SeqCst), syncs);
    assert_eq!(shown(&rig).await.1, 0);
}

#[tokio::test]
async fn one_who_is_granted_while_its_command_is_under_way_is_told_once() {
    let rig = Rig::start();
    let holder = attempt("lock", LONG);
    rig.granted(&holder).await;
    let next = waiting("lock");
    let mut place = queued(&rig, &next).await;
    released(&rig, &holder).await;
    let told = told_of_its_grant(&mut place).await;
    match rig.store().acquire(&next).await {
        Ok(Acquisition::Granted(held)) => assert_eq!(held.fence, told.fence),
        other => panic!("not its own: {other:?}"),
    }
}

/// Who holds the lock, and how many are queued for it.
async fn shown(rig: &Rig) -> (Option<FencingToken>, u64) {
    let shown = rig.shown("lock").await;
    let fence = shown.holder.map(|holder| match holder {
        Holder::Lease(held) => held.fence,
        Holder::Shared(_) | Holder::Foreign { .. } => panic!("there are no others"),
    });
    (fence, shown.waiters)
}

/// How often the disk is synced for the release of a lock for which nobody is queued.
async fn syncs_of_a_release(rig: &Rig) -> usize {
    let plain = attempt("plain", LONG);
    rig.granted(&plain).await;
    let count = count_syncs(rig);
    released(rig, &plain).await;
    let syncs = count.load(Ordering::SeqCst);
    assert!(syncs > 0);
    syncs
}

fn count_syncs(rig: &Rig) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    rig.disk.on_sync(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    count
}
