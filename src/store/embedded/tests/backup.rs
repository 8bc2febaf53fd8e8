//! A backup of the running store: it holds what was acknowledged before it, and is refused if anything is missing.

use std::time::Duration;

use crate::{
    lock::Sharing,
    store::{
        Store, StoreError, Unavailability,
        contract::{Acquisition, Attempt, Release, Renewal, RenewalTtl, Renewer},
        embedded::{BackupError, OpenError, check_backup},
    },
};

use super::{
    disk::Fault,
    rig::{Rig, attempt, key, keyed, one_of, share},
};

const LONG: u64 = 3_600_000;

async fn backup(rig: &Rig) -> Vec<u8> {
    rig.store().backup().await.unwrap().bytes
}

/// A store with some locks, and its backup.
async fn of_some_locks(count: usize) -> (Rig, Vec<Attempt>, Vec<u8>) {
    let rig = Rig::start();
    let held: Vec<_> = (0..count)
        .map(|number| attempt(&format!("held:{number}"), LONG))
        .collect();
    for lease in &held {
        rig.granted(lease).await;
    }
    let made = backup(&rig).await;
    (rig, held, made)
}

#[tokio::test]
async fn what_was_acknowledged_before_is_in_it_whatever_changes_meanwhile() {
    const LOCKS: usize = 6_000;
    let rig = Rig::start();
    let held: Vec<_> = (0..LOCKS)
        .map(|number| keyed(&format!("held:{number}"), LONG, key()))
        .collect();
    // Together, so that there are not as many transactions.
    let granted = futures_util::future::join_all(held.iter().map(|it| rig.granted(it))).await;
    let busy = async {
        // In every order of what ends first: the copy goes by that.
        for turn in 0..150 {
            let lease = &held[turn * 7];
            let ttl = crate::lock::Ttl::from_millis(LONG / (1 + turn as u64 % 5)).unwrap();
            let renewed = rig
                .store()
                .renew_as(Renewer::Bearer, &lease.name, &lease.token, Some(ttl).into())
                .await;
            assert!(matches!(renewed, Ok(Renewal::Renewed(..))), "{renewed:?}");
            let passing = attempt(&format!("passing:{turn}"), LONG);
            rig.granted(&passing).await;
            let release = rig.store().release(&passing.name, &passing.token).await;
            assert_eq!(release, Ok(Release::Released));
        }
    };
    let ((), made) = tokio::join!(busy, backup(&rig));
    let leases = check_backup(&made).unwrap();
    // One may have been held in that instant.
    assert!((LOCKS..=LOCKS + 1).contains(&leases), "{leases}");
    let later = rig.granted(&attempt("later", LONG)).await;

    rig.clock.advance(Duration::from_secs(1));
    let restored = rig.restored(&made).unwrap();
    assert!(restored.is_free("later").await);
    let newest = restored.granted(&attempt("later", LONG)).await;
    assert!(newest.fence > later.fence);
    for (lease, granted) in held.iter().zip(&granted).step_by(101) {
        let store = restored.store();
        let renewed = store
            .renew_as(
                Renewer::Bearer,
                &lease.name,
                &lease.token,
                RenewalTtl::default(),
            )
            .await;
        let Ok(Renewal::Renewed(kept, _)) = renewed else {
            panic!("{}: {renewed:?}", lease.name)
        };
        assert_eq!(kept.fence, granted.fence);
        // Its key is known, too.
        let replayed = store.acquire(lease).await;
        assert!(
            matches!(replayed, Ok(Acquisition::Granted(_))),
            "{replayed:?}"
        );
        let release = store.release(&lease.name, &lease.token).await;
        assert_eq!(release, Ok(Release::Released));
    }
}

