//! The history of locks when the server or a gateway is away, when memory is short, and beside a list.

use latchgate::{
    clock::{Clock as _, rfc3339},
    engine::RenewError,
    lock::History,
    store::history::{HistoryBatch, HistoryBounds, HistoryCounts, HistoryRecord},
};

use crate::redis::prelude::*;

const BOUNDS: HistoryBounds = HistoryBounds {
    entries: 50,
    keep: Duration::from_hours(24),
};

fn batch(name: LockName, is_vital: bool) -> HistoryBatch {
    HistoryBatch {
        name,
        bounds: BOUNDS,
        records: vec![HistoryRecord::new(7, "fact", is_vital)],
        counts: HistoryCounts::default(),
    }
}

/// Whether the history has a record, and not only the holder, of whom the time waited is not known.
fn has_record(history: &History) -> bool {
    history.entries.iter().any(|it| it.waited_ms.is_some())
}

async fn until_recorded(gate: &TestGateway, lock: &str) -> History {
    eventually("the lease is recorded", async || {
        let history = gate.engine.history(&name(lock)).await.ok()?;
        has_record(&history).then_some(history)
    })
    .await
}

#[tokio::test]
async fn the_open_leases_of_a_gateway_that_is_killed_end_at_the_latest_with_the_next_grant() {
    let server = RedisServer::start().await;
    let (here, there) = (
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    );
    let lease = here.take_for("lock", 12_000).await;
    until_recorded(&there, "lock").await;
    here.kill().await;
    let next = until_taken(&there, "lock", 30_000).await;
    let history = until_recorded(&there, "lock").await;
    let mut entries = history.entries.iter();
    let entry = entries.find(|it| it.fencing_token == lease.held.fence.get());
    let entry = entry.unwrap();
    assert!(entry.ended.is_none(), "{entry:?}");
    let now = rfc3339(Some(SystemClock.wall())).to_string();
    let at_latest = entry.ended_at_latest.as_ref().unwrap();
    assert!(*at_latest <= now, "{entry:?}");
    assert!(next.held.fence > lease.held.fence);
}

#[tokio::test]
async fn a_lease_that_the_server_has_lost_is_lost_also_if_a_gateway_finds_it_that_did_not_know_it()
{
    let server = RedisServer::start().await;
    let (here, there) = (
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    );
    let lease = here.take_for("lock", 600_000).await;
    until_recorded(&there, "lock").await;
    server.run(&["DEL", "lg:{lock}:lock"]).await;
    let renewed = there
        .engine
        .renew(name("lock"), lease.token.clone(), RenewalTtl::default())
        .await;
    assert!(matches!(renewed, Err(RenewError::Lost(_))), "{renewed:?}");
    until("the lease is lost", async || {
        let history = there.engine.history(&name("lock")).await.unwrap();
        history.entries[0].ended.as_deref() == Some("lost")
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_stops_at_the_end_of_its_last_lease_has_recorded_how_the_lease_has_ended() {
    let server = RedisServer::start().await;
    let (here, there) = (
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    );
    let lease = here.take_for("lock", 8_000).await;
    until_recorded(&there, "lock").await;
    // No gateway has heard the answer to this release.
    let (lock, token) = (&lease.name, lease.token.hash());
    let released = there.release_as(Releaser::Bearer, lock, &token, false);
    assert!(matches!(released.await, Ok(Release::Released(_))));
    let is_needed = || here.engine.leases_needed_until();
    while let Some(until) = is_needed() {
        tokio::time::sleep_until(until).await;
    }
    here.lifecycle.stop(Duration::from_secs(5)).await.unwrap();
    let soon = Instant::now() + Duration::from_secs(5);
    here.engine.flush_history(soon).await;
    let history = there.engine.history(&name("lock")).await.unwrap();
    let entry = &history.entries[0];
    assert_eq!(entry.ended.as_deref(), Some("released"), "{entry:?}");
}

#[tokio::test]
async fn what_a_gateway_could_not_write_is_written_when_the_server_is_back() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let cable = Cable::to(server.port(), &lifecycle).await;
    let by_cable = url(&format!("redis://127.0.0.1:{}", cable.port()));
    let (here, there) = (TestGateway::at(&by_cable), TestGateway::on(&server).await);
    let lease = until_taken(&here, "lock", 60_000).await;
    cable.cut();
    // The beginning of the lease is recorded after a second, and cannot be written.
    sleep(Duration::from_secs(3)).await;
    let before = there.engine.history(&name("lock")).await.unwrap();
    assert!(!has_record(&before), "{before:?}");
    cable.mend();
    let history = until_recorded(&there, "lock").await;
    let entry = &history.entries[0];
    assert_eq!(entry.fencing_token, lease.held.fence.get());
    assert!(
        entry.ended.is_none() && entry.ended_at_latest.is_none(),
        "{entry:?}"
    );
    assert_eq!(history.dropped, 0);
}

#[tokio::test]
async fn while_memory_is_nearly_full_only_breaks_and_losses_are_written() {
    let rig = Rig::start().await;
    rig.server
        .run(&["SETRANGE", "filler", "20000000", "x"])
        .await;
    rig.server.set("maxmemory", "24000000").await;
    // An examination reads how much memory is used; the one at the start counts for a second.
    sleep(Duration::from_millis(1_100)).await;
    rig.store.check().await;
    for is_vital in [false, true] {
        let batch = batch(name("lock"), is_vital);
        rig.store.record_history(&[batch]).await.unwrap();
        let history = rig.store.history(&name("lock")).await.unwrap();
        let kept = (history.records.len(), history.counts.dropped);
        assert_eq!(kept, (usize::from(is_vital), 1));
    }
}

#[tokio::test]
async fn the_histories_of_many_locks_are_few_keys_and_a_list_is_as_quick_as_before() {
    let rig = Rig::start().await;
    rig.grant(&attempt("held")).await;
    let past = (0..20_000).map(|number| batch(name(&format!("past:{number}")), false));
    let past: Vec<_> = past.collect();
    rig.store.record_history(&past).await.unwrap();
    let keys = rig.server.keys().await;
    let histories = keys.iter().filter(|key| key.contains(":history:")).count();
    assert!((900..=1_024).contains(&histories), "{histories} keys");
    let before = rig.server.calls("scan").await;
    let page = rig.store.list(&list_query(100, None)).await.unwrap();
    assert_eq!((page.locks.len(), page.next), (1, None));
    let steps = rig.server.calls("scan").await - before;
    assert!(steps <= 6, "{steps} steps");
}
