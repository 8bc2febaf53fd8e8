//! The history of a lock: what stores keep, and what gateways on one store record and show.

use latchgate::{
    engine::Actor,
    lock::{History, HistoryEntry, OrderNumber},
    store::{
        contract::{FenceCheck, FenceQuery, OrderChange},
        history::{HistoryBatch, HistoryBounds, HistoryCounts, HistoryRecord, StoredHistory},
    },
};

use crate::conformance::prelude::*;

const BOUNDS: HistoryBounds = HistoryBounds {
    entries: 2,
    keep: Duration::from_hours(24),
};

fn batch(lock: &str, fences: impl IntoIterator<Item = u64>) -> HistoryBatch {
    let record = |fence| HistoryRecord::new(fence, "fact", false);
    HistoryBatch {
        name: name(lock),
        bounds: BOUNDS,
        records: fences.into_iter().map(record).collect(),
        counts: HistoryCounts::default(),
    }
}

async fn stored(store: &AnyStore, lock: &str) -> StoredHistory {
    store.history(&name(lock)).await.unwrap()
}

/// The fencing tokens of the records, each once.
fn fences(history: &StoredHistory) -> BTreeSet<u64> {
    let records = history.records.iter();
    records.map(|text| text[..16].parse().unwrap()).collect()
}

pub(super) async fn records_are_kept_and_belong_to_one_name(fixture: &dyn Fixture) {
    let store = fixture.store();
    let locks = [("a", 1), ("a:b", 2), ("ab", 3), ("A", 4), ("a", 5)];
    let batches = locks.map(|(lock, fence)| batch(lock, [fence]));
    for _repeated in 0..2 {
        store.record_history(&batches).await.unwrap();
    }
    let store = fixture.restart_if(true).await;
    assert_eq!(fences(&stored(&store, "a").await), [1, 5].into());
    assert_eq!(fences(&stored(&store, "a:b").await), [2].into());
    assert_eq!(stored(&store, "nothing").await, StoredHistory::default());
}

pub(super) async fn of_many_records_the_newest_are_kept(fixture: &dyn Fixture) {
    let store = fixture.store();
    for from in [1, 2_000, 1_000] {
        let batch = batch("lock", from..from + 900);
        store.record_history(&[batch]).await.unwrap();
    }
    let fences = fences(&stored(&store, "lock").await);
    let newest = 2_900 - BOUNDS.records() as u64 + 1..2_900;
    assert!(
        newest.clone().all(|fence| fences.contains(&fence)),
        "{fences:?}"
    );
}

pub(super) async fn counts_of_shorter_leases_and_of_gaps_add_up(fixture: &dyn Fixture) {
    let store = fixture.store();
    for (shorter, since, dropped) in [(0, 0, 7), (3, 1_000, 0), (4, 2_000, 1)] {
        let counts = HistoryCounts {
            shorter,
            since,
            dropped,
        };
        let batch = HistoryBatch {
            counts,
            ..batch("lock", [])
        };
        store.record_history(&[batch]).await.unwrap();
    }
    let store = fixture.restart_if(true).await;
    let counts = stored(&store, "lock").await.counts;
    assert_eq!(
        (counts.shorter, counts.since, counts.dropped),
        (7, 1_000, 8)
    );
}

