//! Which events listeners are told for the events that operations publish.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{advance, sleep, timeout};

use super::{
    event::{Event, EventKind, EventMessage},
    known_leases::KnownLeases,
    listener::{Listener, ListenerItem},
};
use crate::{
    engine::{
        Actor, Engine,
        facts::Fact,
        leases::LeaseTag,
        tests::scripted_store::{ScriptedStore, engine_on, granted, held, name, request, settle},
    },
    lock::{FencingToken, HeldLease, LockName, Mode, NamePrefix, Reason, ReleaseRequest, Token},
    store::contract::{Holder, Requesting, SharedHolders},
};

const FENCE: u64 = 7;

fn news(kind: EventKind, id: LeaseTag, fence: Option<u64>) -> EventMessage {
    EventMessage {
        event: Event {
            fence: fence.map(|fence| FencingToken::new(fence).unwrap()),
            mode: fence.map(|_| Mode::Exclusive),
            expires_in: Some(Duration::from_secs(30)),
            ..Event::for_lock(kind, &name(), SystemTime::UNIX_EPOCH)
        },
        lease: Some(id),
    }
}

fn id() -> LeaseTag {
    LeaseTag::from(&Token::random().hash())
}

/// Whether listeners are told of this event, and the fencing token that it has then.
fn told(known: &mut KnownLeases, mut news: EventMessage) -> (bool, Option<u64>) {
    let is_told = known.complete(&mut news);
    (is_told, news.event.fence.map(FencingToken::get))
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_told_once_and_an_end_is_complete_as_long_as_the_lease_is_known() {
    let (mut known, id) = (KnownLeases::default(), id());
    let mut tell = |kind, fence| told(&mut known, news(kind, id, fence));
    let (unknown, known) = ((true, None), (true, Some(FENCE)));
    assert_eq!(tell(EventKind::Released, None), unknown);
    // The event of the grant may come after the event of the end.
    assert_eq!(tell(EventKind::Acquired, Some(FENCE)), known);
    assert!(!tell(EventKind::Acquired, Some(FENCE)).0, "a second grant");
    assert_eq!(tell(EventKind::Released, None), known);
    assert_eq!(tell(EventKind::Released, None), unknown, "a second end");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_lost_its_lease_in_time_does_not_end_it() {
    for (reason, lives) in [("expired", true), ("ended", false)] {
        let (mut known, id) = (KnownLeases::default(), id());
        told(&mut known, news(EventKind::Acquired, id, Some(FENCE)));
        let mut lost = news(EventKind::Lost, id, None);
        lost.event.reason = Some(reason.into());
        assert_eq!(lost.event.ends_lease(), !lives);
        assert_eq!(told(&mut known, lost), (true, Some(FENCE)));
        let expired = told(&mut known, news(EventKind::Expired, id, None));
        assert_eq!(expired, (true, lives.then_some(FENCE)), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_end_nobody_tells_is_forgotten_soon_after_its_time() {
    for (seconds, is_known) in [(31, true), (32, false)] {
        let (mut known, id) = (KnownLeases::default(), id());
        told(&mut known, news(EventKind::Acquired, id, Some(FENCE)));
        advance(Duration::from_secs(seconds)).await;
        let expired = told(&mut known, news(EventKind::Expired, id, None));
        assert_eq!(expired, (true, is_known.then_some(FENCE)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_break_of_a_lease_that_is_known_says_which_lease_has_ended() {
    let (mut known, id) = (KnownLeases::default(), id());
    told(&mut known, news(EventKind::Acquired, id, Some(FENCE)));
    let mut broken = EventMessage {
        lease: None,
        ..news(EventKind::Broken, id, Some(FENCE))
    };
    assert!(known.complete(&mut broken));
    assert_eq!(broken.lease, Some(id));
}

/// The store shows fewer leases of a shared lock than there are.
#[tokio::test(start_paused = true)]
async fn a_shared_lease_that_has_expired_is_told_though_not_all_are_shown() {
    let store = ScriptedStore::default();
    let others = SharedHolders {
        leases: Vec::new(),
        count: 150,
        resting: 0,
        first: None,
    };
    *store.holder.lock() = Some(Holder::Shared(others));
    store.acquisitions.lock().push_back(Ok(granted()));
    let (engine, mut listener) = listening(store).await;
    let granted = engine.acquire(request(None)).await.unwrap();
    granted.delivery.delivered();
    let is_expired = |event: &Arc<Event>| event.kind == EventKind::Expired;
    let expired = async { while !next(&mut listener).await.iter().any(is_expired) {} };
    let told = timeout(Duration::from_mins(2), expired).await;
    told.expect("its end is told");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_to_release_a_rest() {
    let store = ScriptedStore::default();
    let rest = HeldLease {
        is_resting: true,
        ..held()
    };
    let rests = SharedHolders {
        leases: vec![rest, held()],
        count: 2,
        resting: 1,
        first: None,
    };
    let asked = Ok(Requesting::Requested(Holder::Shared(rests)));
    store.requestings.lock().push_back(asked);
    let (engine, mut listener) = listening(store).await;
    let request = ReleaseRequest {
        by: None,
        reason: Reason::new("deploy").unwrap(),
        within: Duration::from_secs(30),
    };
    let asked = engine.request_release(name(), None, request, None, |_| async {});
    asked.await.unwrap();
    let kinds: Vec<_> = next(&mut listener).await.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [EventKind::ReleaseRequested]);
    let text = engine.metrics().text(&engine.figures());
    assert!(
        text.contains("\nlatchgate_release_requests_total 1\n"),
        "{text}"
    );
}

/// Makes leases of this gateway run out together while there is a listener, each with its own fence.
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
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let closed = store.inspect_gate.forget_permits(usize::MAX);
    let mut listener = run_out(&engine, 1_000).await;
    assert_eq!(*store.inspected.lock(), 16);
    store.inspect_gate.add_permits(closed);
    let told = next_of(&mut listener, 1_000).await;
    assert!(told.iter().all(|event| event.kind == EventKind::Expired));
    assert_eq!(*store.inspected.lock(), 1_000, "each once");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lives_is_watched_on_and_a_store_that_is_away_is_asked_again() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    *store.holder.lock() = Some(Holder::Lease(held()));
    let mut listener = run_out(&engine, 1).await;
    assert_eq!(*store.inspected.lock(), 1);
    assert_eq!(engine.0.leases.counted().all, 1);
    assert_eq!(engine.leases_needed_until(), None, "nobody waits for it");
    // The lease runs out again, and then the store does not answer for a while.
    *store.holder.lock() = None;
    *store.inspect_errors.lock() = 3;
    let limit = held().expires_in + Duration::from_secs(10);
    let told = timeout(limit, next(&mut listener)).await.unwrap();
    assert_eq!(told[0].kind, EventKind::Expired);
    assert_eq!(*store.inspected.lock(), 5);
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_be_told_any_more_nothing_is_kept_to_be_told() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let (leases, lost) = (&engine.0.leases, Token::random().hash());
    // The publisher panics when it asks about a lease that has run out.
    store.inspect_gate.close();
    let _listener = run_out(&engine, 1).await;
    leases.insert(lost, &name(), &held());
    assert!(leases.lose(&name(), &lost, true).is_some());
    assert!(leases.lose(&name(), &lost, true).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_begins_once_whoever_says_so() {
    let (mut known, id) = (KnownLeases::default(), id());
    told(&mut known, news(EventKind::Renewed, id, Some(FENCE)));
    for is_first in [true, false] {
        let acquired = told(&mut known, news(EventKind::Acquired, id, Some(FENCE)));
        assert_eq!(acquired.0, is_first);
    }
}

async fn next(listener: &mut Listener) -> Vec<Arc<Event>> {
    match listener.next().await {
        ListenerItem::Events(events) => events.into_iter().map(|(_, event)| event).collect(),
        end => panic!("{end:?}"),
    }
}

/// Receives the next `many` events of a listener.
async fn next_of(listener: &mut Listener, many: usize) -> Vec<Arc<Event>> {
    let mut told = Vec::new();
    while told.len() < many {
        told.extend(next(listener).await);
    }
    told
}

/// An engine on this store, and a listener to all locks.
async fn listening(store: ScriptedStore) -> (Engine, Listener) {
    let (_, engine) = engine_on(store.into());
    let listener = engine.listen(NamePrefix::default(), None).unwrap();
    settle().await;
    (engine, listener)
}

#[tokio::test(start_paused = true)]
async fn a_break_is_told_with_its_reason_and_ends_the_lease() {
    let (engine, mut listener) = listening(ScriptedStore::default()).await;
    let (facts, ops) = (&engine.0.facts, Actor::Key("ops".into()));
    let token = Token::random().hash();
    facts.tell(&name(), Some((&token).into()), Fact::Renewed(&held()));
    facts.broken(&name(), &Holder::Lease(held()), "stuck", Some(&ops));
    let foreign = LockName::new("foreign").unwrap();
    facts.tell(&foreign, None, Fact::Broken(None, None, "stuck"));
    let mut told = next_of(&mut listener, 3).await;
    told.sort_by_key(|event| event.kind.as_str());
    assert_eq!(told[0].reason.as_deref(), Some("stuck"));
    let told = told.iter();
    let shown: Vec<_> = told
        .map(|event| (event.kind.as_str(), event.fence.is_some()))
        .collect();
    let expected = [("broken", true), ("broken", false), ("renewed", true)];
    assert_eq!(shown, expected);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_listens_to_is_not_even_made() {
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    settle().await;
    let events = &engine.0.facts.events;
    events.send(|_| panic!("nobody listens"));
    drop(engine.listen(NamePrefix::default(), None).unwrap());
    events.hear(&name(), None, &Fact::Renewed(&held()));
    // Events are recorded for a listener that has left, but only for a minute.
    sleep(Duration::from_mins(2)).await;
    events.send(|_| panic!("nobody listens any more"));
}

#[tokio::test(start_paused = true)]
async fn more_than_can_be_taken_in_leaves_a_gap() {
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let first = engine.listen(NamePrefix::default(), None).unwrap();
    for _ in 0..20_000 {
        let events = &engine.0.facts.events;
        events.hear(&name(), None, &Fact::Renewed(&held()));
    }
    sleep(Duration::from_secs(1)).await;
    let begin = format!("{}-0", first.instance());
    let mut listener = engine.listen(NamePrefix::default(), Some(&begin)).unwrap();
    let is_gap = |event: &Arc<Event>| event.reason.as_deref() == Some("too-many");
    while !next(&mut listener).await.iter().any(is_gap) {}
}
