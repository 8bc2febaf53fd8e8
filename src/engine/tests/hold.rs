//! Holds: a lock is held for as long as its stream has a reader.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::scripted_store::*;
use crate::{
    engine::{AdoptError, Engine, Hold, HoldEnd, HoldEvent, LossReason},
    lifecycle::Lifecycle,
    lock::{HeldLease, Reason, RecipientId, ReleaseRequest, Token, Ttl},
    store::{
        contract::{Acquisition, Loss, Release, Releaser, Renewal},
        parking::{News, Position},
    },
};

const TTL: Duration = Duration::from_secs(30);

/// A hold whose grant was read.
async fn granted_hold(store: &Arc<ScriptedStore>) -> (Hold, Lifecycle) {
    let (engine, lifecycle) = engine(store);
    let mut hold = engine.hold(request(None)).await.unwrap();
    next_grant(&mut hold).await;
    (hold, lifecycle)
}

/// A hold whose position in the queue was read.
async fn queued_hold(engine: &Engine) -> Hold {
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    assert_is(&hold.next().await, "Some(Queued(Position { ahead: 2,");
    hold
}

fn renewed(held: HeldLease) -> Renewal {
    Renewal::Renewed(held, Duration::ZERO)
}

fn asked_to_release(mut lease: HeldLease, within: Duration) -> HeldLease {
    lease.request_release(&ReleaseRequest {
        by: None,
        reason: Reason::new("deploy").unwrap(),
        within,
    });
    lease
}

