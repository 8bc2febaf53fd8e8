//! Breaks of foreign locks, breaks at a server without free memory, and breaks over failing connections.

use crate::redis::prelude::*;

/// SHA-1 of the value `mine`.
const MINE: &str = "8034c43d15bb7ef42e2cc24255217acfc5f4b2f4";
/// SHA-1 of the value `other`.
const OTHER: &str = "d0941e68da8f38151ff86a61fc59f7c5cf9fcaa2";

async fn foreign(rig: &Rig, lock: &str, value: &str) {
    let key = format!("lg:{{{lock}}}:lock");
    rig.run(&["SET", &key, value]).await;
}

#[tokio::test]
async fn a_foreign_client_is_broken_only_without_a_fence() {
    let rig = Rig::start().await;
    let fence = rig.grant(&attempt("other")).await.fence;
    foreign(&rig, "lock", "mine").await;
    let lock = name("lock");
    let meant = Some(fence.into());
    let kept = rig.break_lock(&lock, meant).await.unwrap();
    let holder = foreign_holder(MINE);
    assert_eq!(kept, Breaking::HolderChanged(holder.clone()));
    // An attempt already waits for the lock.
    let next = waiting(attempt("lock"));
    let mut parked = rig.stand(&next).await;
    let broken = rig.break_lock(&lock, None).await.unwrap();
    assert_eq!(broken, Breaking::Broken(holder));
    assert!(hear_grant(&mut parked).await.fence > fence);
}

#[tokio::test]
async fn a_foreign_client_that_is_meant_is_broken_and_no_other_holder() {
    let rig = Rig::start().await;
    let lock = name("lock");
    let [mine, other] = [MINE, OTHER].map(|mark| ForeignMark::new(mark).unwrap());
    let break_lock = async |mark: ForeignMark| {
        let breaking = rig.break_lock(&lock, Some(mark.into())).await;
        breaking.unwrap()
    };
    assert_eq!(break_lock(mine).await, Breaking::NotHeld);
    // The mark that an inspection shows is the one that a break must name.
    foreign(&rig, "lock", "mine").await;
    let shown = rig.inspect(&lock).await.unwrap();
    assert_eq!(shown, held_by(foreign_holder(MINE)));
    // Another foreign lock has replaced the first.
    foreign(&rig, "lock", "other").await;
    let changed = Breaking::HolderChanged(foreign_holder(OTHER));
    assert_eq!(break_lock(mine).await, changed);
    assert_eq!(rig.text(&["GET", "lg:{lock}:lock"]).await, "other");
    let broken = Breaking::Broken(foreign_holder(OTHER));
    assert_eq!(break_lock(other).await, broken);
    assert_eq!(break_lock(other).await, Breaking::NotHeld);
    // A lease of this product has replaced the foreign lock.
    let asked = attempt("lock");
    let lease = rig.grant(&asked).await;
    let kept = break_lock(other).await;
    let is_ours =
        matches!(&kept, Breaking::HolderChanged(Holder::Lease(it)) if it.fence == lease.fence);
    assert!(is_ours, "{kept:?}");
    rig.must_renew(&asked, None).await;
}

#[tokio::test]
async fn a_break_of_all_leases_ends_no_foreign_client() {
    let rig = Rig::start().await;
    foreign(&rig, "lock", "mine").await;
    let (lock, all) = (name("lock"), Some(BreakTarget::All));
    let changed = rig.break_lock(&lock, all).await.unwrap();
    assert_eq!(changed, Breaking::HolderChanged(foreign_holder(MINE)));
    assert_eq!(rig.text(&["GET", "lg:{lock}:lock"]).await, "mine");
}

#[tokio::test]
async fn what_is_not_to_be_understood_is_named_and_left_alone() {
    let rig = Rig::start().await;
    for part in ["lock", "wait"] {
        let asked = attempt(&format!("type-{part}"));
        if part != "lock" {
            rig.grant(&asked).await;
        }
        let key = format!("lg:{{{}}}:{part}", asked.name);
        rig.run(&["DEL", &key]).await;
        rig.run(&["SADD", &key, "mine"]).await;
        let before = rig.digest().await;
        assert_foreign(rig.break_lock(&asked.name, None).await, &key);
        assert_eq!(rig.digest().await, before);
    }
}

#[tokio::test]
async fn a_server_without_memory_breaks_and_passes_on() {
    let rig = Rig::start().await;
    let holder = keyed("lock", "a");
    let held = rig.grant(&holder).await;
    let next = waiting(attempt("lock"));
    let mut parked = rig.stand(&next).await;
    rig.server.set("maxmemory", "1").await;
    let target = Some(held.fence.into());
    rig.must_break(&name("lock"), target).await;
    hear_grant(&mut parked).await;
    rig.must_lose(&holder, Loss::Broken { held: true }).await;
}

