//! What is made of what operations tell.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{advance, sleep, timeout};

use super::{
    event::{Event, EventKind},
    ingest::EventIngest,
    line::EventMessage,
    listener::{Listener, ListenerItem},
    tracker::EventLeaseKey,
};
use crate::{
    engine::{
        Engine,
        leases::LeaseTag,
        tests::scripted_store::{ScriptedStore, engine, granted, held, name, request, settle},
    },
    lock::{FencingToken, HeldLease, LockName, Mode, NamePrefix, Token},
    store::contract::{Holder, SharedHolders},
};

const FENCE: u64 = 7;

fn news(kind: EventKind, id: LeaseTag, fence: Option<u64>) -> EventMessage {
    EventMessage {
        event: Event {
            fence: fence.map(|fence| FencingToken::new(fence).unwrap()),
            expires_in: Some(Duration::from_secs(30)),
            ..Event::of(kind, &name(), SystemTime::UNIX_EPOCH)
        },
        lease: Some(id),
        if_known: false,
    }
}

fn id() -> LeaseTag {
    LeaseTag::from(&Token::random().hash())
}

#[tokio::test(start_paused = true)]
async fn an_end_without_a_beginning_is_told_all_the_same_and_once() {
    let (mut ingest, id) = (EventIngest::default(), id());
    let released = || news(EventKind::Released, id, None);
    let told = ingest.process(released()).unwrap();
    assert_eq!((told.kind, told.fence), (EventKind::Released, None));
    assert_eq!(ingest.process(released()), None);
    let renewed = news(EventKind::Renewed, id, Some(FENCE));
    assert_eq!(ingest.process(renewed), None, "it is over");
    // Its beginning was on its way, and nobody waits for another end.
    let acquired = news(EventKind::Acquired, id, Some(FENCE));
    assert!(ingest.process(acquired).is_some());
    assert!(ingest.tracker.get(&key()).is_none());
}

