//! What inspections and lists show of a shared lock.

use latchgate::store::contract::SHOWN_HOLDERS;

use crate::conformance::prelude::*;

pub(crate) async fn inspect_shows_first_who_ends_first(fixture: &dyn Fixture) {
    let store = fixture.store();
    let mut sharing = Vec::new();
    for (owner, times) in [("c", 3), ("a", 1), ("d", 4), ("b", 2)] {
        let one = owned(owner, one_of(9, "lock", times * LONG));
        granted(&store, &one).await;
        sharing.push(one);
    }
    assert_eq!(owners(fixture).await, ["a", "b", "c", "d"]);
    // The order changes with the next renewal.
    renewed(&store, &sharing[1], 5 * LONG).await;
    assert_eq!(owners(fixture).await, ["b", "c", "d", "a"]);
    renewed(&store, &sharing[3], 6 * LONG).await;
    assert_eq!(owners(fixture).await, ["c", "d", "a", "b"]);
    released(&store, &sharing[3]).await;
    assert_eq!(owners(fixture).await, ["c", "d", "a"]);
    fixture.restart().await;
    assert_eq!(owners(fixture).await, ["c", "d", "a"]);
}

async fn owners(fixture: &dyn Fixture) -> Vec<String> {
    let shown = sharers(&fixture.store(), "lock").await;
    assert_eq!(shown.count, shown.leases.len() as u64);
    let owners = shown.leases.iter().map(|lease| lease.said.owner.clone());
    owners
        .map(|owner| owner.expect("each has one").as_str().to_owned())
        .collect()
}

pub(crate) async fn of_very_many_those_are_shown_who_end_first(fixture: &dyn Fixture) {
    const MANY: u64 = 120;
    const MORE: usize = 20;
    let store = fixture.store();
    let mut fences = Vec::new();
    // The leases that are granted first end last.
    for number in 0..MANY {
        let wanted = reader("lock", LONG * (MANY - number));
        fences.push(granted(&store, &wanted).await.fence);
    }
    let shown = sharers(&store, "lock").await;
    assert_eq!(shown.count, MANY);
    assert_eq!(shown.leases.len(), SHOWN_HOLDERS);
    let shown: Vec<_> = shown.leases.iter().map(|lease| lease.fence).collect();
    fences.reverse();
    assert_eq!(shown, fences[..SHOWN_HOLDERS]);
    assert_eq!(fences.len() - SHOWN_HOLDERS, MORE);
    // A refused attempt is told the same leases.
    let contention = store.must_refuse(&attempt("lock", LONG)).await;
    let Some(Holder::Shared(told)) = contention.holder else {
        panic!("not shared: {:?}", contention.holder);
    };
    let count = (told.count, told.leases.len());
    assert_eq!(count, (MANY, SHOWN_HOLDERS));
    let told: Vec<_> = told.leases.iter().map(|lease| lease.fence).collect();
    assert_eq!(told, shown);
}

pub(crate) async fn one_alone_in_shared_mode_is_shown_as_such(fixture: &dyn Fixture) {
    let store = fixture.store();
    let held = granted(&store, &reader("lock", LONG)).await;
    let shown = sharers(&store, "lock").await;
    assert_eq!((shown.count, shown.leases.len()), (1, 1));
    assert_eq!(shown.leases[0].fence, held.fence);
    assert_eq!(shown.leases[0].mode, held.mode);
    assert!(shown.leases[0].expires_in > Duration::from_millis(LONG / 2));
}

