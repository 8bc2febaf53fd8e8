//! Undelivered leases: grants whose caller has gone.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep, timeout};

use super::{
    groups::{answering, given_back, group, group_of, refusal},
    scripted_store::*,
};
use crate::{
    engine::{AcquireError, AcquireRequest, Granted, ReleaseError},
    lock::{CallerId, IdempotencyKey, LockName, RecipientId, Salt, Token},
    store::{
        StoreError, Unavailability,
        contract::{Acquisition, Loss, Releaser, RenewalTtl},
    },
};

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_delivered_is_given_back_at_once_or_with_a_key_after_the_grace() {
    for (key, grace) in [(None, Duration::ZERO), (KEY, GRACE)] {
        for is_delivered in [true, false] {
            let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
            let granted = engine.acquire(request(key)).await.unwrap();
            let token = granted.lease.token.hash();
            if is_delivered {
                granted.delivery.delivered();
                sleep(Duration::from_mins(1)).await;
                assert_eq!(store.given_back(), 0);
                continue;
            }
            drop(granted);
            if !grace.is_zero() {
                sleep(grace.saturating_sub(Duration::from_millis(2))).await;
                assert_eq!(store.given_back(), 0);
                sleep(Duration::from_millis(4)).await;
            }
            settle().await;
            assert_eq!(*store.given_back.lock(), [token]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leases_at_a_part_of_the_store_that_is_away_delay_none_at_another() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    for n in 0..200 {
        store.gate.add_permits(1);
        let lost = AcquireRequest {
            name: LockName::new(&format!("{AWAY}-{n}")).unwrap(),
            ..request(None)
        };
        drop(engine.acquire(lost).await.unwrap());
        let next = Ok(granted());
        store.acquisitions.lock().push_back(next);
    }
    settle().await;
    let granted = engine.acquire(request(None)).await.unwrap();
    let token = granted.lease.token.hash();
    drop(granted);
    settle().await;
    assert_eq!(*store.given_back.lock(), [token]);
}

/// Makes the store answer a repeated request with the lease that was granted before.
fn answered_again(store: &ScriptedStore, granted: &Granted) {
    let salt = store.attempts.lock()[0].idempotency.as_ref().unwrap().salt;
    let again = Acquisition::Replayed(granted.lease.held.clone(), salt);
    store.acquisitions.lock().push_back(Ok(again));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_may_have_heard_of_is_never_given_back_by_who_asks_again() {
    for is_delivered in [false, true] {
        let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
        let first = engine.acquire(request(KEY)).await.unwrap();
        answered_again(&store, &first);
        if is_delivered {
            first.delivery.delivered();
        } else {
            drop(first);
        }
        let again = engine.acquire(request(KEY)).await.unwrap();
        assert!(again.delivery.is_replay());
        drop(again);
        sleep(Duration::from_mins(1)).await;
        assert!(store.released.lock().is_empty());
        assert!(!is_delivered || store.given_back() == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_collected_is_released_if_that_answer_is_lost() {
    let salt = Salt::random();
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(Acquisition::Collected(
        held(),
        salt,
        Duration::ZERO,
    ))));
    // The attempt was granted the lock while its caller was away: this is the first answer.
    let collected = engine.acquire(request(KEY)).await.unwrap();
    let token = collected.lease.token.hash();
    drop(collected);
    sleep(GRACE + Duration::from_millis(2)).await;
    assert_eq!(*store.released.lock(), [token]);
    // The lock does not rest, because no caller was told of the lease.
    assert!(matches!(
        store.releasers.lock()[..],
        [Releaser::Undelivered(_)]
    ));
}

#[tokio::test(start_paused = true)]
async fn a_replayed_lease_has_the_token_of_its_salt() {
    let salt = Salt::random();
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(Acquisition::Replayed(
        held(),
        salt,
    ))));
    let granted = engine.acquire(request(KEY)).await.unwrap();
    let key = IdempotencyKey::new(KEY.unwrap()).unwrap();
    let expected = key.derive_token(&CallerId::ANONYMOUS, &name(), &salt);
    assert_eq!(granted.lease.token.hash(), expected.hash());
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_caller_hung_up_while_the_store_was_thinking_is_given_back() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())).with_closed_gate());
    let hung_up = timeout(Duration::from_secs(1), engine.acquire(request(None)));
    assert!(hung_up.await.is_err());
    store.open_gate();
    store.until_given_back().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_given_back_unless_it_certainly_did_not_happen() {
    let not_done = Err(Unavailability::OutOfMemory.into());
    // With `None` the store has no scripted answer to the acquire, and panics half-way.
    for (answer, expected, given_back) in [
        (Some(Err(unknown())), "Store(Indeterminate(", 1),
        (None, "Store(Indeterminate(", 1),
        (Some(not_done), "Store(Unavailable(OutOfMemory", 0),
    ] {
        let (store, engine) = engine_on(ScriptedStore::default().into());
        store.acquisitions.lock().extend(answer);
        assert_is(&engine.acquire(request(None)).await.unwrap_err(), expected);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(store.given_back(), given_back);
    }
}

#[tokio::test(start_paused = true)]
async fn giving_back_goes_on_until_the_store_has_answered() {
    let store = ScriptedStore::answering(Ok(granted()));
    let errors = std::iter::repeat_n([away(), unknown()], 20);
    store.give_back_errors.lock().extend(errors.flatten());
    let (engine, _lifecycle) = engine(&store);
    drop(engine.acquire(request(None)).await.unwrap());
    // Forty retries, each at most two seconds after the one before.
    timeout(Duration::from_secs(81), store.until_given_back())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_draining_engine_renews_and_releases_but_does_not_acquire() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, lifecycle) = engine(&store);
    lifecycle.drain();
    let error = engine.acquire(request(None)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Draining));
    let renewed = engine.renew(name(), Token::random(), RenewalTtl::default());
    assert!(renewed.await.is_ok());
    let error = engine
        .release(name(), Token::random().hash(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(Loss::Free)));
}

