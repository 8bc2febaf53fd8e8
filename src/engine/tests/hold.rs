//! A lock that is held for as long as somebody listens.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::scripted_store::*;
use crate::{
    auth::Authorization,
    engine::{AcquireError, AdoptError, Engine, Hold, HoldEnd, HoldEvent, LossReason},
    lock::{HeldLease, Reason, ReleaseRequest, Token, Ttl},
    store::{
        contract::{Acquisition, Leaving, Loss, Release, Renewal},
        parking::News,
    },
};

const TTL: Duration = Duration::from_secs(30);

async fn granted_hold(store: &Arc<ScriptedStore>) -> (Hold, crate::lifecycle::Lifecycle) {
    let (engine, lifecycle) = engine(store);
    let mut hold = engine.hold(request(None)).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Granted(_))));
    (hold, lifecycle)
}

async fn adopt(engine: &Engine, token: Token) -> Result<Hold, AdoptError> {
    engine.adopt(name(), token, Authorization::default()).await
}

/// The last event, and how many renewals came before it.
async fn end_of(hold: &mut Hold) -> (HoldEnd, usize) {
    let mut renewals = 0;
    loop {
        match hold.next().await {
            Some(HoldEvent::Renewed(_)) => renewals += 1,
            Some(HoldEvent::Ended(end)) => {
                assert!(
                    hold.next().await.is_none(),
                    "something came after the last event"
                );
                return (end, renewals);
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_every_third_of_its_ttl() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    for _ in 0..5 {
        let asked = Instant::now();
        assert!(matches!(hold.next().await, Some(HoldEvent::Renewed(_))));
        let after = asked.elapsed();
        assert!(after <= TTL / 3 && after >= TTL / 4, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_released_when_nobody_listens_any_more() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (hold, _lifecycle) = granted_hold(&store).await;
    drop(hold);
    settle().await;
    assert_eq!(store.released.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_reads_nothing_is_gone_in_the_end() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (_hold, _lifecycle) = granted_hold(&store).await;
    sleep(20 * TTL / 3).await;
    assert_eq!(store.released.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_of_the_store_costs_nothing() {
    let store = ScriptedStore::answering(Ok(granted()));
    for error in [away(), unknown(), away(), unknown()] {
        store.renewals.lock().push_back(Err(error));
    }
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    assert!(matches!(hold.next().await, Some(HoldEvent::Renewed(_))));
    assert_eq!(*store.renewals_asked.lock(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_loses_it_before_its_ttl_is_over() {
    let store = ScriptedStore::answering(Ok(granted()));
    store.renewals.lock().extend((0..1000).map(|_| Err(away())));
    let started = Instant::now();
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    let (end, _) = end_of(&mut hold).await;
    assert!(matches!(end, HoldEnd::Lost(LossReason::Expired)), "{end:?}");
    assert!(started.elapsed() < TTL, "{:?}", started.elapsed());
    assert!(started.elapsed() > TTL * 49 / 50, "{:?}", started.elapsed());
    settle().await;
    let released = store.released.lock().len();
    assert_eq!(released, 1, "the lease may still live, and nobody holds it");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_loses_it_before_its_ttl_is_over() {
    // Counted from when the renewal was sent, not from when it was answered.
    let store = ScriptedStore::answering(Ok(granted()));
    let started = Instant::now();
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    store.hang_renewals();
    let (end, _) = timeout(TTL, end_of(&mut hold)).await.unwrap();
    assert!(matches!(end, HoldEnd::Lost(LossReason::Expired)), "{end:?}");
    assert!(started.elapsed() < TTL);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_ended_is_lost_at_the_next_renewal() {
    let store = ScriptedStore::answering(Ok(granted()));
    store
        .renewals
        .lock()
        .push_back(Ok(Renewal::Lost(Loss::HeldByAnother)));
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    let (end, renewals) = end_of(&mut hold).await;
    assert!(matches!(end, HoldEnd::Lost(LossReason::Ended)), "{end:?}");
    assert_eq!(renewals, 0);
    settle().await;
    assert!(store.released.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_hold_limit_is_told_as_such() {
    let limited = |left| HeldLease {
        expires_in: left,
        hold_expires_in: Some(left),
        ..held()
    };
    let store = ScriptedStore::answering(Ok(Acquisition::Granted(HeldLease {
        hold_expires_in: Some(2 * TTL),
        ..held()
    })));
    store.renewals.lock().extend([
        Ok(Renewal::Renewed(
            HeldLease {
                hold_expires_in: Some(TTL + TTL / 2),
                ..held()
            },
            Duration::ZERO,
        )),
        Ok(Renewal::Renewed(limited(TTL / 2), Duration::ZERO)),
    ]);
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    let (end, renewals) = end_of(&mut hold).await;
    assert!(
        matches!(end, HoldEnd::Lost(LossReason::HoldLimit)),
        "{end:?}"
    );
    assert_eq!(renewals, 2);
}

#[tokio::test(start_paused = true)]
async fn draining_renews_once_more_and_does_not_release() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (mut hold, lifecycle) = granted_hold(&store).await;
    lifecycle.drain();
    let (end, _) = end_of(&mut hold).await;
    assert!(matches!(end, HoldEnd::Draining { .. }), "{end:?}");
    assert_eq!(*store.renewals_asked.lock(), 1);
    lifecycle.stop(Duration::from_secs(1)).await.unwrap();
    assert!(store.released.lock().is_empty());
    assert_eq!(store.given_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_wait_comes_before_there_is_a_hold() {
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(
        Acquisition::Held(contention()),
    )));
    let error = engine.hold(request(None)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn it_tells_its_place_in_the_queue_and_then_the_grant() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    let Some(HoldEvent::Queued(place)) = hold.next().await else {
        panic!("not queued")
    };
    assert_eq!(place.ahead, 2);
    store.tell(News::Granted(held()));
    assert!(matches!(hold.next().await, Some(HoldEvent::Granted(_))));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_ends_it() {
    let (_, engine) =
        engine_on(ScriptedStore::queueing().answering_leave(Ok(Leaving::Left(contention()))));
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Queued(_))));
    let (end, _) = end_of(&mut hold).await;
    assert!(
        matches!(end, HoldEnd::Refused(AcquireError::Held { .. })),
        "{end:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_listens_any_more_while_it_is_queued() {
    let (store, engine) =
        engine_on(ScriptedStore::queueing().answering_leave(Ok(Leaving::Left(contention()))));
    drop(engine.hold(waiting_request(None)).await.unwrap());
    settle().await;
    assert_eq!(store.left.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_living_lease_is_adopted() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let mut hold = adopt(&engine, token.clone()).await.unwrap();
    let Some(HoldEvent::Granted(lease)) = hold.next().await else {
        panic!("not granted")
    };
    assert_eq!(lease.token.hash(), token.hash());
    assert!(matches!(hold.next().await, Some(HoldEvent::Renewed(_))));
    drop(hold);
    settle().await;
    assert_eq!(*store.released.lock(), [token.hash()]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_not_adopted() {
    let store = ScriptedStore::answering(Ok(granted()));
    store
        .renewals
        .lock()
        .push_back(Ok(Renewal::Lost(Loss::Free)));
    let (engine, _lifecycle) = engine(&store);
    let error = adopt(&engine, Token::random()).await.unwrap_err();
    assert!(matches!(error, AdoptError::Lost(Loss::Free)), "{error:?}");
}

/// The time from which a lease counts is when the store was asked, not when it answered.
#[tokio::test(start_paused = true)]
async fn it_counts_from_before_the_store_was_asked() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())).with_closed_gate());
    let started = Instant::now();
    let asking = engine.hold(waiting_request(None));
    let answering = async {
        sleep(TTL / 4).await;
        store.open_gate();
    };
    let (hold, ()) = tokio::join!(asking, answering);
    let mut hold = hold.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Granted(_))));
    store.hang_renewals();
    let (end, _) = end_of(&mut hold).await;
    assert!(matches!(end, HoldEnd::Lost(LossReason::Expired)), "{end:?}");
    assert!(started.elapsed() < TTL, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_waited_for_is_renewed_before_it_is_told() {
    let store = ScriptedStore::queueing();
    let old = HeldLease {
        held_for: Duration::from_secs(9),
        expires_in: TTL,
        ..held()
    };
    let renewed = HeldLease {
        held_for: Duration::from_secs(10),
        ..held()
    };
    let answers = [
        Err(away()),
        Ok(Renewal::Renewed(renewed.clone(), Duration::ZERO)),
    ];
    store.renewals.lock().extend(answers);
    let (engine, _lifecycle) = engine(&store);
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Queued(_))));
    store.tell(News::Granted(old));
    let Some(HoldEvent::Granted(lease)) = hold.next().await else {
        panic!("not granted")
    };
    assert_eq!(lease.held, renewed);
    assert_eq!(*store.renewals_asked.lock(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_came_too_late_is_not_told() {
    let store = ScriptedStore::queueing();
    let lost = Ok(Renewal::Lost(Loss::HeldByAnother));
    store.renewals.lock().push_back(lost);
    let (engine, _lifecycle) = engine(&store);
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Queued(_))));
    store.tell(News::Granted(held()));
    let (end, _) = end_of(&mut hold).await;
    assert!(matches!(end, HoldEnd::Lost(LossReason::Ended)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_left_too_much_unread_hears_that_and_nothing_old() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    sleep(20 * TTL / 3).await;
    let (end, renewals) = end_of(&mut hold).await;
    assert!(matches!(end, HoldEnd::Lost(LossReason::Unread)), "{end:?}");
    assert_eq!(renewals, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_released_with_its_token_ends_it_at_once() {
    for is_late in [false, true] {
        let store = ScriptedStore::answering(Ok(granted()));
        store.releases.lock().push_back(Release::Released);
        let (engine, _lifecycle) = engine(&store);
        let mut hold = engine.hold(request(None)).await.unwrap();
        let Some(HoldEvent::Granted(lease)) = hold.next().await else {
            panic!("not granted")
        };
        let token = lease.token.hash();
        if is_late {
            engine.release_later(name(), token, Instant::now());
        } else {
            engine.release(name(), token).await.unwrap();
        }
        let ended = timeout(TTL, end_of(&mut hold)).await;
        let (end, renewals) = ended.expect("it ends at once");
        assert!(matches!(end, HoldEnd::Released), "{end:?}");
        assert_eq!(renewals, 0);
        assert_eq!(store.released.lock().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_hold_of_an_adopted_lease_ends_without_releasing_it() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let mut older = adopt(&engine, token.clone()).await.unwrap();
    assert!(matches!(older.next().await, Some(HoldEvent::Granted(_))));
    let newer = adopt(&engine, token).await.unwrap();
    let (end, _) = end_of(&mut older).await;
    assert!(matches!(end, HoldEnd::Lost(LossReason::Adopted)), "{end:?}");
    drop(older);
    settle().await;
    assert!(store.released.lock().is_empty());
    drop(newer);
    settle().await;
    assert_eq!(store.released.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_draining_gateway_says_what_is_left() {
    for (renewal, left) in [(None, TTL), (Some(Err(away())), TTL * 3 / 4)] {
        let store = ScriptedStore::answering(Ok(granted()));
        store.renewals.lock().extend(renewal);
        let (mut hold, lifecycle) = granted_hold(&store).await;
        sleep(TTL / 4).await;
        lifecycle.drain();
        let (end, _) = end_of(&mut hold).await;
        let HoldEnd::Draining { until: Some(until) } = end else {
            panic!("{end:?}")
        };
        let said = until.saturating_duration_since(Instant::now());
        assert!(said <= left && said > left * 49 / 50, "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_draining_gateway_adopts_nothing() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, lifecycle) = engine(&store);
    lifecycle.drain();
    let error = adopt(&engine, Token::random()).await.unwrap_err();
    assert!(matches!(error, AdoptError::Draining), "{error:?}");
    assert_eq!(*store.renewals_asked.lock(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_asked_for_is_broken_only_if_that_is_what_ends_it() {
    for (within, expected) in [
        (TTL / 2, LossReason::Broken),
        (TTL * 2, LossReason::Expired),
    ] {
        let mut lease = held();
        lease.request_release(&ReleaseRequest {
            by: None,
            reason: Reason::new("deploy").unwrap(),
            within,
        });
        let store = ScriptedStore::answering(Ok(Acquisition::Granted(lease)));
        let (mut hold, _lifecycle) = granted_hold(&store).await;
        store.hang_renewals();
        let end = loop {
            if let HoldEvent::Ended(end) = hold.next().await.unwrap() {
                break end;
            }
        };
        let HoldEnd::Lost(reason) = end else {
            panic!("{end:?}")
        };
        assert_eq!(reason, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn little_that_is_left_of_a_long_lease_is_not_cut_short() {
    for left in [Duration::from_secs(4), Duration::from_hours(1)] {
        let long = || HeldLease {
            ttl: Ttl::from_millis(24 * 3_600_000).unwrap(),
            ..held()
        };
        let limited = HeldLease {
            expires_in: left,
            hold_expires_in: Some(left),
            ..long()
        };
        let mut asked = HeldLease {
            expires_in: Duration::from_hours(24),
            ..long()
        };
        asked.request_release(&ReleaseRequest {
            by: None,
            reason: Reason::new("deploy").unwrap(),
            within: left,
        });
        for (lease, least) in [(limited, left.mul_f64(0.98)), (asked, left)] {
            let store = ScriptedStore::answering(Ok(Acquisition::Granted(lease)));
            let (mut hold, _lifecycle) = granted_hold(&store).await;
            let since = Instant::now();
            let end = loop {
                if let HoldEvent::Ended(end) = hold.next().await.unwrap() {
                    break end;
                }
            };
            assert!(matches!(end, HoldEnd::Lost(_)), "{end:?}");
            assert!(
                since.elapsed() >= least,
                "{:?} of {left:?}",
                since.elapsed()
            );
        }
    }
}
