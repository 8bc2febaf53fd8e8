//! What is left of a lease when its caller is told, however late the store or this gateway was.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, advance},
};

use super::scripted_store::*;
use crate::{
    engine::{AcquireError, Engine, Granted, HoldEvent, RenewError},
    lock::{HeldLease, Token},
    store::{
        StoreError, Uncertainty,
        contract::{Acquisition, Confirmation, Leaving, Loss, Renewal, RenewalTtl},
        parking::News,
    },
    telemetry::metrics::MARGINS_MS,
};

/// The TTL of every lease here.
const TTL: Duration = Duration::from_secs(30);

/// What the store answers to a command that is sent now.
fn fresh() -> HeldLease {
    HeldLease {
        as_of: Instant::now(),
        ..held()
    }
}

/// Starts an acquire that waits, and lets it reach the queue.
async fn queued_at(engine: &Engine) -> JoinHandle<Result<Granted, AcquireError>> {
    let engine = engine.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "the caller of a test is no task of the program"
    )]
    let caller = tokio::spawn(async move { engine.acquire(waiting_request(None)).await });
    settle().await;
    caller
}

fn renewed(held: HeldLease) -> Renewal {
    Renewal::Renewed(held, Duration::ZERO)
}

fn answers_renew(store: &Arc<ScriptedStore>, answer: Result<Renewal, StoreError>) {
    store.renewals.lock().push_back(answer);
}

