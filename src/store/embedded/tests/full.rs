//! The disk is full: whoever holds a lock keeps it and can give it back, and nobody acquires one.

use std::time::Duration;

use tokio::time::sleep;

use crate::store::{
    Store, StoreError, Unavailability,
    contract::{Acquisition, Attempt, Health, Release, Renewal, Renewer},
};

use super::{
    disk::Fault,
    line::{queued, released, told_of_its_grant, waiting},
    rig::{Rig, attempt},
};

const LONG: u64 = 3_600_000;

/// Takes locks until the disk has no room for the next one, whatever is cleared away.
async fn fill(rig: &Rig) -> Vec<Attempt> {
    let (mut held, mut refused) = (Vec::new(), 0);
    while refused < 80 {
        let asked = attempt(&format!("held:{}", held.len()), LONG);
        let outcome = rig.store().acquire(&asked).await;
        if let Ok(Acquisition::Granted(_)) = outcome {
            held.push(asked);
            refused = 0;
        } else {
            assert!(is_full(&outcome), "{outcome:?}");
            refused += 1;
            // Longer altogether than it takes until room is looked for again.
            sleep(Duration::from_millis(10)).await;
        }
        assert!(held.len() < 1_000, "it is never full");
    }
    held
}

fn is_full<T>(outcome: &Result<T, StoreError>) -> bool {
    match outcome {
        Err(StoreError::Unavailable(Unavailability::DiskFull(why))) => {
            why.contains("renewed and released")
        }
        _ => false,
    }
}

async fn renew(rig: &Rig, held: &Attempt) -> Result<Renewal, StoreError> {
    let store = rig.store();
    store
        .renew_as(Renewer::Bearer, &held.name, &held.token, None)
        .await
}

#[tokio::test]
async fn who_holds_a_lock_renews_and_releases_it_on_a_full_disk_for_as_long_as_it_takes() {
    for capacity in (44 * 1024..80 * 1024).step_by(9 * 1024) {
        let mut rig = Rig::start();
        rig.disk.fail(Fault::Capacity(capacity));
        let mut held = fill(&rig).await;
        assert!(held.len() > 20, "{capacity}: {}", held.len());
        // The log is written from end to end many times.
        for round in 0..30 {
            for lease in &held {
                let renewed = renew(&rig, lease).await;
                let renewed = matches!(renewed, Ok(Renewal::Renewed(..)));
                assert!(renewed, "{capacity}, round {round}: {renewed:?}");
            }
            let refused = rig.store().acquire(&attempt("wanted", LONG)).await;
            assert!(is_full(&refused), "{capacity}: {refused:?}");
        }
        let used = rig.disk.used();
        assert!(used <= capacity, "{used} of {capacity}");
        let health = rig.store().check().await.remove(0).health;
        assert!(matches!(&health, Health::Outage(why) if why.contains("full")));

        // Whatever was answered outlives a loss of power.
        let released = held.split_off(held.len() / 2);
        for lease in released.iter().take(3) {
            let release = rig.store().release(&lease.name, &lease.token).await;
            assert_eq!(release, Ok(Release::Released), "{capacity}");
        }
        rig.lose_power().await;
        for (number, lease) in released.iter().enumerate() {
            let is_free = rig.is_free(lease.name.as_str()).await;
            assert_eq!(is_free, number < 3, "{capacity}: {number}");
        }
        for lease in &held {
            assert!(!rig.is_free(lease.name.as_str()).await, "{capacity}");
        }
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
    }
}

#[tokio::test]
async fn space_that_is_freed_is_used_again() {
    let rig = Rig::start();
    rig.disk.fail(Fault::Capacity(48 * 1024));
    let held = fill(&rig).await;
    // By the locks that are given back: what is not needed any more is not kept.
    for lease in &held {
        let release = rig.store().release(&lease.name, &lease.token).await;
        assert_eq!(release, Ok(Release::Released));
    }
    rig.writes_again().await;
    let again = fill(&rig).await;
    assert!(again.len() * 2 > held.len(), "{} again", again.len());
    // By somebody else.
    rig.disk.fail(Fault::Capacity(96 * 1024));
    rig.writes_again().await;
    let health = rig.store().check().await.remove(0).health;
    assert_eq!(health, Health::Passing);
}

#[tokio::test]
async fn a_lock_that_is_released_on_a_full_disk_passes_to_who_waits_for_it() {
    let rig = Rig::start();
    let first = attempt("wanted", LONG);
    rig.granted(&first).await;
    let mut place = queued(&rig, &waiting("wanted")).await;
    rig.disk.fail(Fault::Capacity(48 * 1024));
    fill(&rig).await;
    released(&rig, &first).await;
    told_of_its_grant(&mut place).await;
}

#[tokio::test]
async fn a_store_that_is_started_on_a_full_disk_goes_on() {
    let mut rig = Rig::start();
    rig.disk.fail(Fault::Capacity(48 * 1024));
    let held = fill(&rig).await;
    for _ in 0..5 {
        rig.restart().await;
        for lease in &held {
            let renewed = renew(&rig, lease).await;
            assert!(matches!(renewed, Ok(Renewal::Renewed(..))), "{renewed:?}");
        }
    }
    fill(&rig).await;
    rig.disk.fail(Fault::None);
    rig.writes_again().await;
}
