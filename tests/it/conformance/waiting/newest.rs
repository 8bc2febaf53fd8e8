//! `supersedes`: a waiter that is queued takes an older waiter with the same key out of the queue.

use crate::conformance::prelude::*;

/// A request of this owner that supersedes older waiters with `key`.
fn newest(key: &str, owner: &str) -> AcquireRequest {
    with(request("lock", owner), |it| {
        it.terms.supersedes = Some(SupersedeKey::new(key).unwrap().into());
    })
}

fn under_key(key: &IdempotencyKey, request: AcquireRequest) -> AcquireRequest {
    with(request, |it| it.idempotency_key = Some(key.clone()))
}

fn waits_for(ms: u64, request: AcquireRequest) -> AcquireRequest {
    with(request, |it| it.wait = Duration::from_millis(ms))
}

async fn outrun(caller: Caller) {
    let error = caller.refused().await;
    assert!(matches!(error, AcquireError::NewerWaiter), "{error:?}");
}

async fn owners_in_queue(gateways: &Gateways) -> Vec<String> {
    let queue = gateways.shown("lock").await.queue;
    let owners = queue.iter().filter_map(|waiter| waiter.owner.as_ref());
    owners.map(|owner| owner.as_str().to_owned()).collect()
}

pub(crate) async fn takes_the_older_out_and_stands_at_the_end(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let older = gateways.queue(newest("deploy", "one"), 1).await;
    let between = gateways.queue(request("lock", "between"), 2).await;
    let newer = gateways.ask(newest("deploy", "two"));
    outrun(older).await;
    gateways.queued("lock", 2).await;
    assert_eq!(owners_in_queue(&gateways).await, ["between", "two"]);
    let last = gateways.ask(newest("deploy", "three"));
    outrun(newer).await;
    let lease = gateways.pass(&lease, between).await;
    let lease = gateways.pass(&lease, last).await;
    gateways.end(&lease).await;
}

pub(crate) async fn leaves_other_keys_callers_locks_and_the_holder_alone(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let lease = gateways.hold_as(newest("deploy", "holder")).await;
    let another = gateways.hold("another").await;
    let caller = with(newest("deploy", "of another caller"), |it| {
        it.caller = CallerId::of_key("ci".into());
    });
    let elsewhere = with(newest("deploy", "elsewhere"), |it| {
        it.name = name("another");
    });
    let elsewhere = gateways.queue(elsewhere, 1).await;
    let waiters = [
        newest("test", "of another key"),
        caller,
        newest("deploy", "newest"),
    ];
    let waiters = gateways.queue_each(waiters).await;
    assert!(elsewhere.is_waiting());
    let mut lease = lease;
    for waiter in waiters {
        lease = gateways.pass(&lease, waiter).await;
    }
    gateways.release("another", &another.token).await;
    elsewhere.granted().await;
}

pub(crate) async fn takes_nobody_out_unless_it_is_queued(fixture: &dyn Fixture) {
    let limits = with(LimitsConfig::default(), |it| it.max_waiters_per_name = 1);
    let gateways = Gateways::with(fixture, &limits);
    let lease = gateways.hold("lock").await;
    let waits = gateways.queue(newest("deploy", "waits"), 1).await;
    gateways
        .ask(waits_for(0, newest("deploy", "does not wait")))
        .held()
        .await;
    let error = gateways
        .ask(newest("deploy", "finds it full"))
        .refused()
        .await;
    assert!(matches!(error, AcquireError::TooManyWaiters), "{error:?}");
    assert!(waits.is_waiting());
    gateways.pass(&lease, waits).await;
}

/// The older request is one of a chain under an idempotency key, between two of its requests.
pub(crate) async fn tells_the_next_request_of_a_chain(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, 10_000);
    let (lease, key) = (gateways.hold("lock").await, new_key());
    let chain = || under_key(&key, newest("deploy", "chain"));
    gateways.ask(waits_for(100, chain())).held().await;
    gateways.queued("lock", 1).await;
    let newer = gateways.ask(newest("deploy", "newer"));
    let is_so = async || owners_in_queue(&gateways).await == ["newer"];
    until("the kept position is gone", is_so).await;
    for wait in [0, 100, 30_000] {
        outrun(gateways.ask(waits_for(wait, chain()))).await;
    }
    assert!(newer.is_waiting());
    // Another request under another key is newer again.
    let newest = gateways.ask(under_key(&new_key(), newest("deploy", "newest")));
    outrun(newer).await;
    gateways.pass(&lease, newest).await;
}