fn left(granted: &Granted) -> Duration {
    granted.lease.held.left_at(Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_grant_counts_from_when_it_was_asked_for() {
    let (store, engine) =
        engine_on(ScriptedStore::answering(Ok(Acquisition::Granted(fresh()))).with_closed_gate());
    let asking = engine.acquire(request(None));
    let answering = async {
        settle().await;
        advance(TTL * 2 / 3).await;
        store.open_gate();
    };
    let (granted, ()) = tokio::join!(asking, answering);
    let granted = granted.unwrap();
    assert_eq!(left(&granted), TTL / 3);
    granted.delivery.delivered();
    assert_eq!(*store.renewals_asked.lock(), 0, "it did not wait");
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_which_nothing_is_left_is_given_back() {
    let (store, engine) =
        engine_on(ScriptedStore::answering(Ok(Acquisition::Granted(fresh()))).with_closed_gate());
    let asking = engine.acquire(request(None));
    let answering = async {
        settle().await;
        advance(TTL).await;
        store.open_gate();
    };
    let (refused, ()) = tokio::join!(asking, answering);
    let refused = refused.unwrap_err();
    let unknown = StoreError::from(Uncertainty::TimedOut);
    assert!(
        matches!(&refused, AcquireError::Store(error) if *error == unknown),
        "{refused:?}"
    );
    store.until_given_back().await;
}

#[tokio::test(start_paused = true)]
async fn who_waited_is_answered_at_least_half_of_the_ttl() {
    for (stood_still, renewals) in [(TTL * 2 / 5, 0), (TTL * 3 / 5, 1), (TTL * 2, 1)] {
        let (store, engine) = engine_on(ScriptedStore::queueing());
        let caller = queued_at(&engine).await;
        let handed_over = fresh();
        // Counted from before the renewal: that is as if this gateway stood still before it was told.
        let now = Instant::now() + stood_still;
        answers_renew(
            &store,
            Ok(renewed(HeldLease {
                as_of: now,
                ..held()
            })),
        );
        store.tell(News::Granted(handed_over));
        // The task that waits runs when the time has passed.
        advance(stood_still).await;
        let granted = caller.await.unwrap().unwrap();
        assert!(left(&granted) >= TTL / 2, "{:?}", left(&granted));
        assert_eq!(*store.renewals_asked.lock(), renewals);
        granted.delivery.delivered();
        settle().await;
        assert_eq!(store.given_back(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_that_comes_late_is_renewed_as_well() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let caller = queued_at(&engine).await;
    let confirmed = Confirmation::Confirmed(fresh());
    store.confirmations.lock().push_back(Ok(confirmed));
    store.hang_confirmations(TTL * 3 / 4);
    let later = Instant::now() + TTL * 3 / 4;
    answers_renew(
        &store,
        Ok(renewed(HeldLease {
            as_of: later,
            ..held()
        })),
    );
    store.tell(News::GrantedProvisionally);
    let granted = caller.await.unwrap().unwrap();
    assert!(left(&granted) > TTL * 9 / 10, "{:?}", left(&granted));
    granted.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_a_lease_that_is_over_asks_again() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let caller = queued_at(&engine).await;
    let over = HeldLease {
        expires_in: Duration::ZERO,
        ..fresh()
    };
    answers_renew(&store, Ok(Renewal::Lost(Loss::HeldByAnother)));
    let again = Acquisition::Granted(held());
    store.acquisitions.lock().push_back(Ok(again));
    store.tell(News::Granted(over));
    let granted = caller.await.unwrap().unwrap();
    assert_eq!(left(&granted), TTL);
    assert_eq!(store.attempts.lock().len(), 2);
    granted.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_over_when_the_wait_ended_is_not_granted() {
    let over = || {
        Ok(Leaving::Granted(HeldLease {
            expires_in: Duration::ZERO,
            ..fresh()
        }))
    };
    let store = ScriptedStore::queueing().answering_leave(over());
    let store = store.answering_leave(Ok(Leaving::Left(contention())));
    answers_renew(&store, Ok(Renewal::Lost(Loss::Free)));
    let (engine, _lifecycle) = engine(&store);
    let refused = engine.acquire(waiting_request(None)).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_newer_request_that_keeps_the_lease_meanwhile_supersedes() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let caller = queued_at(&engine).await;
    let late = HeldLease {
        expires_in: TTL / 4,
        ..fresh()
    };
    answers_renew(&store, Ok(Renewal::Adopted));
    store.tell(News::Granted(late));
    let refused = caller.await.unwrap().unwrap_err();
    assert!(matches!(refused, AcquireError::Superseded), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_that_cannot_be_renewed_is_given_back() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let caller = queued_at(&engine).await;
    let late = HeldLease {
        expires_in: TTL / 4,
        ..fresh()
    };
    answers_renew(&store, Err(away()));
    store.tell(News::Granted(late));
    let refused = caller.await.unwrap().unwrap_err();
    assert!(
        matches!(refused, AcquireError::Store(StoreError::Indeterminate(_))),
        "{refused:?}"
    );
    store.until_given_back().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_at_its_hold_limit_is_granted_with_what_is_left() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let caller = queued_at(&engine).await;
    let limited = HeldLease {
        expires_in: TTL / 4,
        hold_expires_in: Some(TTL / 4),
        ..fresh()
    };
    store.tell(News::Granted(limited));
    let granted = caller.await.unwrap().unwrap();
    assert_eq!(left(&granted), TTL / 4);
    granted.delivery.delivered();
    assert_eq!(*store.renewals_asked.lock(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_which_nothing_is_left_is_of_unknown_outcome() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let late = fresh();
    advance(TTL).await;
    answers_renew(&store, Ok(renewed(late)));
    let error = engine
        .renew(name(), Token::random(), RenewalTtl::default())
        .await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, RenewError::Store(StoreError::Indeterminate(_))),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_comes_after_the_lease_is_reported_as_lost() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let mut hold = engine.hold(request(None)).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Granted(_))));
    let nothing = HeldLease {
        expires_in: Duration::ZERO,
        ..held()
    };
    answers_renew(&store, Ok(renewed(nothing)));
    let event = hold.next().await;
    assert!(matches!(event, Some(HoldEvent::Ended(_))), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn the_margin_of_a_renewal_is_what_the_store_had_left() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    // It was renewed at another gateway since it was granted here, so that its first TTL is all but over.
    let lease = engine.acquire(request(None)).await.unwrap();
    lease.delivery.delivered();
    advance(TTL.saturating_sub(Duration::from_millis(1))).await;
    let told = Duration::from_secs(20);
    answers_renew(&store, Ok(Renewal::Renewed(held(), told)));
    let token = lease.lease.token;
    engine
        .renew(name(), token, RenewalTtl::default())
        .await
        .unwrap();
    let margins = engine.0.metrics.renew_margins();
    let bucket = MARGINS_MS
        .iter()
        .position(|&most| told.as_millis() <= most.into());
    let expected = bucket.unwrap_or(MARGINS_MS.len());
    let counted: Vec<_> = margins
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .collect();
    assert_eq!(counted, [(expected, &1)]);
}
