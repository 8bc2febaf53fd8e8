//! Clause 10: a list misses nothing that is held, and shows nothing that has ended.

use latchgate::{
    lock::{Group, NamePrefix, SearchText},
    store::{
        cursor::{Cursor, Scanned},
        list_filter::Found,
    },
};

use crate::conformance::prelude::*;

pub(super) async fn shows_every_lock_that_is_held_as_inspect_does(fixture: &dyn Fixture) {
    let store = fixture.store();
    hold(&store, "lock", 300).await;
    let walked = walk(fixture, &all(7)).await;
    assert_eq!(walked.len(), 300);
    for (name, shown) in walked.iter().take(20) {
        let inspected = store.must_be_held(name).await;
        let Holder::Lease(shown) = shown else {
            panic!("{name} is not held by a lease");
        };
        assert_eq!(shown.fence, inspected.fence);
        assert_eq!(shown.ttl, inspected.ttl);
        assert_eq!(shown.said.owner, inspected.said.owner);
        assert!(shown.expires_in >= inspected.expires_in);
        assert!(shown.held_for <= inspected.held_for);
    }
}

pub(super) async fn of_nothing_is_an_empty_page(fixture: &dyn Fixture) {
    let page = fixture.store().list(&all(100)).await.unwrap();
    assert_eq!((page.locks.len(), page.next), (0, None));
}

pub(super) async fn shows_nothing_that_has_ended(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [kept, over, gone, taken] = [
        attempt("kept", LONG),
        attempt("over", LONG),
        attempt("gone", SHORT),
        attempt("taken", LONG),
    ];
    store.must_grant_each([&kept, &over, &gone, &taken]).await;
    released(&store, &over).await;
    store.break_lock(&taken.name, None).await.unwrap();
    store.until_free("gone").await;
    assert_eq!(names(&walk(fixture, &all(100)).await), ["kept"]);
}

pub(super) async fn shows_the_names_that_begin_so_and_no_others(fixture: &dyn Fixture) {
    let store = fixture.store();
    for lock in ["team", "team:a", "team2:a", "tea", "Team:a", "a-team"] {
        granted(&store, &attempt(lock, LONG)).await;
    }
    for (prefix, expected) in [
        ("team", vec!["team", "team2:a", "team:a"]),
        ("team:", vec!["team:a"]),
        ("team:a", vec!["team:a"]),
        ("other", vec![]),
    ] {
        let query = ListQuery {
            filter: ListFilter {
                prefix: NamePrefix::new(prefix).unwrap(),
                ..ListFilter::default()
            },
            ..all(2)
        };
        assert_eq!(names(&walk(fixture, &query).await), expected, "{prefix}");
    }
}

pub(super) async fn shows_the_leases_of_an_owner_and_no_others(fixture: &dyn Fixture) {
    let store = fixture.store();
    for (lock, owner) in [
        ("a", Some("ci")),
        ("b", Some("CI")),
        ("c", Some("ci 2")),
        ("d", None),
        ("e", Some("ci")),
    ] {
        let asked = with(attempt(lock, LONG), |it| {
            it.terms.said.owner = owner.map(|owner| Owner::new(owner).unwrap());
        });
        granted(&store, &asked).await;
    }
    let query = ListQuery {
        filter: ListFilter {
            owner: Some(Owner::new("ci").unwrap()),
            ..ListFilter::default()
        },
        ..all(1)
    };
    assert_eq!(names(&walk(fixture, &query).await), ["a", "e"]);
}

pub(super) async fn shows_what_is_searched_for_in_name_owner_and_metadata(fixture: &dyn Fixture) {
    let store = fixture.store();
    hold(&store, "other", 60).await;
    for (lock, owner, value) in [
        ("deploy:prod", "anna", "4711"),
        ("build", "PROD runner", "4712"),
        ("ticket", "bert", "https://ci.example/Prod/1"),
        ("Zeta", "Zoë", "x"),
        ("team:build", "prod", "x"),
    ] {
        let entries = [("prod-key".to_owned(), value.to_owned())];
        let asked = with(owned(owner, attempt(lock, LONG)), |it| {
            it.terms.said.metadata = Metadata::new(entries.into()).unwrap();
        });
        granted(&store, &asked).await;
    }
    let everywhere = vec!["build", "deploy:prod", "team:build", "ticket"];
    for (prefix, owner, search, expected) in [
        ("", "", "pRoD", everywhere),
        ("", "", "ZOË", vec!["Zeta"]),
        ("", "", "471", vec!["build", "deploy:prod"]),
        ("", "", "prod-key", vec![]),
        ("team", "", "prod", vec!["team:build"]),
        ("", "bert", "prod", vec!["ticket"]),
        ("", "", "other:7", vec!["other:7"]),
    ] {
        let query = ListQuery {
            filter: ListFilter {
                prefix: NamePrefix::new(prefix).unwrap(),
                owner: Owner::new(owner).ok(),
                search: Some(SearchText::new(search).unwrap()),
            },
            ..all(2)
        };
        assert_eq!(names(&walk(fixture, &query).await), expected, "{search}");
    }
}

