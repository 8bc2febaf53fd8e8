//! Tombstones: ended leases are remembered for a while, and then forgotten in memory and in the log.

use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::rig::{LONG, Rig, attempt, key, keyed, until};
use crate::{
    lock::{IdempotencyHash, Token},
    store::{
        Store, StoreError, Unavailability,
        contract::{Acquisition, Attempt, GiveBack, Loss, Release, TOMBSTONE},
    },
};

const MICRO: Duration = Duration::from_micros(1);

/// Releases a lease under an idempotency key, and gives an attempt back.
async fn ended(rig: &Rig, lock: &str, key: IdempotencyHash) -> [Attempt; 2] {
    let [used, late] = [keyed(lock, LONG, key), attempt("lock", LONG)];
    rig.granted(&used).await;
    rig.released(&used).await;
    let outcome = rig.store().give_back(&late.name, &late.token, None).await;
    assert_eq!(outcome, Ok(GiveBack::NothingHeld));
    [used, late]
}

/// Asserts that the idempotency key and the tokens are still refused.
async fn is_remembered(rig: &Rig, [used, late]: &[Attempt; 2]) {
    let again = Attempt {
        token: Token::random().hash(),
        ..used.clone()
    };
    let outcome = rig.store().acquire(&again).await;
    assert_eq!(outcome, Ok(Acquisition::IdempotencyExpired));
    let withdrawn = StoreError::from(Unavailability::Withdrawn);
    assert_eq!(rig.store().acquire(late).await, Err(withdrawn));
    let release = rig.store().release(&used.name, &used.token).await;
    assert!(matches!(release, Ok(Release::Released(_))), "{release:?}");
}

#[tokio::test]
async fn a_used_key_and_a_token_that_was_given_back_are_refused_for_exactly_their_time() {
    for restarts in [false, true] {
        let mut rig = Rig::start();
        let ended = ended(&rig, "lock", key()).await;
        rig.clock.advance(TOMBSTONE.saturating_sub(MICRO));
        if restarts {
            rig.restart().await;
        }
        is_remembered(&rig, &ended).await;
        rig.clock.advance(MICRO);
        let [used, _late] = ended;
        let release = rig.store().release(&used.name, &used.token).await;
        assert_eq!(release, Ok(Release::Lost(Loss::Free)));
        rig.granted(&used).await;
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
async fn a_used_key_and_a_token_that_was_given_back_are_refused_after_a_reboot() {
    let mut rig = Rig::start();
    let ended = ended(&rig, "lock", key()).await;
    rig.lose_power().await;
    is_remembered(&rig, &ended).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_lease_after_its_time() {
    let mut rig = Rig::start();
    for turn in 0..20 {
        ended(&rig, &format!("lock:{turn}"), key()).await;
        rig.granted(&attempt(&format!("short:{turn}"), 10_000))
            .await;
    }
    assert_eq!(rig.remembered(), 80);
    all_is_forgotten(&mut rig).await;
}

#[tokio::test]
async fn nothing_is_left_of_very_many_names_after_their_time() {
    let mut rig = Rig::start();
    let turn = async |name: usize| {
        let asked = keyed(&format!("job:{name}"), LONG, key());
        rig.granted(&asked).await;
        rig.released(&asked).await;
    };
    stream::iter(0..5_000).for_each_concurrent(100, turn).await;
    assert!(rig.remembered() >= 5_000);
    all_is_forgotten(&mut rig).await;
}

/// Waits until all leases and tombstones are over and cleared away.
async fn all_is_forgotten(rig: &mut Rig) {
    rig.clock.advance(TOMBSTONE);
    until("nothing is left", async || rig.remembered() == 0).await;
    // The log must not hold the tombstones either: otherwise a restart would bring them back.
    rig.restart().await;
    assert_eq!(rig.remembered(), 0);
}