/// Two chains at two gateways: the older one ends, and the requests of the newer one take nobody out, also not their own
/// chain.
pub(crate) async fn of_two_chains_one_stays(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, 10_000);
    let lease = gateways.hold("lock").await;
    let keys = [new_key(), new_key()];
    let mut alive = vec!["one", "two"];
    for _ in 0..8 {
        for (owner, key) in ["one", "two"].into_iter().zip(&keys) {
            let piece = under_key(key, waits_for(50, newest("deploy", owner)));
            match gateways.ask(piece).refused().await {
                AcquireError::Held { .. } => assert!(alive.contains(&owner)),
                AcquireError::NewerWaiter => alive.retain(|it| *it != owner),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(owners_in_queue(&gateways).await, ["two"]);
    }
    assert_eq!(alive, ["two"]);
    let last = gateways.ask(under_key(&keys[1], newest("deploy", "two")));
    // The position has passed from request to request, and a newer waiter finds it.
    let newer = gateways.ask(newest("deploy", "three"));
    outrun(last).await;
    gateways.pass(&lease, newer).await;
}

pub(crate) async fn lets_those_behind_the_older_share_the_lock(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let reader = gateways.hold_as(sharing(None, "reader")).await;
    let writer = gateways.queue(newest("deploy", "writer"), 1).await;
    let behind = gateways.queue(sharing(None, "behind"), 2).await;
    let newer = gateways.ask(newest("deploy", "newer"));
    outrun(writer).await;
    let behind = behind.granted().await;
    assert!(newer.is_waiting());
    gateways.release("lock", &reader.token).await;
    gateways.pass(&behind, newer).await;
}

/// Late copies of the commands of an attempt that was taken out, and of the newer attempt.
pub(crate) async fn late_copies_change_nothing(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    let hash = SupersedeHash::from_bytes([7; 16]);
    let newest = |attempt| {
        with(patient(attempt), |it: &mut Attempt| {
            it.wait.as_mut().expect("it waits").supersedes = Some(hash.into());
        })
    };
    let older = newest(keyed("lock", LONG, key()));
    let newer = newest(attempt("lock", LONG));
    let mut gone = store.stand(&older).await;
    let mut stands = store.stand(&newer).await;
    assert_eq!(timeout(LATE, gone.news()).await.unwrap(), News::NewerWaiter);
    for _ in 0..2 {
        let again = store.acquire(&older).await.unwrap();
        assert!(matches!(again, Acquisition::NewerWaiter), "{again:?}");
        let again = store.acquire(&newer).await.unwrap();
        assert!(matches!(again, Acquisition::Queued(_)), "{again:?}");
        for keep_for in [None, Some(LATE)] {
            let left = store.leave(&older.name, &older.token, keep_for).await;
            assert_eq!(left.unwrap(), Leaving::NewerWaiter);
        }
    }
    let given_back = store
        .give_back(&older.name, &older.token, None)
        .await
        .unwrap();
    assert_eq!(given_back, GiveBack::NothingHeld);
    released(&store, &holder).await;
    let news = timeout(LATE, stands.news()).await.unwrap();
    let is_granted = matches!(news, News::Granted(_) | News::GrantedProvisionally);
    assert!(is_granted, "{news:?}");
}

/// In a queue of more than 512 waiters the id of the older waiter stays for a while, and the lock passes over it.
pub(crate) async fn of_a_long_queue_takes_the_older_out(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    let newest = |it: &mut Attempt| {
        let wait = it.wait.as_mut().expect("it waits");
        wait.longest_queue = 10_000;
        wait.supersedes = Some(SupersedeHash::from_bytes([7; 16]).into());
    };
    let mut older = store
        .stand(&with(patient(attempt("lock", LONG)), newest))
        .await;
    let mut crowd = Vec::new();
    for _ in 0..520 {
        let one = with(patient(attempt("lock", LONG)), |it| {
            it.wait.as_mut().expect("it waits").longest_queue = 10_000;
        });
        crowd.push(store.stand(&one).await);
    }
    let newer = with(patient(attempt("lock", LONG)), newest);
    let _newer = store.stand(&newer).await;
    assert_eq!(
        timeout(LATE, older.news()).await.unwrap(),
        News::NewerWaiter
    );
    released(&store, &holder).await;
    let news = timeout(LATE, crowd[0].news()).await.unwrap();
    let is_granted = matches!(news, News::Granted(_) | News::GrantedProvisionally);
    assert!(is_granted, "{news:?}");
}