pub(super) async fn a_release_tells_which_lease_has_ended(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    let [here, there] = [&stores[0], stores.last().unwrap()];
    for (store, granted_here, is_keyed) in [
        (here, true, false),
        (here, true, true),
        (there, false, false),
        (there, false, true),
    ] {
        let key = super::attempts::key();
        let asked = attempt("lock", LONG);
        let asked = if is_keyed {
            keyed("lock", LONG, key)
        } else {
            asked
        };
        let held = granted(here, &asked).await;
        let query = FenceQuery {
            token: Some(asked.token),
            ..fence_query("lock", held.fence)
        };
        let check = here.check_fence(&query).await.unwrap();
        assert!(matches!(check, FenceCheck::Held { .. }), "{check:?}");
        sleep(Duration::from_millis(20)).await;
        let release =
            || store.release_as(Releaser::Bearer, &asked.name, &asked.token, granted_here);
        let released = release().await;
        let Ok(Release::Released(Some(ended))) = released else {
            panic!("the store knows the lease: {released:?}");
        };
        assert_eq!(ended.fence, held.fence);
        if !granted_here {
            let held_for = ended.held_for.expect("it is not known here");
            let near = Duration::from_millis(19)..Duration::from_secs(9);
            assert!(near.contains(&held_for), "{ended:?}");
        }
        let again = release().await.unwrap();
        let ended_again = matches!(again, Release::Released(Some(_)));
        assert!(!ended_again, "the lease has ended before: {again:?}");
        if is_keyed || !granted_here && stores.len() > 1 {
            assert_eq!(again, Release::Released(None));
        }
        match here.check_fence(&query).await.unwrap() {
            FenceCheck::Stale { .. } => {}
            FenceCheck::Released(ago) => {
                assert!(is_keyed || !granted_here);
                assert!(granted_here || ago.is_some());
                assert!(
                    ago.is_none_or(|ago| ago < Duration::from_secs(9)),
                    "{ago:?}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Two gateways on the store, which record leases.
fn gateways(fixture: &dyn Fixture) -> [Engine; 2] {
    gateways_with(fixture, &HistoryConfig::default())
}

fn gateways_with(fixture: &dyn Fixture, history: &HistoryConfig) -> [Engine; 2] {
    let start = |store: &AnyStore| {
        Engine::start(
            store.clone(),
            Lifecycle::new(),
            &LimitsConfig::default(),
            history,
            Metrics::default(),
        )
    };
    // Only one gateway has an embedded store.
    let engines: Vec<_> = fixture.gateways().iter().map(start).collect();
    [engines[0].clone(), engines[engines.len() - 1].clone()]
}

#[expect(clippy::unnecessary_wraps, reason = "a caller may be unknown")]
fn key(name: &str) -> Option<Actor> {
    Some(Actor::Key(name.into()))
}

async fn hold(engine: &Engine, ttl_ms: u64) -> Lease {
    let asked = with(request("lock", "holder"), |it| {
        it.terms.set_ttl(ttl(ttl_ms));
        (it.wait, it.by) = (Duration::ZERO, key("ci"));
        let entry = ("job".to_owned(), "4711".to_owned());
        it.terms.said.metadata = Metadata::new([entry].into()).unwrap();
    });
    let granted = eventually("the lock is free", async || {
        engine.acquire(asked.clone()).await.ok()
    });
    let granted = granted.await;
    granted.delivery.delivered();
    granted.lease
}

/// Waits until the history at a gateway is so, and answers it.
async fn until_history(engine: &Engine, is_so: impl Fn(&History) -> bool) -> History {
    eventually("the history is so", async || {
        let history = engine.history(&name("lock")).await.ok()?;
        is_so(&history).then_some(history)
    })
    .await
}

/// How a lease ended, by whom, and why.
fn end(entry: &HistoryEntry) -> Option<(&str, Option<&str>, Option<&str>)> {
    let ended = entry.ended.as_deref()?;
    Some((ended, entry.ended_by.as_deref(), entry.reason.as_deref()))
}

pub(super) async fn a_lease_that_another_gateway_releases_is_one_entry(fixture: &dyn Fixture) {
    let [here, there] = gateways(fixture);
    let lease = hold(&here, LONG).await;
    // The history shows the holder before it has a record, and does not know then how long the holder has waited.
    let is_recorded = |it: &History| it.entries.iter().any(|it| it.waited_ms.is_some());
    let open = until_history(&there, is_recorded).await;
    let open = &open.entries[0];
    assert_eq!((end(open), open.ended_at_latest.as_ref()), (None, None));
    let released = there.release(name("lock"), lease.token.hash(), key("ops"));
    released.await.unwrap();
    let history = until_history(&here, |it| end(&it.entries[0]).is_some()).await;
    let [entry] = &history.entries[..] else {
        panic!("{history:?}");
    };
    assert_eq!(entry.fencing_token, lease.held.fence.get());
    assert_eq!(end(entry), Some(("released", Some("ops"), None)));
    assert_eq!(entry.acquired_by.as_deref(), Some("ci"));
    assert_eq!(
        (entry.mode.as_deref(), entry.owner.as_deref()),
        (Some("exclusive"), Some("holder"))
    );
    assert_eq!(entry.metadata["job"], "4711");
    assert!(entry.ended_at > entry.acquired_at, "{entry:?}");
}

pub(super) async fn a_refused_check_is_a_note_of_its_lease_and_no_lease_by_itself(
    fixture: &dyn Fixture,
) {
    let [here, there] = gateways(fixture);
    let first = hold(&here, LONG).await;
    let is_recorded = |it: &History| it.entries.iter().any(|it| it.waited_ms.is_some());
    until_history(&there, is_recorded).await;
    let released = here.release(name("lock"), first.token.hash(), None).await;
    released.unwrap();
    let second = hold(&here, LONG).await;
    let (first, second) = (first.held.fence, second.held.fence);
    // Nobody had a lease with the second number.
    let invented = FencingToken::new(first.get() - 1).unwrap();
    for fence in [first, invented] {
        let query = fence_query("lock", fence);
        there.check_fence(&query, None).await.unwrap();
    }
    let is_noted = |text: &String| {
        text.starts_with(&format!("{:016}", first.get())) && text.contains("stale-write-refused")
    };
    until("the refused check is written", async || {
        let stored = stored(&fixture.store(), "lock").await;
        stored.records.iter().any(is_noted)
    })
    .await;
    let shown = here.history(&name("lock")).await.unwrap().entries;
    let fences: Vec<_> = shown.iter().map(|it| it.fencing_token).collect();
    assert_eq!(fences, [second.get(), first.get()], "{shown:?}");
    assert_eq!(shown[1].notes.len(), 1, "{shown:?}");
}

pub(super) async fn a_break_is_recorded_however_short_the_lease_was(fixture: &dyn Fixture) {
    let [here, there] = gateways(fixture);
    let lease = hold(&here, LONG).await;
    let reason = Reason::new("stuck").unwrap();
    let record = |_| std::future::ready(());
    let broken = there.break_lock(name("lock"), None, reason, key("ops"), record);
    broken.await.unwrap();
    let history = until_history(&here, |it| it.entries.iter().any(|it| end(it).is_some())).await;
    let entry = &history.entries[0];
    assert_eq!(entry.fencing_token, lease.held.fence.get());
    assert_eq!(end(entry), Some(("broken", Some("ops"), Some("stuck"))));
    assert_eq!(entry.owner.as_deref(), Some("holder"));
}

pub(super) async fn a_lease_that_nobody_renews_has_expired(fixture: &dyn Fixture) {
    let [here, there] = gateways(fixture);
    let lease = hold(&here, 1_500).await;
    let history = until_history(&there, |it| {
        it.entries.first().is_some_and(|it| end(it).is_some())
    })
    .await;
    let entry = &history.entries[0];
    assert_eq!(
        (entry.fencing_token, end(entry)),
        (lease.held.fence.get(), Some(("expired", None, None)))
    );
}

pub(super) async fn short_leases_are_only_counted(fixture: &dyn Fixture) {
    let config = HistoryConfig {
        after_ms: Millis(3_600_000),
        ..HistoryConfig::default()
    };
    let [here, _] = gateways_with(fixture, &config);
    for _ in 0..3 {
        let lease = hold(&here, LONG).await;
        here.release(name("lock"), lease.token.hash(), None)
            .await
            .unwrap();
    }
    let history = here.history(&name("lock")).await.unwrap();
    let shorter = history.shorter_leases.as_ref().map(|it| it.count);
    assert_eq!(shorter, Some(3), "{history:?}");
    assert!(history.entries.is_empty(), "{history:?}");
}

/// The gateway that granted the lease asks the store before it records the lease.
pub(super) async fn a_short_lease_that_another_gateway_releases_is_counted_there(
    fixture: &dyn Fixture,
) {
    let [here, there] = gateways(fixture);
    let lease = hold(&here, 2_500).await;
    there
        .release(name("lock"), lease.token.hash(), None)
        .await
        .unwrap();
    // The lease would have run out by then.
    sleep(Duration::from_secs(5)).await;
    let history = there.history(&name("lock")).await.unwrap();
    let shorter = history.shorter_leases.as_ref().map(|it| it.count);
    assert_eq!(
        (shorter, history.entries.len()),
        (Some(1), 0),
        "{history:?}"
    );
    assert_eq!(here.history(&name("lock")).await.unwrap().entries.len(), 0);
}

/// A lease is shown as soon as it is granted, and a short one if it has a minimum hold: the lock is not free after it.
pub(super) async fn the_holder_and_a_short_lease_with_a_minimum_hold_are_shown(
    fixture: &dyn Fixture,
) {
    let [here, there] = gateways(fixture);
    let rests = fixture.store().supports(StoreFeature::MinHold);
    let asked = with(request("lock", "holder"), |it| {
        it.terms.set_ttl(ttl(LONG));
        it.wait = Duration::ZERO;
        it.terms.min_hold = MinHold::from_millis(LONG, it.terms.ttl())
            .ok()
            .filter(|_| rests);
    });
    let granted = here.acquire(asked).await.unwrap();
    granted.delivery.delivered();
    let history = there.history(&name("lock")).await.unwrap();
    let [entry] = &history.entries[..] else {
        panic!("{history:?}");
    };
    assert_eq!((entry.owner.as_deref(), end(entry)), (Some("holder"), None));
    assert!(entry.acquired_at.is_some());
    let token = granted.lease.token.hash();
    here.release(name("lock"), token, key("ci")).await.unwrap();
    if rests {
        let history = until_history(&here, |it| end(&it.entries[0]).is_some()).await;
        let entry = &history.entries[0];
        assert_eq!(end(entry), Some(("released", Some("ci"), None)));
        assert_eq!(entry.owner.as_deref(), Some("holder"));
    }
}

/// A break of the rest that a release has left does not change how the lease ended.
pub(super) async fn a_lease_whose_rest_was_broken_stays_released(fixture: &dyn Fixture) {
    let config = HistoryConfig {
        after_ms: Millis(0),
        ..HistoryConfig::default()
    };
    let [here, there] = gateways_with(fixture, &config);
    if !fixture.store().supports(StoreFeature::MinHold) {
        return;
    }
    let asked = with(request("lock", "holder"), |it| {
        it.terms.set_ttl(ttl(LONG));
        it.wait = Duration::ZERO;
        it.terms.min_hold = MinHold::from_millis(LONG, it.terms.ttl()).ok();
    });
    let granted = here.acquire(asked).await.unwrap();
    granted.delivery.delivered();
    let token = granted.lease.token.hash();
    here.release(name("lock"), token, key("ci")).await.unwrap();
    let reason = Reason::new("once more").unwrap();
    let record = |_| std::future::ready(());
    let broken = there.break_lock(name("lock"), None, reason, key("ops"), record);
    broken.await.unwrap();
    // A record that is just being written is shown a moment later.
    let is_whole = |it: &HistoryEntry| !it.notes.is_empty() && end(it).is_some();
    let history = until_history(&here, |it| it.entries.first().is_some_and(is_whole)).await;
    let entry = &history.entries[0];
    assert_eq!(end(entry), Some(("released", Some("ci"), None)));
    let note = &entry.notes[0];
    assert_eq!(
        (&*note.kind, note.by.as_deref()),
        ("rest-ended", Some("ops"))
    );
}

/// A caller that sets the order of a lock is noted, also while nobody holds the lock.
pub(super) async fn a_change_of_the_order_is_noted_at_the_last_lease(fixture: &dyn Fixture) {
    let config = HistoryConfig {
        after_ms: Millis(0),
        ..HistoryConfig::default()
    };
    let [here, there] = gateways_with(fixture, &config);
    if !fixture.store().supports(StoreFeature::Order) {
        return;
    }
    let granted = here.acquire(request("lock", "holder")).await.unwrap();
    granted.delivery.delivered();
    let token = granted.lease.token.hash();
    here.release(name("lock"), token, key("ci")).await.unwrap();
    until_history(&there, |it| {
        it.entries.first().is_some_and(|it| end(it).is_some())
    })
    .await;
    let change = OrderChange {
        seen: None,
        new: OrderNumber::new(7).ok(),
    };
    let reason = Reason::new("runs begin anew").unwrap();
    let record = |_| std::future::ready(());
    let set = there.set_order(name("lock"), change, reason, key("ops"), record);
    set.await.unwrap();
    let is_noted = |it: &HistoryEntry| !it.notes.is_empty();
    let history = until_history(&here, |it| it.entries.first().is_some_and(is_noted)).await;
    let note = &history.entries[0].notes[0];
    assert_eq!(
        (&*note.kind, note.by.as_deref(), note.reason.as_deref()),
        ("order-set", Some("ops"), Some("7: runs begin anew"))
    );
}
