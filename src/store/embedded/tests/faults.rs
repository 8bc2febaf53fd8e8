//! The disk fails: nothing granted is lost, and the answers say exactly what is known.

use super::{
    disk::Fault,
    rig::{Rig, attempt},
};
use crate::store::{
    Store, StoreError, Unavailability, Uncertainty,
    contract::{Acquisition, Health, Release},
};

const LONG: u64 = 3_600_000;

#[tokio::test]
async fn a_disk_that_cannot_be_written_loses_nothing_and_heals() {
    for fault in [Fault::Full(0), Fault::ReadOnly] {
        let mut rig = Rig::start();
        let kept = attempt("kept", LONG);
        let fence = rig.granted(&kept).await.fence;
        rig.disk.fail(fault);
        for _ in 0..3 {
            let refused = rig.store().acquire(&attempt("wanted", LONG)).await;
            assert!(is_disk_unavailable(&refused), "{fault:?}: {refused:?}");
            let refused = rig.store().release(&kept.name, &kept.token).await;
            assert!(is_disk_unavailable(&refused), "{fault:?}: {refused:?}");
        }
        assert!(rig.is_free("wanted").await);
        assert!(!rig.is_free("kept").await);
        let health = rig.store().check().await.remove(0).health;
        assert!(matches!(health, Health::Outage(_)), "{health:?}");

        rig.disk.fail(Fault::None);
        assert!(rig.writes_again().await.fence > fence);
        let health = rig.store().check().await.remove(0).health;
        assert_eq!(health, Health::Passing);
        rig.restart().await;
        assert!(rig.is_free("wanted").await);
        assert!(!rig.is_free("kept").await);
    }
}

#[tokio::test]
async fn space_that_runs_out_at_any_write_changes_nothing() {
    for writes in (0..40).step_by(2) {
        let mut rig = Rig::start();
        rig.granted(&attempt("kept", LONG)).await;
        rig.disk.fail(Fault::Full(writes));
        let mut granted = Vec::new();
        for turn in 0..40 {
            let lock = format!("lock:{turn}");
            match rig.store().acquire(&attempt(&lock, LONG)).await {
                Ok(Acquisition::Granted(_)) => granted.push(lock),
                refused => {
                    assert!(is_disk_unavailable(&refused), "{refused:?}");
                    break;
                }
            }
        }
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
        rig.lose_power().await;
        assert!(!rig.is_free("kept").await);
        for turn in 0..40 {
            let lock = format!("lock:{turn}");
            assert_eq!(!rig.is_free(&lock).await, granted.contains(&lock), "{lock}");
        }
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
        let open = matches!(
            outcome,
            Err(StoreError::Indeterminate(Uncertainty::Disk(_)))
        );
        assert!(open, "{outcome:?}");
        // Nothing was done that anybody was told of, so what is shown does not change.
        assert!(!rig.is_free("kept").await);
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
        assert!(!rig.is_free("kept").await);
        rig.lose_power().await;
        assert!(!rig.is_free("kept").await);
        let release = rig.store().release(&kept.name, &kept.token).await;
        assert_eq!(release, Ok(Release::Released));
    }
}

#[tokio::test]
async fn a_dead_disk_is_an_outage_and_inspect_goes_on() {
    let rig = Rig::start();
    rig.granted(&attempt("kept", LONG)).await;
    rig.disk.fail(Fault::Dead);
    // The error of a write does not say how much of it was done.
    let open = rig.store().acquire(&attempt("wanted", LONG)).await;
    let open = matches!(open, Err(StoreError::Indeterminate(_)));
    assert!(open, "{open:?}");
    for _ in 0..2 {
        let refused = rig.store().acquire(&attempt("wanted", LONG)).await;
        assert!(is_disk_unavailable(&refused), "{refused:?}");
        assert!(!rig.is_free("kept").await);
        assert!(rig.is_free("wanted").await);
    }
    rig.disk.fail(Fault::None);
    rig.writes_again().await;
}

fn is_disk_unavailable<T>(outcome: &Result<T, StoreError>) -> bool {
    matches!(
        outcome,
        Err(StoreError::Unavailable(
            Unavailability::Disk(_) | Unavailability::DiskFull(_)
        ))
    )
}