/// The reason with which a stream loses this lease, and the time until then; other events of the
/// stream are skipped.
async fn loss_of_grant(lease: HeldLease, hangs: bool) -> (LossReason, Duration) {
    let store = ScriptedStore::answering(Ok(Acquisition::Granted(lease)));
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    let since = Instant::now();
    if hangs {
        store.hang_renewals();
    }
    loop {
        match hold.next().await.unwrap() {
            HoldEvent::Ended(HoldEnd::Lost(reason)) => return (reason, since.elapsed()),
            HoldEvent::Ended(end) => panic!("{end:?}"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_every_third_of_its_ttl() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    for _ in 0..5 {
        let asked = Instant::now();
        assert_is(&hold.next().await, "Some(Renewed(");
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
async fn the_lock_rests_after_it_only_if_its_grant_was_read() {
    for is_read in [false, true] {
        let store = ScriptedStore::answering(Ok(granted()));
        let (engine, _lifecycle) = engine(&store);
        let mut hold = engine.hold(request(None)).await.unwrap();
        settle().await;
        if is_read {
            next_grant(&mut hold).await;
        }
        drop(hold);
        settle().await;
        let releaser = store.releasers.lock()[0];
        assert_eq!(
            matches!(releaser, Releaser::Recipient(_)),
            is_read,
            "{releaser:?}"
        );
        assert_eq!(matches!(releaser, Releaser::Undelivered(_)), !is_read);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_reads_nothing_is_gone_in_the_end_and_hears_that_and_nothing_old() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    sleep(20 * TTL / 3).await;
    assert_eq!(store.released.lock().len(), 1);
    assert_eq!(loss_of(&mut hold).await, (LossReason::Unread, 0));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_of_the_store_costs_nothing() {
    let store = ScriptedStore::answering(Ok(granted()));
    let errors = [away(), unknown(), away(), unknown()];
    store.renewals.lock().extend(errors.map(Err));
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    assert_is(&hold.next().await, "Some(Renewed(");
    assert_eq!(*store.renewals_asked.lock(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_or_hangs_loses_it_before_its_ttl_is_over() {
    for hangs in [false, true] {
        let store = ScriptedStore::answering(Ok(granted()));
        store.renewals.lock().extend((0..1000).map(|_| Err(away())));
        let started = Instant::now();
        let (mut hold, _lifecycle) = granted_hold(&store).await;
        if hangs {
            store.hang_renewals();
        }
        assert_eq!(loss_of(&mut hold).await.0, LossReason::Expired);
        assert!(started.elapsed() < TTL, "{:?}", started.elapsed());
        assert!(started.elapsed() > TTL * 49 / 50, "{:?}", started.elapsed());
        settle().await;
        let released = store.released.lock().len();
        assert_eq!(released, 1, "the lease may still live, and nobody holds it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_ended_is_lost_at_the_next_renewal() {
    let store = ScriptedStore::answering(Ok(granted()));
    let lost = Ok(Renewal::Lost(Loss::HeldByAnother));
    store.renewals.lock().push_back(lost);
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    assert_eq!(loss_of(&mut hold).await, (LossReason::Ended, 0));
    settle().await;
    assert!(store.released.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_hold_limit_is_told_as_such() {
    let limited = |left: Duration| HeldLease {
        expires_in: left.min(TTL),
        hold_expires_in: Some(left),
        ..held()
    };
    let grant = Acquisition::Granted(limited(2 * TTL));
    let store = ScriptedStore::answering(Ok(grant));
    let renewals = [TTL + TTL / 2, TTL / 2].map(|left| Ok(renewed(limited(left))));
    store.renewals.lock().extend(renewals);
    let (mut hold, _lifecycle) = granted_hold(&store).await;
    assert_eq!(loss_of(&mut hold).await, (LossReason::HoldLimit, 2));
}

#[tokio::test(start_paused = true)]
async fn draining_renews_once_more_does_not_release_and_says_what_is_left() {
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
        assert_eq!(*store.renewals_asked.lock(), 1);
        lifecycle.stop(Duration::from_secs(1)).await.unwrap();
        assert!(store.released.lock().is_empty());
        assert_eq!(store.given_back(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_wait_comes_before_there_is_a_hold() {
    let held = Acquisition::Held(contention());
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(held)));
    assert_is(&engine.hold(request(None)).await.unwrap_err(), "Held {");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_ends_it() {
    let (_, engine) = engine_on(ScriptedStore::queueing());
    let mut hold = queued_hold(&engine).await;
    assert_is(&end_of(&mut hold).await.0, "Refused(Held {");
}

#[tokio::test(start_paused = true)]
async fn nobody_listens_any_more_while_it_is_queued() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    drop(engine.hold(waiting_request(None)).await.unwrap());
    settle().await;
    assert_eq!(store.left.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_living_lease_is_adopted() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let (mut hold, lease) = adopted(&engine, &token).await;
    assert_eq!(lease.token.hash(), token.hash());
    assert_is(&hold.next().await, "Some(Renewed(");
    drop(hold);
    settle().await;
    assert_eq!(*store.released.lock(), [token.hash()]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_not_adopted() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let lost = Ok(Renewal::Lost(Loss::Free));
    store.renewals.lock().push_back(lost);
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
    next_grant(&mut hold).await;
    store.hang_renewals();
    assert_eq!(loss_of(&mut hold).await.0, LossReason::Expired);
    assert!(started.elapsed() < TTL, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_waited_for_is_renewed_before_it_is_told() {
    let old = |seconds| HeldLease {
        held_for: Duration::from_secs(seconds),
        ..held()
    };
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let lease = old(10);
    let answers = [Err(away()), Ok(renewed(lease.clone()))];
    store.renewals.lock().extend(answers);
    let mut hold = queued_hold(&engine).await;
    store.tell(News::Granted(old(9)));
    assert_eq!(next_grant(&mut hold).await.held, lease);
    assert_eq!(*store.renewals_asked.lock(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_came_too_late_is_not_told() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let lost = Ok(Renewal::Lost(Loss::HeldByAnother));
    store.renewals.lock().push_back(lost);
    let mut hold = queued_hold(&engine).await;
    store.tell(News::Granted(held()));
    assert_eq!(loss_of(&mut hold).await, (LossReason::Ended, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_released_with_its_token_ends_it_at_once() {
    for is_late in [false, true] {
        let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
        store.releases.lock().push_back(Release::Released(None));
        let mut hold = engine.hold(request(None)).await.unwrap();
        let token = next_grant(&mut hold).await.token.hash();
        if is_late {
            engine.release_later(engine.begin_release(Releaser::Bearer, name(), token));
        } else {
            engine.release(name(), token, None).await.unwrap();
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
    let (mut older, _) = adopted(&engine, &token).await;
    let newer = adopt(&engine, token).await.unwrap();
    assert_eq!(loss_of(&mut older).await.0, LossReason::Adopted);
    drop(older);
    settle().await;
    assert!(store.released.lock().is_empty());
    drop(newer);
    settle().await;
    assert_eq!(store.released.lock().len(), 1);
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
        let asked = asked_to_release(held(), within);
        assert_eq!(loss_of_grant(asked, true).await.0, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn little_that_is_left_of_a_long_lease_is_not_cut_short() {
    for left in [Duration::from_secs(4), Duration::from_hours(1)] {
        let long = |expires_in| HeldLease {
            ttl: Ttl::from_millis(24 * 3_600_000).unwrap(),
            expires_in,
            ..held()
        };
        let limited = HeldLease {
            hold_expires_in: Some(left),
            ..long(left)
        };
        let asked = asked_to_release(long(Duration::from_hours(24)), left);
        for (lease, least) in [(limited, left.mul_f64(0.98)), (asked, left)] {
            let (_, after) = loss_of_grant(lease, false).await;
            assert!(after >= least, "{after:?} of {left:?}");
        }
    }
}

// === Recipients ===
//
// A stream renews and releases with its own recipient id.

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_answered_is_tried_again_as_the_same_recipient() {
    for is_adopted in [false, true] {
        let store = ScriptedStore::answering(Ok(granted()));
        store.release_errors.lock().push_back(unknown());
        let (engine, _lifecycle) = engine(&store);
        let hold = engine.hold(request(None)).await.unwrap();
        settle().await;
        if is_adopted {
            *store.adopted_by.lock() = Some(RecipientId::random());
        }
        drop(hold);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(store.released.lock().len(), usize::from(!is_adopted));
        assert_eq!(store.given_back(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_another_adopted_the_lease_is_not_believed_without_the_store() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let (mut older, _) = adopted(&engine, &token).await;
    let keeps = *store.adopted_by.lock();
    let mut newer = adopt(&engine, token).await.unwrap();
    // The store lets the older stream keep the lease.
    *store.adopted_by.lock() = keeps;
    next_grant(&mut newer).await;
    assert_is(&older.next().await, "Some(Renewed(");
    assert_eq!(loss_of(&mut newer).await, (LossReason::Adopted, 0));
    assert_is(&older.next().await, "Some(Renewed(");
}

#[tokio::test(start_paused = true)]
async fn one_that_panics_leaves_time_to_who_was_told_and_its_stream_says_so() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let mut hold = engine.hold(request(None)).await.unwrap();
    next_grant(&mut hold).await;
    store.panic_on_renewals();
    assert_eq!(loss_of(&mut hold).await, (LossReason::Failed, 0));
    settle().await;
    // The client that has the lease has the rest of its TTL to stop its work.
    assert!(store.released.lock().is_empty());

    // A hold that panics before its grant is announced cannot know whether it has a lease.
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let mut hold = queued_hold(&engine).await;
    store.panic_on_renewals();
    store.tell(News::Granted(held()));
    assert_is(&end_of(&mut hold).await.0, "Refused(");
    settle().await;
    assert_eq!(store.released.lock().len(), 1);
}

// === Positions ===
//
// A hold that waits reports how its position changes.

fn at(ahead: u64) -> Position {
    Position { ahead, waiters: 9 }
}

async fn assert_at(hold: &mut Hold, ahead: u64) {
    match hold.next().await {
        Some(HoldEvent::Queued(place)) => assert_eq!(place, at(ahead)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_moves_is_told_and_one_that_stays_is_not() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let mut hold = queued_hold(&engine).await;
    let token = store.attempts.lock()[0].token;
    for ahead in [2, 2, 1, 1, 0] {
        store.parking.publish_position(&token, at(ahead));
        settle().await;
    }
    for ahead in [1, 0] {
        assert_at(&mut hold, ahead).await;
        // The hold sends the next position only when the reader has read the last one.
        sleep(Duration::from_secs(1)).await;
    }
    store.tell(News::Granted(held()));
    next_grant(&mut hold).await;
    assert!(
        store.parking.watched_by_name().is_empty(),
        "nobody watches any more"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_slowly_is_told_the_last_place_and_keeps_it() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    let token = store.attempts.lock()[0].token;
    for ahead in (3..200).rev() {
        store.parking.publish_position(&token, at(ahead));
        settle().await;
    }
    assert_is(&hold.next().await, "Some(Queued(Position { ahead: 2,");
    assert_at(&mut hold, 3).await;
    assert!(store.left.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_adoption_that_the_store_has_not_answered_is_given_back() {
    for hangs_up in [true, false] {
        let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
        let adopting = adopt(&engine, Token::random());
        if hangs_up {
            *store.renewals_take.lock() = Duration::from_secs(2);
            let hung_up = timeout(Duration::from_secs(1), adopting).await;
            assert!(hung_up.is_err());
        } else {
            store.renewals.lock().push_back(Err(unknown()));
            adopting.await.unwrap_err();
        }
        settle().await;
        let recipient = store.adopted_by.lock().unwrap();
        assert_eq!(*store.given_back.lock(), [recipient.attempt()]);
    }
}