pub(super) async fn finds_a_lock_by_its_first_waiters_and_says_what_matched(fixture: &dyn Fixture) {
    let store = fixture.store();
    hold(&store, "other", 20).await;
    let metadata =
        |value: &str| Metadata::new([("job".to_owned(), value.to_owned())].into()).unwrap();
    let held = with(owned("holder", attempt("lock", LONG)), |it| {
        it.terms.said.metadata = metadata("https://ci.example/4710");
    });
    granted(&store, &held).await;
    let waits = |owner: &str, value: &str| {
        let waits = patient(owned(owner, attempt("lock", LONG)));
        with(waits, |it| it.terms.said.metadata = metadata(value))
    };
    let first = waits("runner-7", "\"4711\"\\");
    let group = with(waits("runner-8", "4712"), |it| {
        let first = name("a");
        it.terms.said.group = Some(Box::new(Group {
            first,
            count: 2,
            mark: None,
        }));
    });
    let mut places = vec![store.stand(&first).await, store.stand(&group).await];
    let shown = store.inspect(&held.name).await.unwrap().queue;
    let shown: Vec<_> = shown
        .into_iter()
        .map(|it| (it.owner, it.metadata))
        .collect();
    let asked = [&first, &group].map(|it| it.terms.said.clone());
    assert_eq!(shown, asked.map(|it| (it.owner, it.metadata)));
    let found = |is_waiter, entry: Option<&str>, value: &str| {
        let (entry, value) = (entry.map(str::to_owned), value.to_owned());
        Some(Found {
            is_waiter,
            entry,
            value,
        })
    };
    let search = async |owner: &str, text: &str| {
        let query = ListQuery {
            filter: ListFilter {
                owner: Owner::new(owner).ok(),
                search: Some(SearchText::new(text).unwrap()),
                ..ListFilter::default()
            },
            ..all(100)
        };
        let page = store.list(&query).await.unwrap();
        let locks = page.locks.into_iter();
        locks
            .map(|lock| (lock.name.to_string(), lock.found))
            .collect::<Vec<_>>()
    };
    for (text, expected) in [
        ("LOCK", None),
        ("4710", found(false, Some("job"), "https://ci.example/4710")),
        ("Runner-", found(true, None, "runner-7")),
        ("\"4711", found(true, Some("job"), "\"4711\"\\")),
        ("4712", found(true, Some("job"), "4712")),
    ] {
        assert_eq!(
            search("", text).await,
            [("lock".to_owned(), expected.clone())],
            "{text}"
        );
        assert_eq!(
            search("holder", text).await,
            [("lock".to_owned(), expected)],
            "{text}"
        );
    }
    // The owner is that of a lease; and `job` is the name of an entry, which is not searched.
    assert_eq!(search("runner-7", "4711").await, []);
    assert_eq!(search("", "job").await, []);
    // A waiter that has left is found no more, and only the first hundred waiters are looked at.
    store.must_leave(&first, None).await;
    drop(places.remove(0));
    assert_eq!(search("", "4711").await, []);
    for _ in 0..99 {
        places.push(store.stand(&waits("crowd", "x")).await);
    }
    let last = with(waits("late", "4713"), |it| {
        it.wait.as_mut().unwrap().longest_queue = 200;
    });
    places.push(store.stand(&last).await);
    assert_eq!(search("", "crowd").await.len(), 1);
    assert_eq!(search("", "4713").await, []);
}

/// How many locks of Redis may share a page, whatever its limit is.
const TOGETHER: usize = 16;

pub(super) async fn pages_are_as_long_as_was_asked_for(fixture: &dyn Fixture) {
    let store = fixture.store();
    let (held, limits): (_, &[usize]) = if full() {
        (400, &[1, 2, 7, 10, 100])
    } else {
        (100, &[1, 7, 40])
    };
    hold(&store, "lock", held).await;
    for &limit in limits {
        let pages = store.pages(limit, None).await;
        let seen = pages.iter().flat_map(|page| &page.locks);
        let seen: BTreeSet<_> = seen.map(|lock| &lock.name).collect();
        let pages = pages.len();
        assert_eq!(seen.len(), held, "pages of {limit}");
        assert!(
            pages >= held / limit.max(TOGETHER),
            "{pages} pages of {limit}"
        );
        // The number of pages stays near the number that is needed.
        assert!(pages <= 10 + 4 * held / limit, "{pages} pages of {limit}");
    }
    // A page may take only a short time, and a busy machine may lose some of it.
    until("one page has room for all", async || {
        let page = store.list(&all(1_000)).await.unwrap();
        page.locks.len() == held
    })
    .await;
}

