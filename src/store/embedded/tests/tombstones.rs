//! What has ended is remembered for a while, and then forgotten, in memory and in the file.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};

use super::rig::{Rig, attempt, key, keyed};
use crate::store::{
    Store, StoreError, Unavailability,
    contract::{Acquisition, GiveBack, Loss, Release, TOMBSTONE},
};

const LONG: u64 = 3_600_000;
const MICRO: Duration = Duration::from_micros(1);

#[tokio::test]
async fn a_used_key_is_refused_for_exactly_its_time() {
    for restarts in [false, true] {
        let mut rig = Rig::start();
        let key = key();
        let first = keyed("lock", LONG, key);
        rig.granted(&first).await;
        rig.store()
            .release(&first.name, &first.token)
            .await
            .unwrap();
        rig.clock.advance(TOMBSTONE.saturating_sub(MICRO));
        if restarts {
            rig.restart().await;
        }
        let again = keyed("lock", LONG, key);
        let outcome = rig.store().acquire(&again).await;
        assert_eq!(outcome, Ok(Acquisition::IdempotencyExpired));
        let release = rig.store().release(&first.name, &first.token).await;
        assert_eq!(release, Ok(Release::Released));
        rig.clock.advance(MICRO);
        let release = rig.store().release(&first.name, &first.token).await;
        assert_eq!(release, Ok(Release::Lost(Loss::Free)));
        rig.granted(&again).await;
    }
}

#[tokio::test]
async fn a_key_counts_from_the_expiry_of_its_lease_and_not_from_when_it_is_noticed() {
    let mut rig = Rig::start();
    let key = key();
    rig.granted(&keyed("lock", 10_000, key)).await;
    rig.close().await;
    rig.clock
        .advance(Duration::from_secs(10) + TOMBSTONE.saturating_sub(MICRO));
    rig.open().unwrap();
    let again = keyed("lock", 10_000, key);
    let outcome = rig.store().acquire(&again).await;
    assert_eq!(outcome, Ok(Acquisition::IdempotencyExpired));
    rig.clock.advance(MICRO);
    rig.granted(&again).await;
}

#[tokio::test]
async fn a_token_that_was_given_back_is_refused_for_its_time() {
    for restarts in [false, true] {
        let mut rig = Rig::start();
        let late = attempt("lock", LONG);
        let outcome = rig.store().give_back(&late.name, &late.token).await;
        assert_eq!(outcome, Ok(GiveBack::NothingHeld));
        rig.clock.advance(TOMBSTONE.saturating_sub(MICRO));
        if restarts {
            rig.restart().await;
        }
        let withdrawn = StoreError::from(Unavailability::Withdrawn);
        assert_eq!(rig.store().acquire(&late).await, Err(withdrawn));
    }
}

#[tokio::test]
async fn a_used_key_is_refused_after_a_reboot() {
    let mut rig = Rig::start();
    let (key, late) = (key(), attempt("lock", LONG));
    let first = keyed("lock", LONG, key);
    rig.granted(&first).await;
    rig.store()
        .release(&first.name, &first.token)
        .await
        .unwrap();
    rig.store()
        .give_back(&late.name, &late.token)
        .await
        .unwrap();
    rig.lose_power().await;
    let outcome = rig.store().acquire(&keyed("lock", LONG, key)).await;
    assert_eq!(outcome, Ok(Acquisition::IdempotencyExpired));
    let release = rig.store().release(&first.name, &first.token).await;
    assert_eq!(release, Ok(Release::Released));
    let withdrawn = StoreError::from(Unavailability::Withdrawn);
    assert_eq!(rig.store().acquire(&late).await, Err(withdrawn));
}

#[tokio::test]
async fn nothing_is_left_of_a_lease_after_its_time() {
    let mut rig = Rig::start();
    for turn in 0..20 {
        let first = keyed(&format!("lock:{turn}"), LONG, key());
        rig.granted(&first).await;
        rig.store()
            .release(&first.name, &first.token)
            .await
            .unwrap();
        let late = attempt("lock", LONG);
        rig.store()
            .give_back(&late.name, &late.token)
            .await
            .unwrap();
    }
    assert_eq!(rig.remembered(), 60);
    all_is_forgotten(&mut rig).await;
}

#[tokio::test]
async fn nothing_is_left_of_very_many_names_after_their_time() {
    let mut rig = Rig::start();
    let turn = async |name: usize| {
        let asked = keyed(&format!("job:{name}"), LONG, key());
        rig.granted(&asked).await;
        rig.store()
            .release(&asked.name, &asked.token)
            .await
            .unwrap();
    };
    stream::iter(0..5_000).for_each_concurrent(100, turn).await;
    assert!(rig.remembered() >= 5_000);
    all_is_forgotten(&mut rig).await;
}

/// Ends when the time of all that is remembered is over, and it is forgotten.
async fn all_is_forgotten(rig: &mut Rig) {
    rig.clock.advance(TOMBSTONE);
    let deadline = Instant::now() + Duration::from_secs(10);
    while rig.remembered() > 0 {
        assert!(Instant::now() < deadline, "{} are left", rig.remembered());
        sleep(Duration::from_millis(10)).await;
    }
    // The file has forgotten them as well: a reboot would bring back what it still holds.
    rig.restart().await;
    assert_eq!(rig.remembered(), 0);
}
