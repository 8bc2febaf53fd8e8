//! A break runs to its end, and the stream whose lease was broken is told.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::{
    engine::{BreakError, LossReason},
    lock::{LockName, Reason, Token},
    store::contract::{Breaking, BrokenLease, HeldLock, Holder, ListQuery, Loss, Page, Renewal},
};

use super::scripted_store::*;

fn reason() -> Reason {
    Reason::new("it hangs").unwrap()
}

type Records = Arc<Mutex<Vec<Result<Holder, BreakError>>>>;

/// Breaks the lock, and adds the records of the break to `records`.
async fn broken(store: &Arc<ScriptedStore>, records: &Records) -> Result<Holder, BreakError> {
    let (engine, _lifecycle) = engine(store);
    let kept = Arc::clone(records);
    let record = |outcome| async move { kept.lock().push(outcome) };
    engine
        .break_lock(name(), None, reason(), None, record)
        .await
}

#[tokio::test(start_paused = true)]
async fn is_recorded_before_it_is_answered_whatever_comes_of_it() {
    let holder = Holder::Lease(held());
    for answer in [
        Ok(Breaking::Broken(holder.clone())),
        Ok(Breaking::HolderChanged(holder)),
        Ok(Breaking::NotHeld),
        Err(unknown()),
    ] {
        let store = ScriptedStore::queueing();
        store.breakings.lock().push_back(answer);
        let records = Records::default();
        let outcome = broken(&store, &records).await;
        let recorded = records.lock().pop().expect("it is recorded");
        assert_eq!(format!("{recorded:?}"), format!("{outcome:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn is_carried_out_and_recorded_although_its_caller_hangs_up() {
    let store = ScriptedStore::queueing().with_closed_gate();
    let records = Records::default();
    let soon = Duration::from_millis(10);
    let hung_up = timeout(soon, broken(&store, &records)).await;
    assert!(hung_up.is_err(), "the store does not answer");
    assert!(store.broken.lock().is_empty());
    store.open_gate();
    settle().await;
    assert_eq!(store.broken.lock().len(), 1);
    assert_eq!(records.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ends_the_stream_at_once_and_not_with_its_next_renewal() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let (mut hold, _) = adopted(&engine, &token).await;
    let lost = Renewal::Lost(Loss::Broken { held: false });
    store.renewals.lock().push_back(Ok(lost));
    let told = Instant::now();
    tell(&store, &token);
    assert_eq!(loss_of(&mut hold).await, (LossReason::Broken, 0));
    assert_eq!(told.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn that_is_only_said_to_have_happened_is_not_believed_without_the_store() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let (mut hold, _) = adopted(&engine, &token).await;
    for _ in 0..3 {
        let told = Instant::now();
        tell(&store, &token);
        assert_is(&hold.next().await, "Some(Renewed(");
        assert_eq!(told.elapsed(), Duration::ZERO);
    }
    // A notice that another lease, or a lease of another lock, was broken causes no renewal.
    tell(&store, &Token::random());
    let other = LockName::new("other").unwrap();
    let token = token.hash();
    store.breaks.publish(BrokenLease { name: other, token });
    let asked = *store.renewals_asked.lock();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*store.renewals_asked.lock(), asked);
}

#[tokio::test(start_paused = true)]
async fn of_many_leases_at_once_are_few_questions_at_a_time() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    store.inspect_gate.forget_permits(100);
    for _ in 0..500 {
        let token = Token::random();
        let leases = &engine.0.leases;
        leases.insert_counted(token.hash(), &name(), &held());
        tell(&store, &token);
    }
    settle().await;
    assert_eq!(*store.inspected.lock(), 64);
    assert_eq!(engine.0.leases.counted().all, 500);
    store.inspect_gate.add_permits(100);
    settle().await;
    assert_eq!(*store.inspected.lock(), 500);
    assert_eq!(engine.0.leases.counted().all, 0);
}

/// A quorum breaks a lease at one node after the other: a renewal after the first node still finds a majority that
/// has the lease.
#[tokio::test(start_paused = true)]
async fn that_comes_about_while_the_store_is_asked_is_asked_after_again() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let (mut hold, _) = adopted(&engine, &token).await;
    let takes = Duration::from_millis(20);
    *store.renewals_take.lock() = takes;
    let lost = Renewal::Lost(Loss::Broken { held: false });
    let answers = [Ok(Renewal::Renewed(held(), Duration::ZERO)), Ok(lost)];
    store.renewals.lock().extend(answers);
    let told = Instant::now();
    tell(&store, &token);
    sleep(takes / 2).await;
    tell(&store, &token);
    assert_eq!(loss_of(&mut hold).await, (LossReason::Broken, 1));
    assert_eq!(told.elapsed(), 2 * takes);
}

#[tokio::test(start_paused = true)]
async fn one_whose_caller_panics_is_recorded() {
    let holder = Holder::Lease(held());
    let store = ScriptedStore::queueing().with_closed_gate();
    let breaking = Ok(Breaking::Broken(holder.clone()));
    store.breakings.lock().push_back(breaking);
    let records = Records::default();
    let (asked, kept) = (Arc::clone(&store), Arc::clone(&records));
    let caller = start(async move {
        let broken = broken(&asked, &kept);
        let panics = async {
            settle().await;
            panic!("as asked for");
        };
        tokio::join!(broken, panics);
    })
    .await;
    assert!(caller.await.unwrap_err().is_panic());
    assert!(records.lock().is_empty(), "the store has not answered");
    store.open_gate();
    settle().await;
    assert!(matches!(records.lock().as_slice(), [Ok(it)] if *it == holder));
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_what_its_caller_may_see_and_goes_on_behind_what_it_may_not() {
    let store = ScriptedStore::queueing();
    let lock = |name: &str| HeldLock {
        name: LockName::new(name).unwrap(),
        holder: Holder::Lease(held()),
        waiters: 0,
        found: None,
    };
    let next = Some(crate::store::cursor::Cursor::Embedded { position: 7 });
    let page = Page {
        locks: vec![lock("team:a"), lock("team2:a")],
        next,
    };
    store.pages.lock().push_back(Ok(page));
    let (engine, _lifecycle) = engine(&store);
    let query = ListQuery {
        filter: crate::store::list_filter::ListFilter::default(),
        limit: 100,
        cursor: None,
    };
    let views = |name: &LockName| name.as_str().starts_with("team:");
    let shown = engine.list(&query, views).await.unwrap();
    assert_eq!(shown.locks, [lock("team:a")]);
    assert_eq!(shown.next, next);
}

fn tell(store: &ScriptedStore, token: &Token) {
    let (name, token) = (name(), token.hash());
    store.breaks.publish(BrokenLease { name, token });
}
