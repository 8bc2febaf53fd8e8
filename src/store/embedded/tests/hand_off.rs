//! Hand-off on a disk that fails or is slow: no waiter is told of a grant that is not durable, no waiter is
//! lost, and no lock stays with a waiter that has gone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use parking_lot::Mutex;
use tokio::time::{Duration, sleep};

use super::{
    disk::Fault,
    rig::{
        LONG, Rig, attempt, key, one_of, patient, reader, told_of_its_grant, until, waiting,
        waiting_under,
    },
    stall::Gate,
};
use crate::{
    lock::FencingToken,
    store::{
        Store, StoreError,
        contract::{Acquisition, Confirmation, Health, Holder},
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
        let alone = || attempt("lock", LONG);
        let sharers = || [reader("lock", LONG), one_of(2, "lock", LONG)];
        for (holder, [a, b], granted) in [
            (alone(), [alone(), alone()], 1),
            (alone(), sharers(), 2),
            (reader("lock", LONG), [alone(), reader("lock", LONG)], 1),
        ] {
            let rig = Rig::start();
            let fence = rig.granted(&holder).await.fence;
            let [a, b] = [a, b].map(patient);
            let mut places = [rig.queued(&a).await, rig.queued(&b).await];
            rig.disk.fail(fault);
            let release = rig.store().release(&holder.name, &holder.token).await;
            assert!(release.is_err(), "{fault:?}: {release:?}");
            assert_eq!(shown(&rig).await, (vec![fence], 2), "{fault:?}");
            rig.disk.fail(Fault::None);
            rig.writes_again().await;
            for place in &mut places {
                assert_eq!(place.try_news(), None, "{fault:?}");
            }

            rig.released(&holder).await;
            let mut fences = Vec::new();
            for place in &mut places[..granted] {
                fences.push(told_of_its_grant(place).await.fence);
            }
            let waiters = 2 - granted as u64;
            assert_eq!(shown(&rig).await, (fences, waiters), "{fault:?}");
            rig.released(&a).await;
            if granted == 1 {
                told_of_its_grant(&mut places[1]).await;
            }
        }
    }
}

#[tokio::test]
async fn a_release_and_the_grants_to_the_next_are_one_transaction() {
    let one_of_twenty = |_| patient(one_of(20, "lock", LONG));
    for waiters in [vec![waiting("lock")], (0..20).map(one_of_twenty).collect()] {
        let mut rig = Rig::start();
        let holder = attempt("lock", LONG);
        let fence = rig.granted(&holder).await.fence;
        let mut places = Vec::new();
        for waiter in &waiters {
            places.push(rig.queued(waiter).await);
        }
        // All data reach the disk, and the process dies before it can answer.
        rig.disk.fail(Fault::SyncLands(usize::MAX));
        let release = rig.store().release(&holder.name, &holder.token).await;
        let is_open = matches!(release, Err(StoreError::Indeterminate(_)));
        assert!(is_open, "{release:?}");
        rig.lose_power().await;
        let (fences, queued) = shown(&rig).await;
        assert_eq!((fences.len(), queued), (waiters.len(), 0));
        assert!(fences.iter().all(|after| *after > fence));
    }
}

