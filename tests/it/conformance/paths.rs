//! Locks whose names are paths, such as `acme/web`, live like any other lock.

use latchgate::lock::NamePrefix;

use crate::conformance::prelude::*;

/// A path of the greatest length that a name may have.
fn longest() -> String {
    let path = "acme/web/".repeat(LockName::MAX_LEN / 9);
    format!("{path}{}", "x".repeat(LockName::MAX_LEN - path.len()))
}

pub(super) async fn are_locks_of_their_own(fixture: &dyn Fixture) {
    let store = fixture.store();
    let longest = longest();
    let locks = [
        "acme",
        "acme/web",
        "acme/web/eu",
        "acme:web",
        "Acme/web",
        "acme/w.e.b",
        "acmeweb",
        "renew",
        "renew/acme",
        &longest,
    ];
    for lock in locks {
        granted(&store, &attempt(lock, LONG)).await;
    }
    for lock in locks {
        refused(&store, &attempt(lock, LONG)).await;
        assert!(!is_free(&store, lock).await, "{lock}");
    }
    assert!(is_free(&store, "acme/we").await);
    assert!(is_free(&store, "web").await);
}

pub(super) async fn are_listed_by_the_beginning_of_the_path(fixture: &dyn Fixture) {
    let store = fixture.store();
    let locks = ["ci", "ci/web", "ci/web/eu", "ci:web", "cinema", "cinema/1"];
    for lock in locks {
        granted(&store, &attempt(lock, LONG)).await;
    }
    for (prefix, expected) in [
        ("ci", locks.to_vec()),
        ("ci/", vec!["ci/web", "ci/web/eu"]),
        ("ci/web", vec!["ci/web", "ci/web/eu"]),
        ("ci/web/", vec!["ci/web/eu"]),
        ("cinema/", vec!["cinema/1"]),
        ("web/", vec![]),
    ] {
        let mut query = list_query(2, None);
        query.filter.prefix = NamePrefix::new(prefix).unwrap();
        let mut shown = BTreeSet::new();
        loop {
            let page = store.list(&query).await.unwrap();
            shown.extend(page.locks.into_iter().map(|lock| lock.name.to_string()));
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
        let expected = expected.into_iter().map(str::to_owned);
        assert_eq!(shown, expected.collect(), "{prefix}");
    }
}

pub(super) async fn keep_what_they_are_over_a_restart(fixture: &dyn Fixture) {
    let lock = &longest();
    let key = key();
    let (_, holder) = holding(fixture, keyed(lock, LONG, key)).await;
    fixture.restart().await;
    let store = fixture.store();
    refused(&store, &attempt(lock, LONG)).await;
    store.must_replay(&keyed(lock, LONG, key)).await;
    released(&store, &holder).await;
    fixture.restart().await;
    // The release of a lease with a key is remembered, by the name and the token.
    let store = fixture.store();
    released(&store, &holder).await;
    let next = attempt(lock, LONG);
    granted(&store, &next).await;
    store.must_break(&next.name, None).await;
    fixture.restart().await;
    let lost = Loss::Broken { held: false };
    fixture.store().must_have_lost(&next, lost).await;
}

pub(super) async fn pass_to_waiters_of_every_gateway_in_order(fixture: &dyn Fixture) {
    const LOCK: &str = "state/prod/network";
    const BRIEF: u64 = 3_000;
    let (gateways, lease) = Gateways::holding_as(fixture, request(LOCK, "first")).await;
    let [first, second, third] = ["released", "expired", "broken"].map(|owner| {
        with(request(LOCK, owner), |it| {
            if owner == "expired" {
                it.terms.set_ttl(ttl(BRIEF));
            }
        })
    });
    let callers = [first, second, third, request(LOCK, "last")];
    let mut callers = gateways.queue_each(callers).await.into_iter();
    let mut next = || callers.next().unwrap().granted();
    gateways.release(LOCK, &lease.token).await;
    let lease = next().await;
    gateways.release(LOCK, &lease.token).await;
    next().await;
    // The second lease ends by itself.
    next().await;
    fixture.last().must_break(&name(LOCK), None).await;
    let lease = next().await;
    gateways.release(LOCK, &lease.token).await;
    gateways.idle(LOCK).await;
}
