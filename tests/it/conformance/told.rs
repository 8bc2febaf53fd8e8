//! What answers of a store say about leases and about the store.

use latchgate::{lock::Group, store::contract::Check};

use crate::conformance::prelude::*;

pub(super) async fn a_lease_is_told_with_all_that_it_was_given(fixture: &dyn Fixture) {
    let full = full();
    let held = granted(&fixture.store(), &full).await;
    assert_eq!(held.ttl, full.terms.ttl());
    assert_eq!(held.said, full.terms.said);
    assert!(held.expires_in <= full.terms.ttl().duration());
    assert!(held.expires_in + Duration::from_secs(9) > full.terms.ttl().duration());
    assert!(held.held_for < Duration::from_secs(9));
    let limit = held.hold_expires_in.expect("a hold limit was asked for");
    assert!(limit > Duration::from_hours(24) - Duration::from_secs(9));
    assert!(limit <= Duration::from_hours(24));
}

pub(super) async fn inspect_shows_what_acquire_told(fixture: &dyn Fixture) {
    let full = full();
    let asked = Instant::now();
    let told = granted(&fixture.store(), &full).await;
    for restarted in [false, true] {
        let store = fixture.restart_if(restarted).await;
        let shown = store.must_be_held(&full.name).await;
        assert_eq!(shown.fence, told.fence);
        assert_eq!(shown.ttl, told.ttl);
        assert_eq!(shown.said, told.said);
        // The acquire counts its times from when the command was sent, the store from when it was carried out.
        let since = asked.elapsed();
        assert!(shown.expires_in <= told.expires_in + since);
        assert!(shown.held_for + since >= told.held_for);
        assert!(shown.hold_expires_in.is_some());
        assert!(shown.hold_expires_in <= told.hold_expires_in.map(|left| left + since));
    }
}

pub(super) async fn a_lock_that_nobody_ever_wanted_is_free(fixture: &dyn Fixture) {
    fixture.store().must_be_free(&name("unknown")).await;
}

pub(super) async fn a_closed_store_says_that_it_closes(fixture: &dyn Fixture) {
    let store = fixture.store();
    store.close().await;
    store.close().await;
    let (lock, token) = (name("lock"), token());
    assert_eq!(store.acquire(&attempt("lock", LONG)).await, closing());
    assert_eq!(store.renew(&lock, &token, None).await, closing());
    assert_eq!(store.release(&lock, &token).await, closing());
    assert_eq!(store.give_back(&lock, &token, None).await, closing());
    assert_eq!(store.confirm(&lock, &token).await, closing());
    assert_eq!(store.leave(&lock, &token, None).await, closing());
    assert_eq!(store.inspect(&lock).await, closing());
    assert_eq!(store.break_lock(&lock, None).await, closing());
    assert_eq!(store.list(&list_query(1, None)).await, closing());
}

fn closing<T>() -> Result<T, StoreError> {
    Err(Unavailability::Closing.into())
}

pub(super) async fn a_sound_store_passes_its_checks(fixture: &dyn Fixture) {
    // Repeated for a moment: a store that was just opened may not know all its servers yet.
    let store = fixture.store();
    // The master of these sentinels has one replica, which would be the master after a failover, so this warning is
    // expected.
    let is_sound = |check: &Check| match &check.health {
        Health::Passing => true,
        Health::Warning(why) => check.name == "replicas" && why.contains("after a failover"),
        Health::Outage(_) | Health::Misconfigured(_) => false,
    };
    until("all checks pass", async || {
        let checks = store.check().await;
        let all = checks.iter().all(is_sound);
        all && !checks.is_empty()
    })
    .await;
}

fn full() -> Attempt {
    let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let metadata = [
        entry("job", "4711"),
        entry("straße", "ünter \"den\" linden"),
    ];
    let owner = Owner::new("ci runner 7 'äöü' {\"a\":1}").unwrap();
    with(limited("full", LONG, 86_400_000), |it| {
        it.terms.said = Said {
            owner: Some(owner),
            metadata: Metadata::new(metadata.into()).unwrap(),
            group: Some(Box::new(Group {
                first: name("first"),
                count: 16,
                mark: None,
            })),
            order: None,
        };
    })
}