#[tokio::test(start_paused = true)]
async fn of_a_lease_of_which_nobody_has_heard_nobody_hears_that_it_was_given_back() {
    let (mut ingest, id) = (EventIngest::default(), id());
    let mut given_back = news(EventKind::Released, id, None);
    given_back.if_known = true;
    assert_eq!(ingest.process(given_back), None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_lost_its_lease_in_time_does_not_end_it() {
    let (mut ingest, id) = (EventIngest::default(), id());
    ingest.process(news(EventKind::Acquired, id, Some(FENCE)));
    for (reason, lives) in [("expired", true), ("ended", false)] {
        let mut lost = news(EventKind::Lost, id, None);
        lost.event.reason = Some(reason.into());
        let told = ingest.process(lost);
        let fence = told.unwrap().fence;
        assert_eq!(fence.map(FencingToken::get), Some(FENCE));
        assert_eq!(ingest.tracker.get(&key()).is_some(), lives, "{reason}");
    }
}

fn key() -> EventLeaseKey {
    EventLeaseKey {
        name: name(),
        fence: FencingToken::new(FENCE).unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_end_nobody_tells_is_forgotten_soon_after_its_time() {
    let mut ingest = EventIngest::default();
    let exclusive = |fence| {
        let mut news = news(EventKind::Acquired, id(), Some(fence));
        news.event.mode = Some(Mode::Exclusive);
        news
    };
    ingest.process(exclusive(FENCE));
    advance(Duration::from_secs(31)).await;
    let next = exclusive(FENCE + 1);
    assert!(ingest.is_before_end(&next), "word may be on its way");
    advance(Duration::from_secs(1)).await;
    assert!(!ingest.is_before_end(&next));
    ingest.process(next);
    assert!(ingest.tracker.get(&key()).is_none());
}

/// Of those who share the lock more are there than are shown.
#[tokio::test(start_paused = true)]
async fn a_shared_lease_that_has_expired_is_told_though_not_all_are_shown() {
    let store = ScriptedStore::answering(Ok(granted()));
    let others = SharedHolders {
        leases: Vec::new(),
        count: 150,
    };
    *store.holder.lock() = Some(Holder::Shared(others));
    let (engine, _lifecycle) = engine(&store);
    let mut listener = engine.listen(NamePrefix::default(), None).unwrap();
    settle().await;
    engine
        .acquire(request(None))
        .await
        .unwrap()
        .delivery
        .delivered();
    let expired = async {
        while !next(&mut listener)
            .await
            .iter()
            .any(|event| event.kind == EventKind::Expired)
        {}
    };
    let told = timeout(Duration::from_mins(2), expired).await;
    told.expect("its end is told");
}

/// Leases of this gateway run out together while somebody listens, each with a fence of its own.
async fn run_out(engine: &Engine, many: u64) -> Listener {
    let listener = engine.listen(NamePrefix::default(), None).unwrap();
    settle().await;
    for after in 0..many {
        let lease = HeldLease {
            fence: FencingToken::new(held().fence.get() + after).unwrap(),
            ..held()
        };
        let leases = &engine.0.leases;
        leases.insert_counted(Token::random().hash(), &name(), &lease);
    }
    sleep(held().expires_in + Duration::from_secs(1)).await;
    listener
}

#[tokio::test(start_paused = true)]
async fn of_many_leases_that_run_out_together_the_store_is_asked_about_few_at_once() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    let closed = store.inspect_gate.forget_permits(usize::MAX);
    let mut listener = run_out(&engine, 1_000).await;
    assert_eq!(*store.inspected.lock(), 16);
    store.inspect_gate.add_permits(closed);
    let mut told = 0;
    while told < 1_000 {
        let events = next(&mut listener).await;
        assert!(events.iter().all(|event| event.kind == EventKind::Expired));
        told += events.len();
    }
    assert_eq!(*store.inspected.lock(), 1_000, "each once");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lives_is_watched_on_and_a_store_that_is_away_is_asked_again() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    *store.holder.lock() = Some(Holder::Lease(held()));
    let mut listener = run_out(&engine, 1).await;
    assert_eq!(*store.inspected.lock(), 1);
    assert_eq!(engine.0.leases.counted().all, 1);
    assert_eq!(engine.leases_needed_until(), None, "nobody waits for it");
    // It runs out again, and then the store gives no answer for a while.
    *store.holder.lock() = None;
    *store.inspect_errors.lock() = 3;
    let limit = held().expires_in + Duration::from_secs(10);
    let told = timeout(limit, next(&mut listener)).await.unwrap();
    assert_eq!(told[0].kind, EventKind::Expired);
    assert_eq!(*store.inspected.lock(), 5);
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_be_told_any_more_nothing_is_kept_to_be_told() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    let (leases, lost) = (&engine.0.leases, Token::random().hash());
    // The publisher panics when it asks about a lease that has run out.
    store.inspect_gate.close();
    let _listener = run_out(&engine, 1).await;
    leases.insert(lost, &name(), &held());
    assert!(leases.lose(&name(), &lost).is_some());
    assert!(leases.lose(&name(), &lost).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_begins_once_whoever_says_so() {
    let (mut ingest, id) = (EventIngest::default(), id());
    ingest.process(news(EventKind::Renewed, id, Some(FENCE)));
    for is_first in [true, false] {
        let told = ingest.process(news(EventKind::Acquired, id, Some(FENCE)));
        assert_eq!(told.is_some(), is_first);
    }
}

async fn next(listener: &mut Listener) -> Vec<Arc<Event>> {
    match listener.next().await {
        ListenerItem::Events(events) => events.into_iter().map(|(_, event)| event).collect(),
        end => panic!("{end:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_break_is_told_with_its_reason_and_ends_the_lease() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    let mut listener = engine.listen(NamePrefix::default(), None).unwrap();
    let bus = &engine.0.events;
    let token = Token::random();
    bus.renewed(&name(), &token.hash(), &held());
    bus.broken(&name(), Some(&held()), "stuck", Some(&"ops".into()));
    bus.released(&name(), &token.hash());
    bus.broken(&LockName::new("foreign").unwrap(), None, "stuck", None);
    let mut told = Vec::new();
    while told.len() < 3 {
        told.extend(next(&mut listener).await);
    }
    told.sort_by_key(|event| event.kind.as_str());
    assert_eq!(told[0].reason.as_deref(), Some("stuck"));
    let shown: Vec<_> = told
        .iter()
        .map(|event| (event.kind.as_str(), event.fence.is_some()))
        .collect();
    assert_eq!(
        shown,
        [("broken", true), ("broken", false), ("renewed", true)]
    );
}

#[tokio::test(start_paused = true)]
async fn what_nobody_listens_to_is_not_even_made() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    settle().await;
    engine.0.events.publish(|_| panic!("nobody listens"));
    drop(engine.listen(NamePrefix::default(), None).unwrap());
    engine
        .0
        .events
        .renewed(&name(), &Token::random().hash(), &held());
    // Whoever comes back may still want to know, but not for ever.
    sleep(Duration::from_mins(2)).await;
    engine
        .0
        .events
        .publish(|_| panic!("nobody listens any more"));
}

#[tokio::test(start_paused = true)]
async fn more_than_can_be_taken_in_leaves_a_gap() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    let first = engine.listen(NamePrefix::default(), None).unwrap();
    let token = Token::random().hash();
    let lease = HeldLease { ..held() };
    for _ in 0..20_000 {
        engine.0.events.renewed(&name(), &token, &lease);
    }
    sleep(Duration::from_secs(1)).await;
    let begin = format!("{}-0", first.instance());
    let mut listener = engine.listen(NamePrefix::default(), Some(&begin)).unwrap();
    loop {
        let told = next(&mut listener).await;
        if told
            .iter()
            .any(|event| event.reason.as_deref() == Some("too-many"))
        {
            return;
        }
    }
}

/// What a hand-off comes to if the next holder is faster than whoever ended the lease.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_is_told_before_the_next_grant() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    let mut listener = engine.listen(NamePrefix::default(), None).unwrap();
    let bus = &engine.0.events;
    let (first, second) = (id(), id());
    let tell = |news: EventMessage| bus.publish(|_| news);
    let exclusive = |kind, id, fence| {
        let mut news = news(kind, id, fence);
        news.event.mode = Some(Mode::Exclusive);
        news
    };
    tell(exclusive(EventKind::Acquired, first, Some(1)));
    tell(exclusive(EventKind::Acquired, second, Some(2)));
    tell(news(EventKind::Released, first, None));
    tell(news(EventKind::Released, second, None));
    // Its end is told by nobody.
    tell(exclusive(EventKind::Acquired, id(), Some(3)));
    tell(exclusive(EventKind::Acquired, id(), Some(4)));
    // What happens to the lease itself comes after its grant.
    let last = id();
    tell(exclusive(EventKind::Acquired, last, Some(5)));
    tell(exclusive(EventKind::Renewed, last, Some(5)));
    let mut told = Vec::new();
    while told.len() < 8 {
        told.extend(next(&mut listener).await);
    }
    let told: Vec<_> = told
        .iter()
        .map(|event| {
            (
                event.kind.as_str(),
                event.fence.map_or(0, FencingToken::get),
            )
        })
        .collect();
    let expected = [
        ("acquired", 1),
        ("released", 1),
        ("acquired", 2),
        ("released", 2),
        ("acquired", 3),
        ("acquired", 5),
        ("renewed", 5),
        ("acquired", 4),
    ];
    assert_eq!(told, expected);
}