#[tokio::test]
async fn a_break_whose_reply_was_lost_breaks_nobody_else() {
    let (rig, proxy) = Rig::with_proxy().await;
    for with_fence in [false, true] {
        let lock = format!("lost-{with_fence}");
        let holder = attempt(&lock);
        let held = rig.grant(&holder).await;
        let next = waiting(attempt(&lock));
        let mut parked = rig.stand(&next).await;
        // Only the break has the fencing token of the lease as an argument.
        proxy.strike(&format!("{}\r\n", held.fence.get()), Fault::CutReply);
        let meant = with_fence.then_some(held.fence.into());
        let broken = rig.break_lock(&holder.name, meant).await.unwrap();
        match broken {
            Breaking::Broken(Holder::Lease(lease)) => assert_eq!(lease.fence, held.fence),
            other => panic!("{other:?}"),
        }
        // The reply with the grant was lost; the gateway finds the grant within a period.
        timeout(TIMEOUT, parked.news()).await.unwrap();
        rig.must_renew(&next, None).await;
    }
    assert_eq!(proxy.strikes(), 2);
}

#[tokio::test]
async fn a_release_that_was_asked_for_and_whose_reply_was_lost_is_unknown() {
    let (rig, proxy) = Rig::with_proxy().await;
    for holder in [attempt("alone"), reader("shared")] {
        rig.grant(&holder).await;
        let (lock, all) = (&holder.name, Some(BreakTarget::All));
        let request = ReleaseRequest {
            by: None,
            reason: Reason::new("a test").unwrap(),
            within: Duration::from_mins(5),
        };
        let asked = rig.request_release(lock, all, &request).await;
        assert!(matches!(asked, Ok(Requesting::Requested(_))), "{asked:?}");
        proxy.strike(&holder.token.to_string(), Fault::CutReply);
        assert_unknown(rig.release(lock, &holder.token).await);
        let left = format!("lg:{{{lock}}}:asked:2{}", holder.token);
        assert_eq!(rig.integer(&["EXISTS", &left]).await, 0);
    }
    assert_eq!(proxy.strikes(), 2);
}

#[tokio::test]
async fn a_late_copy_breaks_nothing_that_came_after_it() {
    let (rig, proxy) = Rig::with_proxy().await;
    let lock = name("late");
    // The foreign client writes the same value again, and its mark is all that identifies it.
    foreign(&rig, "late", "same").await;
    // The bytes after the mark of the broken lock, which only a break sends.
    let mark = "ff3390557335ba88d37755e41514beb03bc499ec";
    proxy.strike(mark, Fault::HoldRequest);
    rig.must_break(&lock, None).await;
    foreign(&rig, "late", "same").await;
    assert_eq!(proxy.strikes(), 1);
    let before = rig.server.calls("evalsha").await;
    proxy.let_go();
    let is_so = async || rig.server.calls("evalsha").await > before;
    until("the late copy arrives", is_so).await;
    let Value::BulkString(value) = rig.run(&["GET", "lg:{late}:lock"]).await else {
        panic!("a late copy broke the next client's lock");
    };
    assert_eq!(value, b"same");
}

#[tokio::test]
async fn a_stream_that_no_word_reaches_ends_with_its_next_renewal() {
    let rig = Rig::start().await;
    let store = Arc::new(rig.store);
    let (limits, history) = (LimitsConfig::default(), HistoryConfig::default());
    let (lifecycle, metrics) = (Lifecycle::new(), Metrics::default());
    let engine = Engine::start(store.clone(), lifecycle, &limits, &history, metrics);
    let request = with(request("lock"), |it| {
        it.terms.set_ttl(ttl(3_000));
        it.wait = Duration::ZERO;
    });
    let mut hold = engine.hold(request).await.unwrap();
    let Some(HoldEvent::Granted(lease)) = hold.next().await else {
        panic!("not granted");
    };
    // The user may not publish: the break must succeed all the same.
    rig.server.set_user("default resetchannels").await;
    store
        .must_break(&name("lock"), Some(lease.held.fence.into()))
        .await;
    assert!(
        store.figures().unsent_messages > Some(0),
        "the word went out"
    );
    loop {
        match timeout(TIMEOUT, hold.next()).await.unwrap() {
            Some(HoldEvent::Ended(HoldEnd::Lost(LossReason::Broken))) => break,
            Some(HoldEvent::Renewed(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}