#[tokio::test]
async fn those_who_share_a_lock_are_in_it_whoever_comes_and_goes_meanwhile() {
    const SHARERS: usize = 3_000;
    let rig = Rig::start();
    let held: Vec<_> = (0..SHARERS)
        .map(|number| match number % 3 {
            0 => Attempt {
                sharing: Some(Sharing {
                    has_slot: false,
                    ..share(Some(9_999))
                }),
                ..attempt("pool", LONG)
            },
            _ => one_of(9_999, "pool", LONG + number as u64 % 100),
        })
        .collect();
    let granted = futures_util::future::join_all(held.iter().map(|it| rig.granted(it))).await;
    let busy = async {
        for turn in 0..150 {
            let lease = &held[turn * 7];
            let ttl = crate::lock::Ttl::from_millis(LONG / (1 + turn as u64 % 5)).unwrap();
            let renewed = rig
                .store()
                .renew(&lease.name, &lease.token, Some(ttl))
                .await;
            assert!(matches!(renewed, Ok(Renewal::Renewed(..))), "{renewed:?}");
            let passing = one_of(9_999, "pool", LONG);
            rig.granted(&passing).await;
            let release = rig.store().release(&passing.name, &passing.token).await;
            assert_eq!(release, Ok(Release::Released));
        }
    };
    let ((), made) = tokio::join!(busy, backup(&rig));
    let leases = check_backup(&made).unwrap();
    // One may have passed by in that instant.
    assert!((SHARERS..=SHARERS + 1).contains(&leases), "{leases}");
    rig.clock.advance(Duration::from_secs(1));
    let restored = rig.restored(&made).unwrap();
    for (lease, granted) in held.iter().zip(&granted).step_by(11) {
        let renewed = restored
            .store()
            .renew(&lease.name, &lease.token, None)
            .await;
        let Ok(Renewal::Renewed(kept, _)) = renewed else {
            panic!("{renewed:?}")
        };
        assert_eq!((kept.fence, kept.mode), (granted.fence, granted.mode));
    }
    // The first slot that is free is the one behind them.
    let next = restored.granted(&one_of(9_999, "pool", LONG)).await;
    let beyond = u16::try_from(SHARERS - SHARERS / 3).unwrap();
    let slots = [Some(beyond), Some(beyond + 1)];
    assert!(slots.contains(&next.mode.slot()), "{next:?}");
}

#[tokio::test]
async fn one_that_is_cut_or_damaged_is_refused() {
    let (rig, _held, made) = of_some_locks(20).await;
    assert_eq!(check_backup(&made).unwrap(), 20);
    rig.clock.advance(Duration::from_secs(1));
    let used = made.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for len in (0..used).step_by(37).chain(used - 9..=used) {
        let cut = check_backup(&made[..len]);
        assert!(
            matches!(cut, Err(BackupError::Damaged(_))),
            "{len}: {cut:?}"
        );
        let mut lost = made.clone();
        lost[len..].fill(0);
        if lost != made {
            let lost = check_backup(&lost);
            assert!(
                matches!(lost, Err(BackupError::Damaged(_))),
                "{len}: {lost:?}"
            );
        }
        let refused = rig.restored(&made[..len]).map(|_rig| ());
        assert!(
            matches!(refused, Err(OpenError::Corrupt { .. })),
            "{refused:?}"
        );
    }
    // A file of a log that is in use may lack what comes next.
    let in_use = check_backup(&rig.disk.newest());
    assert!(matches!(in_use, Err(BackupError::NoBackup)), "{in_use:?}");
}

#[tokio::test]
async fn one_that_was_made_later_than_the_clock_says_is_not_restored() {
    let (rig, _held, made) = of_some_locks(1).await;
    // Fencing tokens that were granted since would be granted again.
    let refused = rig.restored(&made).map(|_rig| ());
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, OpenError::ClockBehindBackup(_)),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("set the clock"), "{refused}");
    rig.clock.advance(Duration::from_secs(1));
    let mut restored = rig.restored(&made).unwrap();
    // From then on it is a log as any other.
    restored.restart().await;
    assert!(!restored.is_free("held:0").await);
}

#[tokio::test]
async fn a_disk_that_fails_meanwhile_is_said_and_one_is_made_at_a_time() {
    let (rig, _held, _made) = of_some_locks(1).await;
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
