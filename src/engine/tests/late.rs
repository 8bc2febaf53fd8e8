//! The time left of a lease when its caller is answered, however late the store or this gateway was.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, advance};

use super::scripted_store::*;
use crate::{
    engine::{AcquireError, Engine, Granted, HoldEvent, RenewError},
    lock::{CollectionMark, Group, HeldLease, Token},
    store::{
        StoreError,
        contract::{Acquisition, Confirmation, Leaving, Loss, Renewal, RenewalTtl},
        parking::News,
    },
    telemetry::metrics::MARGINS_MS,
};

/// The TTL of every lease in this file.
const TTL: Duration = Duration::from_secs(30);

/// The store's answer to a command that is sent now, for a lease with this much time left.
fn lasting(expires_in: Duration) -> HeldLease {
    HeldLease {
        expires_in,
        as_of: Instant::now(),
        ..held()
    }
}

/// The store's answer to a renewal that is sent after `time`.
fn renewed_after(time: Duration) -> Renewal {
    let held = HeldLease {
        as_of: Instant::now() + time,
        ..held()
    };
    Renewal::Renewed(held, Duration::ZERO)
}

fn left(granted: &Granted) -> Duration {
    granted.lease.held.left_at(Instant::now())
}

async fn renew(engine: &Engine, token: Token) -> Result<(), RenewError> {
    let renewal = engine.renew(name(), token, RenewalTtl::default());
    renewal.await.map(drop)
}

/// Tells a waiting attempt of the grant `held`, and answers its renewal with the given answer.
async fn told(
    grant: HeldLease,
    renewal: Option<Result<Renewal, StoreError>>,
) -> (Arc<ScriptedStore>, Engine, Result<Granted, AcquireError>) {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    store.renewals.lock().extend(renewal);
    let again = Acquisition::Granted(held());
    store.acquisitions.lock().push_back(Ok(again));
    let caller = start_acquire(&engine, waiting_request(None)).await;
    store.tell(News::Granted(grant));
    let outcome = caller.await.unwrap();
    (store, engine, outcome)
}

