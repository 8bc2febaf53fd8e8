//! Each lease of a shared lock has its own token, TTL and hold limit.

use crate::conformance::prelude::*;

pub(crate) async fn a_release_ends_the_one_and_no_other(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second, third] = ["lock"; 3].map(|lock| reader(lock, LONG));
    store.must_grant_each([&first, &second, &third]).await;
    released(&store, &second).await;
    for _ in 0..2 {
        store.must_not_release(&second, Loss::HeldByAnother).await;
        store.must_lose(&second, Loss::HeldByAnother).await;
    }
    for one in [&first, &third] {
        renewed(&store, one, LONG).await;
        released(&store, one).await;
    }
    store.must_not_release(&third, Loss::Free).await;
    assert!(is_free(&store, "lock").await);
}

pub(crate) async fn who_does_not_share_it_can_do_nothing_with_it(fixture: &dyn Fixture) {
    let store = fixture.store();
    granted(&store, &reader("lock", LONG)).await;
    granted(&store, &one_of(2, "lock", LONG)).await;
    // Neither an unknown token nor the token of another lock renews or releases a lease.
    let other = store.must_hold(reader("other", LONG)).await;
    for token in [token(), other.token] {
        let stranger = with(attempt("lock", LONG), |it| it.token = token);
        store.must_have_lost(&stranger, Loss::HeldByAnother).await;
        store.must_not_confirm(&stranger, Confirmation::Lost).await;
        store.must_leave(&stranger, None).await;
    }
    assert_eq!(holders(&store, "lock").await, 2);
}

pub(crate) async fn each_expires_with_its_own_ttl(fixture: &dyn Fixture) {
    let store = fixture.store();
    let asked = Instant::now();
    let (short, long) = (reader("lock", SHORT), reader("lock", LONG));
    let kept = granted(&store, &long).await;
    granted(&store, &short).await;
    until_holders(&store, 1).await;
    assert!(asked.elapsed() >= Duration::from_millis(SHORT), "too early");
    store.must_have_lost(&short, Loss::HeldByAnother).await;
    let left = sharers(&store, "lock").await.leases[0].fence;
    assert_eq!(left, kept.fence, "the wrong one has gone");
    refused(&store, &attempt("lock", LONG)).await;
    released(&store, &long).await;
    granted(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn a_renewal_makes_one_last_and_no_other(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [kept, left] = ["lock"; 2].map(|lock| one_of(2, lock, SHORT));
    let before = granted(&store, &kept).await;
    granted(&store, &left).await;
    let after = renewed(&store, &kept, LONG).await;
    assert_eq!((after.fence, after.mode), (before.fence, before.mode));
    assert_eq!(after.ttl, ttl(LONG));
    until_holders(&store, 1).await;
    store.must_lose(&left, Loss::HeldByAnother).await;
    // A renewal with a shorter TTL does not shorten the time left.
    let after = renewed(&store, &kept, SHORT).await;
    assert_eq!(after.ttl, ttl(SHORT));
    assert!(after.expires_in > Duration::from_millis(LONG / 2));
    released(&store, &kept).await;
    granted(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn each_stops_at_its_own_hold_limit(fixture: &dyn Fixture) {
    let store = fixture.store();
    let bounded = with(limited("lock", SHORT, 2 * SHORT), |it| {
        it.terms.sharing = Some(share(None));
    });
    let free = reader("lock", SHORT);
    let held = granted(&store, &bounded).await;
    assert!(held.hold_expires_in.is_some());
    granted(&store, &free).await;
    let held = renewed(&store, &bounded, LONG).await;
    assert!(held.expires_in <= Duration::from_millis(2 * SHORT));
    let held = renewed(&store, &free, LONG).await;
    assert!(held.expires_in > Duration::from_millis(LONG / 2));
    until_holders(&store, 1).await;
    released(&store, &free).await;
}

pub(crate) async fn a_lease_is_told_with_all_that_it_was_given(fixture: &dyn Fixture) {
    let store = fixture.store();
    granted(&store, &one_of(4, "lock", LONG)).await;
    let entry = ("job".to_owned(), "straße 4711".to_owned());
    let wanted = with(limited("lock", LONG, 86_400_000), |it| {
        it.terms.sharing = Some(share(Some(4)));
        it.terms.said.owner = Some(Owner::new("ci 'äöü' {\"a\":1}").unwrap());
        it.terms.said.metadata = Metadata::new([entry].into()).unwrap();
    });
    let told = granted(&store, &wanted).await;
    for restarted in [false, true] {
        fixture.restart_if(restarted).await;
        let shared = sharers(&fixture.store(), "lock").await;
        let shown = shared.leases.iter().find(|it| it.fence == told.fence);
        for lease in [&told, shown.expect("it is shown")] {
            assert_eq!(lease.mode, Mode::Shared { slot: Some(1) });
            assert_eq!(lease.ttl, wanted.terms.ttl());
            assert_eq!(lease.said, wanted.terms.said);
            assert!(lease.expires_in <= Duration::from_millis(LONG));
            assert!(lease.expires_in > Duration::from_millis(LONG / 2));
            assert!(lease.hold_expires_in > Some(Duration::from_hours(23)));
        }
    }
}

pub(crate) async fn they_survive_a_restart_and_still_exclude(fixture: &dyn Fixture) {
    let store = fixture.store();
    let asked = Instant::now();
    let sharing = [one_of(3, "lock", LONG), reader("lock", LONG)];
    let told = store.must_grant_each(&sharing).await;
    store.must_grant(&one_of(3, "lock", 2 * SHORT)).await;
    fixture.restart().await;
    let store = fixture.store();
    refused(&store, &attempt("lock", LONG)).await;
    until_holders(&store, 2).await;
    assert!(asked.elapsed() >= Duration::from_millis(2 * SHORT));
    assert!(asked.elapsed() < Duration::from_secs(30), "it began anew");
    for (one, told) in sharing.iter().zip(&told) {
        let held = renewed(&store, one, LONG).await;
        assert_eq!((held.fence, held.mode), (told.fence, told.mode));
    }
    // Only the slot of the released lease is free.
    let held = granted(&store, &one_of(3, "lock", LONG)).await;
    assert_eq!(held.mode.slot(), Some(1));
    released(&store, &sharing[0]).await;
    fixture.restart().await;
    assert_eq!(holders(&fixture.store(), "lock").await, 2);
}

pub(crate) async fn one_who_was_granted_confirms_and_does_not_leave(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second] = ["lock"; 2].map(|lock| one_of(2, lock, LONG));
    for one in [&first, &second] {
        let held = granted(&store, one).await;
        let confirmed = store.must_confirm(one).await;
        assert_eq!((confirmed.fence, confirmed.mode), (held.fence, held.mode));
        let told = store.must_leave_granted(one).await;
        assert_eq!((told.fence, told.mode), (held.fence, held.mode));
    }
    assert_eq!(holders(&store, "lock").await, 2);
}
