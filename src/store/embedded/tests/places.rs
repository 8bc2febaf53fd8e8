//! Positions in the queue on a manual clock: when they are removed, and what becomes of a grant to a kept
//! position.

use std::time::Duration;

use crate::{
    lock::{FencingToken, IdempotencyHash},
    store::{
        Store, StoreError,
        contract::{Acquisition, Attempt, GiveBack, Leaving, Releaser},
        embedded::state::{Moment, State},
        parking::{News, Parking},
    },
};

use super::rig::{
    LONG, MAX_WAIT, Rig, attempt, key, name, news, told_of_its_grant, ttl, waiting, waiting_under,
    with,
};

const KEEP: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_place_whose_patience_is_over_is_given_up_a_while_later() {
    let rig = Rig::start();
    rig.granted(&attempt("lock", LONG)).await;
    let mut place = rig.queued(&waiting("lock")).await;
    rig.clock.advance(MAX_WAIT);
    // The position stays until its attempt has had time to leave by itself.
    rig.granted(&attempt("other", LONG)).await;
    assert_eq!(rig.shown("lock").await.waiters, 1);
    rig.clock.advance(Duration::from_secs(6));
    assert_eq!(news(&mut place).await, News::Forgotten);
    assert_eq!(rig.shown("lock").await.waiters, 0);
}

#[tokio::test]
async fn a_place_that_was_given_up_is_not_granted() {
    let rig = Rig::start();
    rig.granted(&attempt("lock", 70_000)).await;
    let mut over = rig.queued(&waiting("lock")).await;
    rig.clock.advance(Duration::from_secs(50));
    let mut next = rig.queued(&waiting("lock")).await;
    // The position and the lease end before the same sweep.
    rig.clock.advance(Duration::from_secs(50));
    rig.granted(&attempt("other", LONG)).await;
    assert_eq!(news(&mut over).await, News::Forgotten);
    told_of_its_grant(&mut next).await;
}

#[tokio::test]
async fn a_grant_to_a_kept_place_lasts_as_long_as_the_place_and_its_ttl_once_it_is_asked_for() {
    for restart in ["none", "restart", "reboot"] {
        let mut rig = Rig::start();
        let (holder, key) = (attempt("lock", LONG), key());
        let first = kept_place_behind(&rig, &holder, key).await;
        rig.clock.advance(Duration::from_secs(2));
        rig.released(&holder).await;
        match restart {
            "restart" => rig.restart().await,
            "reboot" => rig.lose_power().await,
            _ => {}
        }
        // No caller knows of the lease, so neither a late copy of the attempt nor a reboot extends it.
        let late = rig.store().acquire(&first).await;
        assert_eq!(late, Ok(Acquisition::Replaced), "{restart}");
        let left = KEEP.saturating_sub(Duration::from_secs(2));
        assert_eq!(rig.left("lock").await, left, "{restart}");
        rig.clock.advance(Duration::from_secs(2));
        let again = waiting_under("lock", key);
        match rig.store().acquire(&again).await {
            Ok(Acquisition::Collected(held, ..)) => {
                assert_eq!(held.expires_in, Duration::from_millis(LONG));
            }
            other => panic!("{restart}: not the lease of its key: {other:?}"),
        }
        assert_eq!(rig.left("lock").await, Duration::from_millis(LONG));
    }
}

#[tokio::test]
async fn a_grant_to_a_kept_place_can_be_given_back() {
    let rig = Rig::start();
    let (holder, key) = (attempt("lock", LONG), key());
    let first = kept_place_behind(&rig, &holder, key).await;
    rig.released(&holder).await;
    let given_back = rig.store().give_back(&first.name, &first.token, None).await;
    assert_eq!(given_back, Ok(GiveBack::GivenBack));
}

#[tokio::test]
async fn whoever_is_queued_is_told_when_the_store_closes() {
    let mut rig = Rig::start();
    rig.granted(&attempt("lock", LONG)).await;
    let attempt = waiting("lock");
    let mut place = rig.queued(&attempt).await;
    rig.close().await;
    assert_eq!(news(&mut place).await, News::Forgotten);
}

#[tokio::test]
async fn a_lease_that_ended_while_it_was_written_is_not_handed_over() {
    let rig = Rig::start();
    let holder = attempt("lock", LONG);
    rig.granted(&holder).await;
    let short = with(waiting("lock"), |it| it.set_ttl(ttl(10_000)));
    let mut place = rig.queued(&short).await;
    let clock = std::sync::Arc::clone(&rig.clock);
    rig.disk
        .on_sync(move || clock.advance(Duration::from_secs(20)));
    rig.released(&holder).await;
    assert_eq!(news(&mut place).await, News::Forgotten);
}

#[test]
fn without_a_fence_left_everybody_is_told_to_ask_again() {
    let parking = Parking::default();
    let mut state = State::new(vec![], vec![], FencingToken::MAX.get() - 1, parking.clone());
    let now = Moment::from_micros(1);
    let last = attempt("lock", LONG);
    state.acquire(&last, now).unwrap();
    let [a, b] = [waiting("lock"), waiting("lock")];
    let _places = [&a, &b].map(|it| parking.park(it.name.clone(), it.token));
    for queued in [&a, &b] {
        let answer = state.acquire(queued, now);
        assert!(matches!(answer, Ok(Acquisition::Queued(_))), "{answer:?}");
    }
    state.release(Releaser::Bearer, &last.name, &last.token, now);
    let told: Vec<_> = state
        .commit()
        .into_iter()
        .map(|it| (it.token, it.news))
        .collect();
    assert_eq!(
        told,
        [(a.token, News::Forgotten), (b.token, News::Forgotten)]
    );
    assert_eq!(state.inspect(&name("lock"), now).waiters, 0);
    assert_eq!(state.acquire(&a, now), Err(StoreError::FenceExhausted));
}

/// Queues an attempt with this key behind a new lease, and leaves with the position kept.
async fn kept_place_behind(rig: &Rig, holder: &Attempt, key: IdempotencyHash) -> Attempt {
    rig.granted(holder).await;
    let first = waiting_under("lock", key);
    let place = rig.queued(&first).await;
    let leaving = rig.store().leave(&first.name, &first.token, Some(KEEP));
    let leaving = leaving.await.unwrap();
    assert!(matches!(leaving, Leaving::Left(_)), "{leaving:?}");
    drop(place);
    first
}