#[tokio::test(start_paused = true)]
async fn a_release_is_carried_out_although_its_caller_hung_up() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())).with_closed_gate());
    let token = Token::random();
    let hung_up = timeout(
        Duration::from_secs(1),
        engine.release(name(), token.hash(), None),
    );
    assert!(hung_up.await.is_err());
    let changed = store.changed.notified();
    store.open_gate();
    changed.await;
    assert_eq!(*store.released.lock(), [token.hash()]);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_tried_again_ends_no_lease_that_was_answered_again_meanwhile() {
    for is_answered in [true, false] {
        let store = ScriptedStore::answering(Ok(granted()));
        store.release_errors.lock().push_back(unknown());
        let (engine, _lifecycle) = engine(&store);
        let first = engine.acquire(request(KEY)).await.unwrap();
        let token = first.lease.token.hash();
        answered_again(&store, &first);
        first.delivery.delivered();
        engine.release_later(engine.begin_release(Releaser::Bearer, name(), token));
        settle().await;
        advance(Duration::from_millis(1)).await;
        if is_answered {
            let again = engine.acquire(request(KEY)).await.unwrap();
            assert_eq!(again.hash, token);
            again.delivery.delivered();
            let again = store.attempts.lock()[1].token;
            *store.adopted_by.lock() = Some(RecipientId::of_attempt(&again));
        }
        sleep(Duration::from_secs(10)).await;
        assert_eq!(store.released.lock().is_empty(), is_answered);
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_gives_back_at_once_what_waited_for_its_grace_or_failed() {
    let store = ScriptedStore::answering(Ok(granted()));
    let more = (0..9).map(|_| Ok(granted()));
    store.acquisitions.lock().extend(more);
    store.give_back_errors.lock().push_back(unknown());
    let (engine, lifecycle) = engine(&store);
    drop(engine.acquire(request(None)).await.unwrap());
    settle().await;
    assert_eq!(store.given_back(), 0, "the first try failed");
    for _ in 0..9 {
        drop(engine.acquire(request(KEY)).await.unwrap());
    }
    settle().await;
    assert_eq!(store.given_back(), 0, "the others wait for their grace");
    lifecycle.stop(Duration::from_secs(1)).await.unwrap();
    assert_eq!(store.given_back(), 10);
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_hears_it_when_what_was_taken_has_been_given_back() {
    for key in [None, KEY] {
        let held = Acquisition::Held(contention());
        // A group with an idempotency key requests its last lock first, and then all locks in
        // order.
        let (taken, commands) = if key.is_none() { (1, 3) } else { (2, 5) };
        let granted = || std::iter::repeat_n(granted(), taken);
        let rounds = std::iter::repeat_with(|| granted().chain([held.clone()]));
        let (store, engine) = engine_on(answering(rounds.take(taken).flatten()));
        store.gate.forget_permits(100);
        store.gate.add_permits(commands - 1);
        let caller = start(engine.acquire_group(group(&request(key)), || {})).await;
        assert!(!caller.is_finished());
        store.gate.add_permits(10);
        refusal(caller.await.unwrap());
        assert!(!given_back(&store).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_waits_for_no_store_that_is_away() {
    for (name, waits) in [(AWAY, Duration::from_secs(5)), ("a", Duration::ZERO)] {
        let store = answering([granted(), Acquisition::Held(contention())]);
        let away = StoreError::from(Unavailability::Overloaded);
        store.give_back_errors.lock().push_back(away);
        let (engine, _lifecycle) = engine(&store);
        let begin = Instant::now();
        let request = group_of([name, "b"], &request(None));
        refusal(engine.acquire_group(request, || {}).await);
        let waited = begin.elapsed();
        assert!(
            waited.abs_diff(waits) < Duration::from_millis(5),
            "{name}: {waited:?}"
        );
        assert_eq!(given_back(&store), [""; 0]);
    }
}