pub(crate) async fn a_list_shows_a_shared_lock_once(fixture: &dyn Fixture) {
    let store = fixture.store();
    for _ in 0..5 {
        granted(&store, &one_of(5, "pool", LONG)).await;
    }
    for lock in ["read", "alone"] {
        granted(&store, &reader(lock, LONG)).await;
    }
    granted(&store, &attempt("exclusive", LONG)).await;
    let listed = listed(fixture, ListFilter::default()).await;
    let counts: Vec<_> = listed
        .iter()
        .map(|(name, holder)| (name.as_str(), holder.count()))
        .collect();
    let expected = [("alone", 1), ("exclusive", 1), ("pool", 5), ("read", 1)];
    assert_eq!(counts, expected);
    for (name, holder) in &listed {
        let is_shared = matches!(holder, Holder::Shared(_));
        assert_eq!(is_shared, name.as_str() != "exclusive", "{holder:?}");
        assert_eq!(holder.leases().len() as u64, holder.count());
        let shown = store.inspect(name).await.unwrap().holder;
        let fences = |holder: &Holder| -> Vec<_> {
            let leases = holder.leases().iter();
            leases.map(|it| (it.fence, it.mode)).collect()
        };
        assert_eq!(Some(fences(holder)), shown.as_ref().map(fences));
    }
}

pub(crate) async fn a_list_shows_a_lock_to_the_owner_of_any_of_its_leases(fixture: &dyn Fixture) {
    let store = fixture.store();
    for (lock, owners) in [
        ("a", vec!["ann", "bob", "cyn"]),
        ("b", vec!["bob"]),
        ("c", vec!["cyn", "dan"]),
    ] {
        for owner in owners {
            let one = owned(owner, reader(lock, LONG));
            granted(&store, &one).await;
        }
    }
    for (owner, expected) in [
        ("ann", vec!["a"]),
        ("bob", vec!["a", "b"]),
        ("cyn", vec!["a", "c"]),
        ("eve", vec![]),
    ] {
        let filter = ListFilter {
            owner: Some(Owner::new(owner).unwrap()),
            ..ListFilter::default()
        };
        let listed = listed(fixture, filter).await;
        let names: Vec<_> = listed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, expected, "{owner}");
        // The list shows the number of all holders.
        for (name, holder) in &listed {
            let all = store.inspect(name).await.unwrap().holder;
            assert_eq!(Some(holder.count()), all.map(|holder| holder.count()));
        }
    }
}

pub(crate) async fn a_list_shows_nothing_of_those_who_have_gone(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second, last] = ["lock"; 3].map(|lock| one_of(3, lock, LONG));
    store.must_grant_each([&first, &second, &last]).await;
    let counts = async || -> Vec<_> {
        let listed = listed(fixture, ListFilter::default()).await;
        listed.iter().map(|(_, holder)| holder.count()).collect()
    };
    for (one, left) in [(&second, vec![2]), (&first, vec![1]), (&last, vec![])] {
        released(&store, one).await;
        assert_eq!(counts().await, left);
    }
}

/// All locks that a list shows, by name. Each must be shown once, because no lock is acquired or released meanwhile.
async fn listed(fixture: &dyn Fixture, filter: ListFilter) -> Vec<(LockName, Holder)> {
    let mut listed = Vec::new();
    let mut cursor = None;
    for store in fixture.gateways().iter().cycle() {
        let query = with(list_query(2, cursor), |it| it.filter = filter.clone());
        let page = store.list(&query).await.unwrap();
        listed.extend(page.locks.into_iter().map(|lock| (lock.name, lock.holder)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    listed.sort_by(|(before, _), (after, _)| before.as_str().cmp(after.as_str()));
    listed
}

pub(crate) async fn an_owner_finds_a_lock_by_a_holder_that_is_not_shown(fixture: &dyn Fixture) {
    let store = fixture.store();
    let last = owned("last", reader("lock", 2 * LONG));
    granted(&store, &last).await;
    for _ in 0..SHOWN_HOLDERS {
        granted(&store, &reader("lock", LONG)).await;
    }
    let filter = ListFilter {
        owner: last.terms.said.owner,
        ..ListFilter::default()
    };
    match &listed(fixture, filter).await[..] {
        [(_, Holder::Shared(holders))] => assert_eq!(holders.leases.len(), SHOWN_HOLDERS),
        other => panic!("{other:?}"),
    }
}