#[tokio::test]
async fn a_lease_that_expires_while_the_disk_fails_is_handed_off_when_it_heals() {
    let rig = Rig::start();
    rig.granted(&attempt("lock", 10_000)).await;
    let mut place = rig.queued(&waiting("lock")).await;
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
    let mut place = rig.queued(&next).await;
    let _last = rig.queued(&waiting("lock")).await;
    let gate = Gate::close(&rig);
    let watch = async {
        gate.wait().await;
        assert_eq!(place.try_news(), None);
        assert_eq!(shown(&rig).await, (vec![fence], 2));
        let confirmed = rig.store().confirm(&next.name, &next.token).await;
        assert_eq!(confirmed, Ok(Confirmation::Lost));
        gate.open();
    };
    tokio::join!(rig.released(&holder), watch);
    let held = told_of_its_grant(&mut place).await;
    assert_eq!(shown(&rig).await, (vec![held.fence], 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_which_nobody_hears_passes_on_at_once() {
    let rig = Rig::start();
    let holder = attempt("lock", LONG);
    rig.granted(&holder).await;
    let key = key();
    let gone = rig.queued(&waiting_under("lock", key)).await;
    let mut next = rig.queued(&waiting("lock")).await;
    let gate = Gate::close(&rig);
    let hang_up = async {
        gate.wait().await;
        drop(gone);
        gate.open();
    };
    tokio::join!(rig.released(&holder), hang_up);
    told_of_its_grant(&mut next).await;
    // No caller knew of that grant, so its idempotency key is still usable.
    let _again = rig.queued(&waiting_under("lock", key)).await;
}

#[tokio::test]
async fn a_grant_of_which_nobody_hears_passes_on_when_the_disk_heals() {
    let rig = Rig::start();
    let syncs = syncs_of_a_release(&rig).await;
    let holder = attempt("lock", LONG);
    rig.granted(&holder).await;
    let gone = Mutex::new(Some(rig.queued(&waiting("lock")).await));
    let mut next = rig.queued(&waiting("lock")).await;
    let disk = rig.disk.clone();
    let seen = AtomicUsize::new(0);
    rig.disk.on_sync(move || {
        if seen.fetch_add(1, Ordering::SeqCst) + 1 == syncs {
            // The last sync of this transaction succeeds, and the next write fails.
            drop(gone.lock().take());
            disk.fail(Fault::ReadOnly);
        }
    });
    rig.released(&holder).await;
    until("the disk fails", async || {
        rig.health().await != Health::Passing
    })
    .await;
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
    let gone = Mutex::new(Some(rig.queued(&waiting_under("lock", key)).await));
    let mut next = rig.queued(&waiting("lock")).await;
    let (reach, reached) = mpsc::sync_channel(1);
    let (go_on, gone_on) = mpsc::sync_channel(1);
    let (gone_on, seen) = (Mutex::new(gone_on), AtomicUsize::new(0));
    rig.disk
        .on_sync(move || match seen.fetch_add(1, Ordering::SeqCst) {
            // The first sync waits until the commands of the next transaction have arrived.
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
        // `join!` polls the release first, so it is sent first.
        let ((), answered, ()) = tokio::join!(
            rig.released(&holder),
            rig.store().acquire(&again),
            all_are_sent
        );
        assert!(
            matches!(answered, Ok(Acquisition::Replayed(..))),
            "{answered:?}"
        );
    };
    tokio::join!(rig.released(&before), in_one_transaction);
    // Undelivered grants are ended with the next command.
    let before = shown(&rig).await;
    rig.granted(&attempt("after", LONG)).await;
    assert_eq!(shown(&rig).await, before);
    assert_eq!(next.try_news(), None);
}

#[tokio::test]
async fn those_who_are_gone_are_passed_over_in_one_transaction() {
    let rig = Rig::start();
    let syncs = syncs_of_a_release(&rig).await;
    let holder = attempt("lock", LONG);
    rig.granted(&holder).await;
    for _ in 0..500 {
        drop(rig.queued(&waiting("lock")).await);
    }
    let mut place = rig.queued(&waiting("lock")).await;
    let count = count_syncs(&rig);
    rig.released(&holder).await;
    told_of_its_grant(&mut place).await;
    assert_eq!(count.load(Ordering::SeqCst), syncs);
    assert_eq!(shown(&rig).await.1, 0);
}

/// The fencing tokens that hold the lock, sorted, and how many waiters are queued for it.
async fn shown(rig: &Rig) -> (Vec<FencingToken>, u64) {
    let shown = rig.shown("lock").await;
    let leases = shown.holder.as_ref().map_or(&[][..], Holder::leases);
    let mut fences: Vec<_> = leases.iter().map(|lease| lease.fence).collect();
    fences.sort_unstable();
    (fences, shown.waiters)
}

/// How many syncs the release of a lock without waiters takes.
async fn syncs_of_a_release(rig: &Rig) -> usize {
    let plain = attempt("plain", LONG);
    rig.granted(&plain).await;
    let count = count_syncs(rig);
    rig.released(&plain).await;
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
