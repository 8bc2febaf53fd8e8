//! What becomes of a grant whose caller is not there.

use std::{sync::Arc, time::Duration};

use super::scripted_store::*;
use crate::{
    engine::{AcquireError, Granted, ReleaseError},
    lock::{CallerId, IdempotencyKey, Salt, Token},
    store::{
        StoreError, Unavailability,
        contract::{Acquisition, Loss},
    },
};

#[tokio::test(start_paused = true)]
async fn a_delivered_lease_is_kept() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    engine
        .acquire(request(None))
        .await
        .unwrap()
        .delivery
        .delivered();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(store.given_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_delivered_is_given_back_at_once() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    let granted = engine.acquire(request(None)).await.unwrap();
    let token = granted.lease.token.hash();
    drop(granted);
    settle().await;
    assert_eq!(*store.given_back.lock().unwrap(), [token]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_a_key_is_given_back_after_the_reconnect_grace() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    drop(engine.acquire(request(KEY)).await.unwrap());
    tokio::time::sleep(GRACE.saturating_sub(Duration::from_millis(2))).await;
    assert_eq!(store.given_back(), 0);
    tokio::time::sleep(Duration::from_millis(4)).await;
    assert_eq!(store.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replayed_lease_is_never_given_back() {
    let store = ScriptedStore::answering(Ok(Acquisition::Replayed(held(), Salt::random())));
    let (engine, _lifecycle) = engine(&store);
    let granted = engine.acquire(request(KEY)).await.unwrap();
    assert!(granted.delivery.is_replay());
    drop(granted);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(store.given_back(), 0);
}

/// A first answer under a key that reaches nobody, and a second one.
async fn twice_under_one_key(store: &Arc<ScriptedStore>) -> (Granted, Granted) {
    let (engine, _lifecycle) = engine(store);
    let first = engine.acquire(request(KEY)).await.unwrap();
    let salt = store.attempts.lock().unwrap()[0]
        .idempotency
        .as_ref()
        .unwrap()
        .salt;
    let replay = Ok(Acquisition::Replayed(held(), salt));
    store.acquisitions.lock().unwrap().push_back(replay);
    let second = engine.acquire(request(KEY)).await.unwrap();
    assert_eq!(first.lease.token.hash(), second.lease.token.hash());
    (first, second)
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_answered_twice_and_reached_nobody_is_given_back() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (first, second) = twice_under_one_key(&store).await;
    let token = first.lease.token.hash();
    drop(first);
    drop(second);
    tokio::time::sleep(GRACE / 2).await;
    assert!(store.released.lock().unwrap().is_empty());
    tokio::time::sleep(GRACE).await;
    assert_eq!(*store.released.lock().unwrap(), [token]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_other_answer_has_arrived_is_left_to_who_has_it() {
    for first_arrives in [true, false] {
        for lost_before in [true, false] {
            let store = ScriptedStore::answering(Ok(granted()));
            let (first, second) = twice_under_one_key(&store).await;
            let (arrives, lost) = if first_arrives {
                (first, second)
            } else {
                (second, first)
            };
            if lost_before {
                drop(lost);
                arrives.delivery.delivered();
            } else {
                arrives.delivery.delivered();
                drop(lost);
            }
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert!(store.released.lock().unwrap().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replayed_lease_has_the_token_of_its_salt() {
    let salt = Salt::random();
    let store = ScriptedStore::answering(Ok(Acquisition::Replayed(held(), salt)));
    let (engine, _lifecycle) = engine(&store);
    let granted = engine.acquire(request(KEY)).await.unwrap();
    let key = IdempotencyKey::new(KEY.unwrap()).unwrap();
    let expected = key.derive_token(&CallerId::ANONYMOUS, &name(), &salt);
    assert_eq!(granted.lease.token.hash(), expected.hash());
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_caller_hung_up_while_the_store_was_thinking_is_given_back() {
    let store = ScriptedStore::answering(Ok(granted())).with_closed_gate();
    let (engine, _lifecycle) = engine(&store);
    let hung_up = tokio::time::timeout(Duration::from_secs(1), engine.acquire(request(None)));
    assert!(hung_up.await.is_err());
    store.open_gate();
    store.until_given_back().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_of_unknown_outcome_is_given_back() {
    let store = ScriptedStore::answering(Err(unknown()));
    let (engine, _lifecycle) = engine(&store);
    let error = engine.acquire(request(None)).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::Store(StoreError::Indeterminate(_))),
        "{error:?}"
    );
    settle().await;
    assert_eq!(store.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_certainly_did_not_happen_is_not_given_back() {
    let store = ScriptedStore::answering(Err(Unavailability::OutOfMemory.into()));
    let (engine, _lifecycle) = engine(&store);
    engine.acquire(request(None)).await.unwrap_err();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(store.given_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn giving_back_goes_on_until_the_store_has_answered() {
    let store = ScriptedStore::answering(Ok(granted()));
    let away = StoreError::Unavailable(Unavailability::Connect("refused".to_owned()));
    *store.give_back_errors.lock().unwrap() = (0..40)
        .map(|turn| {
            if turn % 2 == 0 {
                away.clone()
            } else {
                unknown()
            }
        })
        .collect();
    let (engine, _lifecycle) = engine(&store);
    drop(engine.acquire(request(None)).await.unwrap());
    // Forty tries, none more than two seconds after the one before.
    tokio::time::timeout(Duration::from_secs(81), store.until_given_back())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn stopping_gives_back_at_once_what_waited_for_its_grace() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, lifecycle) = engine(&store);
    drop(engine.acquire(request(KEY)).await.unwrap());
    settle().await;
    lifecycle.stop(Duration::from_secs(1)).await.unwrap();
    assert_eq!(store.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_draining_engine_renews_and_releases_but_does_not_acquire() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, lifecycle) = engine(&store);
    lifecycle.drain();
    let error = engine.acquire(request(None)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Draining));
    assert!(
        engine
            .renew(name(), Token::random(), None, None)
            .await
            .is_ok()
    );
    let error = engine.release(name(), &Token::random()).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(Loss::Free)));
}

#[tokio::test(start_paused = true)]
async fn a_release_is_carried_out_although_its_caller_hung_up() {
    let store = ScriptedStore::answering(Ok(granted())).with_closed_gate();
    let (engine, _lifecycle) = engine(&store);
    let token = Token::random();
    let hung_up = tokio::time::timeout(Duration::from_secs(1), engine.release(name(), &token));
    assert!(hung_up.await.is_err());
    let changed = store.changed.notified();
    store.open_gate();
    changed.await;
    assert_eq!(*store.released.lock().unwrap(), [token.hash()]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_half_way_is_an_unknown_outcome_and_is_given_back() {
    let store = ScriptedStore::answering(Ok(granted()));
    // The test says nothing of what acquire answers, so the store panics.
    store.acquisitions.lock().unwrap().clear();
    let (engine, _lifecycle) = engine(&store);
    let error = engine.acquire(request(None)).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::Store(StoreError::Indeterminate(_))),
        "{error:?}"
    );
    settle().await;
    assert_eq!(store.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn stopping_gives_back_everything_although_an_earlier_one_failed() {
    let store = ScriptedStore::answering(Ok(granted()));
    let more = (0..9).map(|_| Ok(granted()));
    store.acquisitions.lock().unwrap().extend(more);
    store.give_back_errors.lock().unwrap().push_back(unknown());
    let (engine, lifecycle) = engine(&store);
    drop(engine.acquire(request(None)).await.unwrap());
    settle().await;
    assert_eq!(store.given_back(), 0, "the first try failed");
    for _ in 0..9 {
        drop(engine.acquire(request(KEY)).await.unwrap());
    }
    settle().await;
    lifecycle.stop(Duration::from_secs(1)).await.unwrap();
    assert_eq!(store.given_back(), 10);
}
