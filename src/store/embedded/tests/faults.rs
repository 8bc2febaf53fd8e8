//! Faults of the disk: no granted lease is lost, and the answers say exactly what is known.

use super::{
    disk::Fault,
    rig::{LONG, Rig, attempt, name, reader},
};
use crate::{
    lock::BreakTarget,
    store::{
        Store, StoreError, Unavailability, Uncertainty,
        contract::{Breaking, Health},
    },
};

#[tokio::test]
async fn a_disk_that_cannot_be_written_loses_nothing_and_heals() {
    for fault in [Fault::Full(0), Fault::ReadOnly, Fault::Dead] {
        let mut rig = Rig::start();
        let kept = attempt("kept", LONG);
        let fence = rig.granted(&kept).await.fence;
        rig.disk.fail(fault);
        if fault == Fault::Dead {
            // The error of a write does not say how much was written.
            let open = rig.store().acquire(&attempt("wanted", LONG)).await;
            let is_open = matches!(open, Err(StoreError::Indeterminate(_)));
            assert!(is_open, "{open:?}");
        }
        for _ in 0..3 {
            let refused = rig.store().acquire(&attempt("wanted", LONG)).await;
            assert!(is_disk_unavailable(&refused), "{fault:?}: {refused:?}");
            let refused = rig.store().release(&kept.name, &kept.token).await;
            assert!(is_disk_unavailable(&refused), "{fault:?}: {refused:?}");
        }
        assert!(rig.is_free("wanted").await);
        assert!(!rig.is_free("kept").await);
        let health = rig.health().await;
        assert!(matches!(health, Health::Outage(_)), "{health:?}");

        rig.disk.fail(Fault::None);
        assert!(rig.writes_again().await.fence > fence);
        assert_eq!(rig.health().await, Health::Passing);
        rig.restart().await;
        assert!(rig.is_free("wanted").await);
        assert!(!rig.is_free("kept").await);
    }
}

#[tokio::test]
async fn a_sync_that_fails_leaves_no_doubt_once_the_file_was_written_anew() {
    for fault in [Fault::SyncLands(1), Fault::SyncLoses(1)] {
        let mut rig = Rig::start();
        let kept = attempt("kept", LONG);
        rig.granted(&kept).await;
        rig.disk.fail(fault);
        let wanted = attempt("wanted", LONG);
        let refused = rig.store().acquire(&wanted).await;
        assert!(is_disk_unavailable(&refused), "{fault:?}: {refused:?}");
        assert!(rig.is_free("wanted").await);
        let next = rig.granted(&attempt("wanted", LONG)).await;
        rig.lose_power().await;
        assert!(!rig.is_free("kept").await, "{fault:?}");
        assert!(!rig.is_free("wanted").await, "{fault:?}");
        assert!(rig.granted(&attempt("later", LONG)).await.fence > next.fence);
    }
}

#[tokio::test]
async fn a_disk_that_dies_in_a_sync_leaves_the_outcome_open_and_then_settles_it() {
    for lands in [true, false] {
        let mut rig = Rig::start();
        let kept = attempt("kept", LONG);
        rig.granted(&kept).await;
        rig.disk.fail(if lands {
            Fault::SyncLands(usize::MAX)
        } else {
            Fault::SyncLoses(usize::MAX)
        });
        let outcome = rig.store().release(&kept.name, &kept.token).await;
        let is_open = matches!(
            &outcome,
            Err(StoreError::Indeterminate(Uncertainty::Disk(_)))
        );
        assert!(is_open, "{outcome:?}");
        // No caller was told that the release was carried out, so the lease is still shown.
        assert!(!rig.is_free("kept").await);
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
        assert!(!rig.is_free("kept").await);
        rig.lose_power().await;
        assert!(!rig.is_free("kept").await);
        rig.released(&kept).await;
    }
}

#[tokio::test]
async fn breaking_all_is_one_transaction_or_nothing() {
    for (fault, gone) in [
        (Fault::ReadOnly, false),
        (Fault::SyncLands(usize::MAX), true),
    ] {
        let mut rig = Rig::start();
        let sharing: Vec<_> = (0..10).map(|_| reader("lock", LONG)).collect();
        for one in &sharing {
            rig.granted(one).await;
        }
        rig.disk.fail(fault);
        let (lock, all) = (name("lock"), Some(BreakTarget::All));
        let broken = rig.store().break_lock(&lock, all).await;
        assert!(broken.is_err(), "{broken:?}");
        rig.lose_power().await;
        assert_eq!(rig.is_free("lock").await, gone, "{fault:?}");
        let broken = rig.store().break_lock(&lock, all).await;
        match (gone, broken.unwrap()) {
            (true, broken) => assert_eq!(broken, Breaking::NotHeld),
            (false, Breaking::Broken(holder)) => assert_eq!(holder.count(), 10),
            (false, other) => panic!("not broken: {other:?}"),
        }
        for one in &sharing {
            let late = rig.store().acquire(one).await;
            assert_eq!(late, Err(Unavailability::Withdrawn.into()));
        }
    }
}

fn is_disk_unavailable<T>(outcome: &Result<T, StoreError>) -> bool {
    matches!(
        outcome,
        Err(StoreError::Unavailable(
            Unavailability::Disk(_) | Unavailability::DiskFull(_)
        ))
    )
}
