//! Backups of a running store: a backup holds every change that was acknowledged before it, and is refused if
//! part of it is missing.

use std::time::Duration;

use crate::{
    lock::Sharing,
    store::{
        Store, StoreError, Unavailability,
        contract::Acquisition,
        embedded::{BackupError, OpenError, check_backup},
    },
};

use super::{
    disk::Fault,
    rig::{LONG, Rig, attempt, key, keyed, one_of, share, with},
};

async fn backup(rig: &Rig) -> Vec<u8> {
    rig.store().backup().await.unwrap().bytes
}

/// Starts a store that holds `count` locks, and makes a backup of it.
async fn of_some_locks(count: usize) -> (Rig, Vec<u8>) {
    let rig = Rig::start();
    rig.hold(count).await;
    let made = backup(&rig).await;
    (rig, made)
}

#[tokio::test]
async fn what_was_acknowledged_before_is_in_it_whatever_changes_meanwhile() {
    const LOCKS: usize = 6_000;
    const SHARERS: usize = 3_000;
    let rig = Rig::start();
    let alone = (0..LOCKS).map(|number| keyed(&format!("held:{number}"), LONG, key()));
    let without_slot = Sharing {
        has_slot: false,
        ..share(Some(9_999))
    };
    let sharers = (0..SHARERS).map(|number| match number % 3 {
        0 => with(attempt("pool", LONG), |it| it.sharing = Some(without_slot)),
        _ => one_of(9_999, "pool", LONG + number as u64 % 100),
    });
    let held: Vec<_> = alone.chain(sharers).collect();
    // The acquires run at the same time, so that they share transactions.
    let granted = futures_util::future::join_all(held.iter().map(|it| rig.granted(it))).await;
    let busy = async {
        // The backup copies the rows in the order of the ends of leases, and each renewal makes another lease the last
        // to end.
        for turn in 0..150 {
            rig.renewed(&held[turn * 59]).await;
            for passing in [
                attempt(&format!("passing:{turn}"), LONG),
                one_of(9_999, "pool", LONG),
            ] {
                rig.granted(&passing).await;
                rig.released(&passing).await;
            }
        }
    };
    let ((), made) = tokio::join!(busy, backup(&rig));
    let leases = check_backup(&made).unwrap();
    // The lease that is acquired and released all the time may have been held when the backup was completed.
    assert!((held.len()..=held.len() + 1).contains(&leases), "{leases}");
    let later = rig.granted(&attempt("later", LONG)).await;

    rig.clock.advance(Duration::from_secs(1));
    let restored = rig.restored(&made).unwrap();
    assert!(restored.is_free("later").await);
    let newest = restored.granted(&attempt("later", LONG)).await;
    assert!(newest.fence > later.fence);
    // The smallest free slot follows the slots of these leases.
    let next = restored.granted(&one_of(9_999, "pool", LONG)).await;
    let beyond = u16::try_from(SHARERS - SHARERS / 3).unwrap();
    let slots = [Some(beyond), Some(beyond + 1)];
    assert!(slots.contains(&next.mode.slot()), "{next:?}");
    for (lease, granted) in held.iter().zip(&granted).step_by(37) {
        let kept = restored.renewed(lease).await;
        assert_eq!((kept.fence, kept.mode), (granted.fence, granted.mode));
        // The restored store knows the token of the lease.
        let replayed = restored.store().acquire(lease).await;
        let is_replayed = matches!(replayed, Ok(Acquisition::Granted(_)));
        assert!(is_replayed, "{replayed:?}");
        restored.released(lease).await;
    }
}

#[tokio::test]
async fn one_that_is_cut_or_damaged_is_refused() {
    let (rig, made) = of_some_locks(20).await;
    assert_eq!(check_backup(&made).unwrap(), 20);
    rig.clock.advance(Duration::from_secs(1));
    let used = made.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for len in (0..used).step_by(37).chain(used - 9..=used) {
        let mut lost = made.clone();
        lost[len..].fill(0);
        for damaged in [&made[..len], &lost] {
            if damaged != made {
                let damaged = check_backup(damaged);
                let is_refused = matches!(damaged, Err(BackupError::Damaged(_)));
                assert!(is_refused, "{len}: {damaged:?}");
            }
        }
        let refused = rig.restored(&made[..len]).map(|_rig| ());
        let is_refused = matches!(refused, Err(OpenError::Corrupt { .. }));
        assert!(is_refused, "{refused:?}");
    }
    // A log file in use is no backup: it may lack later records.
    let in_use = check_backup(&rig.disk.newest());
    assert!(matches!(in_use, Err(BackupError::NoBackup)), "{in_use:?}");
}

#[tokio::test]
async fn one_that_was_made_later_than_the_clock_says_is_not_restored() {
    let (rig, made) = of_some_locks(1).await;
    // The clock has not advanced since the last grant. With this clock the store could grant a fencing token again.
    let refused = rig.restored(&made).map(|_rig| ());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("set the clock"), "{refused}");
    rig.clock.advance(Duration::from_secs(1));
    let mut restored = rig.restored(&made).unwrap();
    // From now on the backup is a log like any other.
    restored.restart().await;
    assert!(!restored.is_free("held:0").await);
}

#[tokio::test]
async fn a_disk_that_fails_meanwhile_is_said_and_one_is_made_at_a_time() {
    let (rig, _made) = of_some_locks(1).await;
    let first = rig.store().backup().await.unwrap();
    let second = rig.store().backup().await.map(|_made| ());
    assert_eq!(second, Err(Unavailability::Overloaded.into()));
    drop(first);
    rig.store().backup().await.unwrap();
    rig.disk.fail(Fault::Full(0));
    let refused = rig.store().acquire(&attempt("wanted", LONG)).await;
    assert!(refused.is_err(), "{refused:?}");
    let refused = rig.store().backup().await.map(|_made| ());
    let is_refused = matches!(
        refused,
        Err(StoreError::Unavailable(Unavailability::Disk(_)))
    );
    assert!(is_refused, "{refused:?}");
}