pub(super) async fn a_walk_comes_by_all_that_is_held_while_others_come_and_go(
    fixture: &dyn Fixture,
) {
    // A page for each lock takes most of the time, so the usual test has fewer of these, but the tables still grow many
    // times over.
    let (held, crowds, crowd, limits): (_, _, _, &[usize]) = if full() {
        (100, 4, 200, &[1, 3, 10, 50, 1_000, 1, 3, 10, 50, 1_000])
    } else {
        (20, 2, 100, &[1, 10, 1_000])
    };
    let held: Arc<[Attempt]> = hold(&fixture.store(), "held", held).await.into();
    let stop = Arc::new(AtomicBool::new(false));
    let mut random = Random::seeded();
    let mut others = JoinSet::new();
    let stores = fixture.gateways().into_iter().cycle().take(crowds);
    for (number, store) in stores.enumerate() {
        let (held, stop, mut random) = (Arc::clone(&held), Arc::clone(&stop), random.fork());
        others.spawn(async move {
            for turn in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // Tables grow and shrink, leases are renewed, and a lease is broken.
                let crowd: Vec<_> = (0..crowd)
                    .map(|n| attempt(&format!("crowd:{number}:{turn}:{n}"), LONG))
                    .collect();
                for asked in &crowd {
                    store.must_grant(asked).await;
                }
                let renewed = &held[random.below(held.len())];
                store.must_renew(renewed, None).await;
                for asked in &crowd {
                    store.must_release(asked).await;
                }
            }
        });
    }
    for &limit in limits {
        let walked = walk(fixture, &all(limit)).await;
        for asked in &*held {
            let (name, repeat) = (&asked.name, random.how_to_repeat());
            assert!(walked.contains_key(name), "{name} is missing; {repeat}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    others.join_all().await;
}

pub(super) async fn a_walk_goes_on_after_a_restart(fixture: &dyn Fixture) {
    hold(&fixture.store(), "lock", 200).await;
    let first = fixture.store().list(&all(20)).await.unwrap();
    assert!(first.next.is_some(), "the first page is not all");
    fixture.restart().await;
    let rest = ListQuery {
        cursor: first.next,
        ..all(20)
    };
    let mut seen = names(&walk(fixture, &rest).await);
    assert!(seen.len() < 200, "the walk did not begin anew");
    seen.extend(first.locks.iter().map(|lock| lock.name.to_string()));
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 200);
}

pub(super) async fn a_cursor_that_means_nothing_here_begins_anew(fixture: &dyn Fixture) {
    let store = fixture.store();
    hold(&store, "lock", 200).await;
    let first = store.list(&all(20)).await.unwrap();
    let nowhere = |scan| Scanned { run: 7, scan };
    let other_run = |scanned: Scanned| Scanned {
        run: scanned.run ^ 1,
        ..scanned
    };
    let at_server = |node, scanned| Cursor::Redis { node, scanned };
    let elsewhere = match first.next.expect("the first page is not all") {
        Cursor::Embedded { position } => vec![at_server(0, nowhere(position))],
        Cursor::Redis { node, scanned } => vec![
            Cursor::Embedded {
                position: scanned.scan,
            },
            at_server(u16::MAX, scanned),
            at_server(node, other_run(scanned)),
        ],
        Cursor::Quorum {
            node,
            skipped,
            since,
            scanned,
        } => {
            let at = |node, scanned| Cursor::Quorum {
                node,
                skipped,
                since,
                scanned,
            };
            vec![
                Cursor::Embedded {
                    position: scanned.scan,
                },
                at_server(0, scanned),
                at(node + 1, scanned),
                at(node, other_run(scanned)),
            ]
        }
    };
    for cursor in elsewhere {
        let query = ListQuery {
            cursor: Some(cursor),
            ..all(20)
        };
        assert_eq!(walk(fixture, &query).await.len(), 200, "{cursor:?}");
    }
}

fn all(limit: usize) -> ListQuery {
    list_query(limit, None)
}

/// Acquires `count` locks.
async fn hold(store: &AnyStore, prefix: &str, count: usize) -> Vec<Attempt> {
    let mut held = Vec::new();
    for number in 0..count {
        let asked = store
            .must_hold(attempt(&format!("{prefix}:{number}"), LONG))
            .await;
        held.push(asked);
    }
    held
}

/// Reads all pages of a list, each at another gateway. Answers all locks.
async fn walk(fixture: &dyn Fixture, query: &ListQuery) -> BTreeMap<LockName, Holder> {
    let stores = fixture.gateways();
    let mut walked = BTreeMap::new();
    let mut query = query.clone();
    for store in stores.iter().cycle() {
        let page = store.list(&query).await.unwrap();
        walked.extend(page.locks.into_iter().map(|lock| (lock.name, lock.holder)));
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    walked
}

fn names(walked: &BTreeMap<LockName, Holder>) -> Vec<String> {
    walked.keys().map(LockName::to_string).collect()
}
