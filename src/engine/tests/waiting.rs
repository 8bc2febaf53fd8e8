//! Attempts that wait in the queue.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::scripted_store::*;
use crate::{
    engine::{AcquireError, Engine},
    lock::Token,
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Acquisition, Confirmation, Contention, Leaving, QueuePosition},
        parking::News,
    },
};

/// An engine on a store that queues the first attempt, and gives this answer when the attempt leaves.
fn leaving(answer: Result<Leaving, StoreError>) -> (std::sync::Arc<ScriptedStore>, Engine) {
    engine_on(ScriptedStore::queueing().answering_leave(answer))
}

/// A position that has been in the queue for this long.
fn waited(waited: Duration) -> Acquisition {
    Acquisition::Queued(QueuePosition {
        ahead: 2,
        waited,
        contention: contention(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_grant_ends_the_wait_and_says_how_long_it_was() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let caller = start_acquire(&engine, waiting_request(None)).await;
    sleep(Duration::from_secs(3)).await;
    store.tell(News::Granted(held()));
    let granted = caller.await.unwrap().unwrap();
    assert_eq!(granted.lease.waited, Duration::from_secs(3));
    granted.delivery.delivered();
    assert!(store.parking.is_empty());
}

#[tokio::test(start_paused = true)]
async fn news_that_come_before_the_answer_are_heard() {
    let (store, engine) = engine_on(ScriptedStore::queueing().with_closed_gate());
    let caller = start_acquire(&engine, waiting_request(None)).await;
    store.tell(News::Granted(held()));
    store.open_gate();
    caller.await.unwrap().unwrap().delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_leaves_the_queue() {
    for (key, kept_for) in [(None, None), (KEY, Some(GRACE))] {
        let (store, engine) = engine_on(ScriptedStore::queueing());
        let started = Instant::now();
        let error = engine.acquire(waiting_request(key)).await.unwrap_err();
        assert!(
            matches!(error, AcquireError::Held { waited: WAIT, .. }),
            "{error:?}"
        );
        assert_eq!(started.elapsed(), WAIT);
        assert_eq!(store.left.lock()[0].1, kept_for);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_goes_on_with_a_place_counts_from_when_that_was_taken() {
    const BEFORE: Duration = Duration::from_secs(40);
    for is_granted in [true, false] {
        let (store, engine) = engine_on(ScriptedStore::answering(Ok(waited(BEFORE))));
        let caller = start_acquire(&engine, waiting_request(KEY)).await;
        sleep(Duration::from_secs(3)).await;
        let longest = engine.waiters_by_name()[0].longest;
        assert_eq!(longest, BEFORE + Duration::from_secs(3));
        if is_granted {
            store.tell(News::Granted(held()));
        }
        match caller.await.unwrap() {
            Ok(granted) if is_granted => {
                assert_eq!(granted.lease.waited, longest);
                granted.delivery.delivered();
            }
            Err(AcquireError::Held { waited, .. }) if !is_granted => {
                assert_eq!(waited, BEFORE + WAIT);
            }
            other => panic!("{other:?}"),
        }
        // The refusal of the earlier request was counted already.
        assert_eq!(engine.0.metrics.totals().acquires.held, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_idempotency_key_no_wait_goes_on() {
    // The store reports that the attempt has waited for 1 ms, although it has just come: the clock of the store
    // runs faster.
    let place = waited(Duration::from_millis(1));
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(place)));
    let refused = engine.acquire(waiting_request(None)).await.unwrap_err();
    assert!(
        matches!(refused, AcquireError::Held { waited: WAIT, .. }),
        "{refused:?}"
    );
    assert_eq!(engine.0.metrics.totals().acquires.held, 1);
}

#[tokio::test(start_paused = true)]
async fn one_who_waited_is_not_told_that_nothing_follows_if_too_few_replicas_have_the_grant() {
    let too_few = Unavailability::TooFewReplicas {
        wanted: 1,
        confirmed: Some(0),
    };
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let answer = Err(StoreError::Unavailable(too_few.clone()));
    store.confirmations.lock().push_back(answer);
    let caller = start_acquire(&engine, waiting_request(None)).await;
    store.tell(News::GrantedProvisionally);
    let refused = caller.await.unwrap().unwrap_err();
    let unknown = StoreError::Indeterminate(Uncertainty::LeftQueued(too_few));
    assert_is(&refused, &format!("Store({unknown:?}"));
}

#[tokio::test(start_paused = true)]
async fn a_place_that_the_store_was_not_told_to_keep_is_kept_all_the_same() {
    for (key, kept) in [(KEY, true), (None, false)] {
        let (store, engine) = leaving(Err(away()));
        engine.acquire(waiting_request(key)).await.unwrap_err();
        let token = store.attempts.lock()[0].token;
        sleep(GRACE / 2).await;
        assert_eq!(store.parking.contains(&token), kept);
        // The parked attempt does not count as a waiter: its caller's position counts already.
        let reserved = &engine.0.reserved_positions;
        assert_eq!(reserved.total_with(store.parking.len()), 0);
        sleep(GRACE).await;
        assert!(!store.parking.contains(&token));
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_parked_for_one_grace_although_it_counts_for_longer() {
    let (store, engine) = leaving(Err(away()));
    engine.acquire(waiting_request(KEY)).await.unwrap_err();
    let attempt = store.attempts.lock()[0].clone();
    sleep(GRACE / 2).await;
    engine.reserve_position(attempt.idempotency.unwrap().hash, None);
    sleep(GRACE / 2 + Duration::from_millis(10)).await;
    assert!(!store.parking.contains(&attempt.token));
    assert_eq!(engine.0.reserved_positions.total_with(0), 1);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_kept_counts_once_until_its_caller_counts_again() {
    let (store, engine) = leaving(Err(away()));
    engine.acquire(waiting_request(KEY)).await.unwrap_err();
    let attempt = store.attempts.lock()[0].clone();
    let key = attempt.idempotency.unwrap().hash;
    let reserved = &engine.0.reserved_positions;
    let counted = || reserved.total_with(store.parking.len());
    let has_room = |most| reserved.has_room_beside(store.parking.len(), most);
    engine.reserve_position(key, None);
    assert_eq!(counted(), 1);
    assert!(has_room(2) && !has_room(1));
    // The request is repeated. The old attempt stays parked, so that a lease it is granted in between is not lost.
    engine.resume_position(&key);
    assert_eq!(counted(), 0);
    assert!(has_room(1), "a position that is parked only does not count");
    assert!(store.parking.contains(&attempt.token));
    let again = Token::random().hash();
    let again = store.parking.park(attempt.name.clone(), again);
    assert_eq!(counted(), 1);
    drop(again);
    engine.reserve_position(key, None);
    assert_eq!(counted(), 1);
    assert!(!has_room(1));
    sleep(GRACE).await;
    assert!(has_room(1));
    assert_eq!(counted(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_in_the_instant_in_which_the_wait_ends_is_taken_or_given_back() {
    for hangs_up in [false, true] {
        let (store, engine) = leaving(Ok(Leaving::Granted(held())));
        let caller = start_acquire(&engine, waiting_request(None)).await;
        if hangs_up {
            caller.abort();
            settle().await;
        } else {
            caller.await.unwrap().unwrap().delivery.delivered();
        }
        assert_eq!(store.given_back(), usize::from(hangs_up));
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_queued_and_cannot_ask_again_is_given_back() {
    let foreign = StoreError::ForeignData {
        key: "lg:{job}:info".to_owned(),
        found: "a list".into(),
    };
    for (error, unknown) in [
        (away(), true),
        (foreign, false),
        (StoreError::FenceExhausted, false),
    ] {
        for key in [None, KEY] {
            let (store, engine) = engine_on(ScriptedStore::queueing());
            store.acquisitions.lock().push_back(Err(error.clone()));
            let caller = start_acquire(&engine, waiting_request(key)).await;
            store.tell(News::Forgotten);
            let AcquireError::Store(told) = caller.await.unwrap().unwrap_err() else {
                panic!("the store gave no answer");
            };
            // The attempt may be granted the lock after all, until it has been released.
            let is_unknown = matches!(told, StoreError::Indeterminate(_));
            assert_eq!(is_unknown, unknown, "{told:?}");
            sleep(GRACE).await;
            settle().await;
            let token = store.attempts.lock()[0].token;
            assert_eq!(*store.given_back.lock(), [token]);
            assert!(store.parking.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_whose_place_is_lost_when_its_wait_is_over_leaves_and_hears_how_things_stand() {
    let now = Contention {
        holder: None,
        waiters: 77,
    };
    let (store, engine) = leaving(Ok(Leaving::Left(now.clone())));
    store.confirmations.lock().push_back(Ok(Confirmation::Lost));
    let mut brief = waiting_request(KEY);
    brief.wait = Duration::from_millis(1);
    let caller = start_acquire(&engine, brief).await;
    store.hang_confirmations(Duration::from_secs(1));
    store.tell(News::GrantedProvisionally);
    let refused = caller.await.unwrap().unwrap_err();
    let AcquireError::Held { contention, .. } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(contention, now);
    let token = store.attempts.lock()[0].token;
    assert_eq!(*store.left.lock(), [(token, Some(GRACE))]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_leaves_the_queue_at_once_whatever_is_told_then() {
    // Many turns: which of two simultaneous events the attempt sees first must not be chance.
    for turn in 0..150 {
        let (store, engine) = engine_on(ScriptedStore::queueing());
        start_acquire(&engine, waiting_request(KEY)).await.abort();
        match turn % 3 {
            0 => store.tell(News::Forgotten),
            1 => store.tell(News::GrantedProvisionally),
            _ => {}
        }
        settle().await;
        assert_eq!(store.attempts.lock().len(), 1, "it asks again");
        assert_eq!(store.left.lock().len(), 1, "it leaves");
        assert!(store.parking.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_left_is_left_by_the_reaper() {
    let (store, engine) = leaving(Err(unknown()));
    let error = engine.acquire(waiting_request(None)).await.unwrap_err();
    assert_is(&error, "Store(Indeterminate(");
    settle().await;
    assert_eq!(store.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_provisional_grant_is_confirmed_before_it_is_answered() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let confirmed = Confirmation::Confirmed(held());
    store.confirmations.lock().push_back(Ok(confirmed));
    let caller = start_acquire(&engine, waiting_request(None)).await;
    store.tell(News::GrantedProvisionally);
    caller.await.unwrap().unwrap().delivery.delivered();
    assert!(store.confirmations.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_lost_its_place_is_sent_again_for_what_is_left_of_its_wait() {
    for (news, again) in [
        (News::GrantedProvisionally, queued()),
        (News::Forgotten, queued()),
        (News::Forgotten, granted()),
    ] {
        let is_queued = again == queued();
        let (store, engine) = engine_on(ScriptedStore::queueing());
        store.confirmations.lock().push_back(Ok(Confirmation::Lost));
        store.acquisitions.lock().push_back(Ok(again));
        let caller = start_acquire(&engine, waiting_request(None)).await;
        sleep(Duration::from_secs(4)).await;
        store.tell(news);
        settle().await;
        let patience = store.attempts.lock()[1].wait.unwrap().max_wait;
        assert_eq!(patience + Duration::from_secs(4), WAIT);
        if is_queued {
            store.tell(News::Granted(held()));
        }
        caller.await.unwrap().unwrap().delivery.delivered();
    }
}

#[tokio::test(start_paused = true)]
async fn the_older_of_two_requests_with_one_key_is_told_so() {
    for is_leaving in [false, true] {
        let (store, engine) = engine_on(ScriptedStore::queueing());
        let caller = start_acquire(&engine, waiting_request(KEY)).await;
        let store = store.with_closed_gate();
        if is_leaving {
            // The attempt is about to leave the queue when the newer request takes over its position.
            sleep(WAIT + Duration::from_millis(1)).await;
        }
        store.tell(News::Replaced);
        store.open_gate();
        assert_is(&caller.await.unwrap().unwrap_err(), "Replaced");
        assert_eq!(store.left.lock().len(), usize::from(is_leaving));
    }
}

#[tokio::test(start_paused = true)]
async fn a_draining_gateway_answers_those_who_wait_and_keeps_their_place() {
    let store = ScriptedStore::queueing();
    let (engine, lifecycle) = engine(&store);
    let caller = start_acquire(&engine, waiting_request(KEY)).await;
    lifecycle.drain();
    assert_is(&caller.await.unwrap().unwrap_err(), "Draining");
    assert_eq!(store.left.lock()[0].1, Some(GRACE));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_does_not_wait_takes_no_place() {
    let held = Acquisition::Held(contention());
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(held)));
    let error = engine.acquire(request(None)).await.unwrap_err();
    assert!(
        matches!(&error, AcquireError::Held { waited, .. } if waited.is_zero()),
        "{error:?}"
    );
    assert_eq!(store.attempts.lock()[0].wait, None);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_told_apart_from_a_held_lock() {
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(Acquisition::QueueFull)));
    let error = engine.acquire(waiting_request(None)).await.unwrap_err();
    assert_is(&error, "TooManyWaiters");
}