#[tokio::test(start_paused = true)]
async fn a_grant_counts_from_when_it_was_asked_for() {
    for (late, expected) in [(TTL * 2 / 3, Some(TTL / 3)), (TTL, None)] {
        let grant = Acquisition::Granted(lasting(TTL));
        let (store, engine) = engine_on(ScriptedStore::answering(Ok(grant)).with_closed_gate());
        let caller = start_acquire(&engine, request(None)).await;
        advance(late).await;
        store.open_gate();
        match caller.await.unwrap() {
            Ok(granted) => {
                assert_eq!(Some(left(&granted)), expected);
                granted.delivery.delivered();
            }
            Err(refused) => {
                assert_eq!(expected, None, "{refused:?}");
                assert_is(&refused, "Store(Indeterminate(TimedOut)");
                store.until_given_back().await;
            }
        }
        assert_eq!(*store.renewals_asked.lock(), 0, "it did not wait");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waited_is_answered_at_least_half_of_the_ttl() {
    for (stood_still, renewals) in [(TTL * 2 / 5, 0), (TTL * 3 / 5, 1), (TTL * 2, 1)] {
        let (store, engine) = engine_on(ScriptedStore::queueing());
        let caller = start_acquire(&engine, waiting_request(None)).await;
        // Nothing runs between the grant and the advance, as if this gateway stood still.
        store
            .renewals
            .lock()
            .push_back(Ok(renewed_after(stood_still)));
        store.tell(News::Granted(lasting(TTL)));
        // The task of the waiting attempt runs only when the time has passed.
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
    let caller = start_acquire(&engine, waiting_request(None)).await;
    let confirmed = Confirmation::Confirmed(lasting(TTL));
    store.confirmations.lock().push_back(Ok(confirmed));
    store.hang_confirmations(TTL * 3 / 4);
    store
        .renewals
        .lock()
        .push_back(Ok(renewed_after(TTL * 3 / 4)));
    store.tell(News::GrantedProvisionally);
    let granted = caller.await.unwrap().unwrap();
    assert!(left(&granted) > TTL * 9 / 10, "{:?}", left(&granted));
    granted.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_a_lease_that_is_over_asks_again() {
    let lost = Ok(Renewal::Lost(Loss::HeldByAnother));
    let (store, _engine, outcome) = told(lasting(Duration::ZERO), Some(lost)).await;
    let granted = outcome.unwrap();
    assert_eq!(left(&granted), TTL);
    assert_eq!(store.attempts.lock().len(), 2);
    granted.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_over_when_the_wait_ended_is_not_granted() {
    let over = Leaving::Granted(lasting(Duration::ZERO));
    let (store, engine) = engine_on(ScriptedStore::queueing().answering_leave(Ok(over)));
    let lost = Ok(Renewal::Lost(Loss::Free));
    store.renewals.lock().push_back(lost);
    let refused = engine.acquire(waiting_request(None)).await.unwrap_err();
    assert_is(&refused, "Held {");
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_that_was_not_renewed_is_refused_and_given_back_if_it_is_nobodys() {
    for (renewal, expected, is_nobodys) in [
        (Ok(Renewal::Adopted), "Replaced", false),
        (Err(away()), "Store(Indeterminate(", true),
    ] {
        let (store, _engine, outcome) = told(lasting(TTL / 4), Some(renewal)).await;
        assert_is(&outcome.unwrap_err(), expected);
        settle().await;
        assert_eq!(store.given_back(), usize::from(is_nobodys));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_at_its_hold_limit_is_granted_with_what_is_left() {
    let limited = HeldLease {
        hold_expires_in: Some(TTL / 4),
        ..lasting(TTL / 4)
    };
    let (store, _engine, outcome) = told(limited, None).await;
    let granted = outcome.unwrap();
    assert_eq!(left(&granted), TTL / 4);
    granted.delivery.delivered();
    assert_eq!(*store.renewals_asked.lock(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_which_nothing_is_left_is_of_unknown_outcome() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    store
        .renewals
        .lock()
        .push_back(Ok(renewed_after(Duration::ZERO)));
    advance(TTL).await;
    let error = renew(&engine, Token::random()).await.unwrap_err();
    assert_is(&error, "Store(Indeterminate(");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_comes_after_the_lease_is_reported_as_lost() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let mut hold = engine.hold(request(None)).await.unwrap();
    next_grant(&mut hold).await;
    let nothing = Renewal::Renewed(lasting(Duration::ZERO), Duration::ZERO);
    store.renewals.lock().push_back(Ok(nothing));
    let event = hold.next().await;
    assert!(matches!(event, Some(HoldEvent::Ended(_))), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn the_margin_of_a_renewal_is_what_the_store_had_left() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    // Another gateway has renewed the lease since it was granted here, so the TTL that this gateway knows is
    // almost over.
    let lease = engine.acquire(request(None)).await.unwrap();
    lease.delivery.delivered();
    advance(TTL.saturating_sub(Duration::from_millis(1))).await;
    let told = Duration::from_secs(20);
    let renewed = Renewal::Renewed(held(), told);
    store.renewals.lock().push_back(Ok(renewed));
    renew(&engine, lease.lease.token).await.unwrap();
    let margins = engine.0.metrics.renew_margins();
    let bucket = MARGINS_MS
        .iter()
        .position(|&most| told.as_millis() <= most.into());
    let counted: Vec<_> = margins
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .collect();
    assert_eq!(counted, [(bucket.unwrap_or(MARGINS_MS.len()), &1)]);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_completes_a_group_does_not_outlast_the_lease() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let mut first = lasting(Duration::from_secs(10));
    first.ttl = ttl().while_collected();
    first.said.group = Some(Box::new(Group {
        first: name(),
        count: 2,
        mark: Some(CollectionMark {
            ttl: ttl(),
            id: 7,
            next: None,
        }),
    }));
    assert!(first.mark().is_some(), "the lease must be renewed twice");
    let answer = Renewal::Renewed(first, Duration::ZERO);
    store.renewals.lock().push_back(Ok(answer));
    // The second answer would come when the lease has ended.
    *store.renewals_take.lock() = Duration::from_secs(6);
    let began = Instant::now();
    let renewal = engine.renew(name(), Token::random(), RenewalTtl::default());
    let lease = renewal.await.expect("the first renewal counts");
    assert_eq!(*store.renewals_asked.lock(), 2);
    let spent = began.elapsed();
    assert!(
        (8_000..8_100).contains(&spent.as_millis()),
        "half of the four seconds that were left: {spent:?}"
    );
    assert!(!lease.held.left_at(Instant::now()).is_zero());
}
