//! Idempotency keys on a quorum, and the recipient of a lease that several nodes have.

use crate::redlock::prelude::*;

fn keyed(key: IdempotencyHash) -> Attempt {
    under_key(key, attempt("lock"))
}

fn key() -> IdempotencyHash {
    IdempotencyHash::from_bytes(*attempt("key").token.as_bytes())
}

/// A lease that all nodes have accepted, and its idempotency key.
async fn keyed_everywhere(rig: &Rig) -> (IdempotencyHash, Attempt, HeldLease) {
    eventually("all have accepted it", async || {
        let key = key();
        let first = keyed(key);
        let lease = rig.grant(&first).await;
        if rig.have_accepted(&first.name, &lease).await == 3 {
            return Some((key, first, lease));
        }
        rig.release(&first).await;
        None
    })
    .await
}

#[tokio::test]
async fn its_own_lease_is_never_shown_to_a_caller_as_somebody_elses() {
    let rig = Rig::start(3).await;
    let (key, first, lease) = keyed_everywhere(&rig).await;
    // One node has lost the lease and one does not reply, so the lease may still live.
    rig.server(1).run(&["FLUSHALL"]).await;
    rig.server(2).freeze();
    assert_unavailable(rig.store.acquire(&keyed(key)).await);
    rig.server(2).thaw();
    let again = eventually("it is answered again", async || {
        rig.store.acquire(&keyed(key)).await.ok()
    })
    .await;
    let Acquisition::Replayed(again, _) = again else {
        panic!("another answer: {again:?}");
    };
    assert_eq!(again.fence, lease.fence);
    rig.release(&first).await;
    let after = eventually("a majority knows of its end", async || {
        rig.store.acquire(&keyed(key)).await.ok()
    })
    .await;
    assert_eq!(after, Acquisition::IdempotencyExpired);
}

/// Makes an attempt enter the queue and leave: its position is kept.
async fn queue_and_leave(rig: &Rig, left: &Attempt) {
    let _parked = rig.store.park(left);
    rig.store.must_queue(left).await;
    let grace = Some(Duration::from_secs(30));
    rig.store.must_leave(left, grace).await;
}

#[tokio::test]
async fn whoever_collects_a_lease_is_the_first_to_hear_of_it_although_replies_are_lost() {
    let (rig, proxies) = Rig::behind_proxies(3, &patient()).await;
    // From here on every node knows the script that answers a lease again.
    let known = key();
    let first = keyed(known);
    rig.grant(&first).await;
    rig.store.acquire(&keyed(known)).await.unwrap();
    rig.release(&first).await;

    let holder = attempt("lock");
    rig.grant(&holder).await;
    let key = key();
    let left = waiting(keyed(key));
    queue_and_leave(&rig, &left).await;
    rig.release(&holder).await;
    let lease = eventually("its place is granted the lock", async || {
        match rig.store.inspect(&left.name).await.ok()?.holder? {
            Holder::Lease(lease) => Some(lease),
            Holder::Shared(_) | Holder::Foreign { .. } => None,
        }
    })
    .await;

    let ask_and_lose_replies = async || {
        for proxy in &proxies {
            proxy.strike(&left.token.to_string(), Fault::CutReply);
        }
        let answer = rig.store.acquire(&keyed(key)).await.unwrap();
        let strikes = proxies.iter().map(Proxy::strikes);
        (answer, strikes.sum::<usize>())
    };
    let (answer, lost) = ask_and_lose_replies().await;
    assert!(lost > 0, "no reply was lost");
    let Acquisition::Collected(held, salt, _) = answer else {
        panic!("{answer:?}");
    };
    let own = left.idempotency.as_ref().unwrap();
    assert_eq!((held.fence, salt), (lease.fence, own.salt));
    // The next request is not the first to be answered this lease, however often its replies are lost.
    let (answer, lost_then) = ask_and_lose_replies().await;
    assert!(lost_then > lost, "no reply was lost");
    let Acquisition::Replayed(held, ..) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(held.fence, lease.fence);
    rig.release(&left).await;
}

/// A lease that the node took later could arrive after the caller has collected it, and would stay provisional there.
#[tokio::test]
async fn a_node_that_refused_the_lease_of_a_kept_place_does_not_take_it_later() {
    let rig = Rig::start(3).await;
    let holder = attempt("lock");
    rig.grant(&holder).await;
    let left = waiting(keyed(key()));
    queue_and_leave(&rig, &left).await;
    let theirs = ["SET", "lg:{lock}:lock", "theirs"];
    rig.server(2).run(&theirs).await;
    rig.release(&holder).await;
    eventually("its place is granted the lock", async || {
        let inspection = rig.store.inspect(&left.name).await.ok()?;
        matches!(inspection.holder, Some(Holder::Lease(_))).then_some(())
    })
    .await;
    rig.server(2).run(&["DEL", "lg:{lock}:lock"]).await;
    // Longer than the gateway asks a node again to take a lease.
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(rig.holds(&left.name).await, 2);
    rig.release(&left).await;
}

#[tokio::test]
async fn whoever_keeps_it_no_more_ends_nothing_at_the_nodes_that_it_has_not_heard_of() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let (asked, _) = rig.grant_everywhere("lock").await;
    let (first, second) = (RecipientId::of_attempt(&asked.token), RecipientId::random());
    rig.store
        .must_renew_as(Renewer::Adopter(second), &asked)
        .await;
    // The adoption did not reach one node, and another node replies late.
    let forget = ["HDEL", "lg:{lock}:info", "recipient"];
    rig.server(2).run(&forget).await;
    write_down_everything(rig.server(0)).await;
    proxies[1].strike(&asked.token.to_string(), Fault::HoldReply);
    let release = rig
        .store
        .release_as(Releaser::Recipient(first), &asked.name, &asked.token, true)
        .await;
    assert!(!matches!(release, Ok(Release::Released(_))), "{release:?}");
    proxies[1].let_go();
    // Leftovers are swept: here with two commands, which find nothing.
    until_runs(rig.server(0), &asked.token, 3).await;
    rig.store
        .must_renew_as(Renewer::Recipient(second), &asked)
        .await;
    assert_eq!(rig.holds(&asked.name).await, 2);
}

const LOCK: &str = "lg:{lock}:lock";

/// A lease that all nodes have, after another gateway has answered it again at the first two nodes only: the third node
/// was out of its reach. Answers the attempt that was granted the lease, and the attempt that was answered it again.
async fn replayed_at_two_nodes(rig: &Rig) -> (Attempt, Attempt) {
    let (key, first, _) = keyed_everywhere(rig).await;
    let [one, two] = [0, 1].map(|node| rig.server(node).port());
    let lifecycle = Lifecycle::new();
    let other = nodes::open(&nodes::url(&[one, two, free_port()]), &quick(), &lifecycle);
    let second = keyed(key);
    let again = other.acquire(&second).await;
    assert!(matches!(again, Ok(Acquisition::Replayed(..))), "{again:?}");
    (first, second)
}

/// Releases a lease as the attempt that was granted it. The nodes that have answered it again must refuse.
async fn release_refused(rig: &Rig, first: &Attempt, second: &Attempt) {
    let [former, keeps] = [first, second].map(|it| RecipientId::of_attempt(&it.token));
    let releaser = Releaser::Recipient(former);
    let release = rig
        .store
        .release_as(releaser, &first.name, &first.token, true);
    assert_eq!(release.await.unwrap(), Release::Adopted(keeps));
}

async fn release_kept(rig: &Rig, first: &Attempt, second: &Attempt) {
    let releaser = Releaser::Recipient(RecipientId::of_attempt(&second.token));
    let release = rig
        .store
        .release_as(releaser, &first.name, &first.token, true);
    assert!(matches!(release.await, Ok(Release::Released(_))));
}

#[tokio::test]
async fn a_node_that_missed_the_replay_gets_the_lease_back_after_a_release_that_others_refused() {
    let rig = Rig::start(3).await;
    let (first, second) = replayed_at_two_nodes(&rig).await;
    for _ in 0..2 {
        release_refused(&rig, &first, &second).await;
        rig.until_holds(&first.name, 3).await;
    }
    let record = async |node: usize, field| {
        let read = ["HGET", "lg:{lock}:info", field];
        rig.server(node).text(&read).await
    };
    for field in [
        "fence",
        "ttl",
        "owner",
        "metadata",
        "idem",
        "finger",
        "salt",
        "recipient",
    ] {
        assert_eq!(record(2, field).await, record(0, field).await, "{field}");
    }
    // All nodes have one clock here.
    let acquired = async |node| record(node, "acquired").await.parse::<i64>().unwrap();
    assert!((acquired(2).await - acquired(0).await).abs() < 1_000);
    let left = async |node| rig.server(node).integer(&["PTTL", LOCK]).await;
    let others = left(0).await;
    assert!((others - 1_000..=others).contains(&left(2).await));
    // The lease is answered again and kept by all nodes, and ends at all.
    let key = first.idempotency.as_ref().unwrap().hash;
    let third = keyed(key);
    rig.server(0).freeze();
    let again = rig.store.acquire(&third).await;
    assert!(matches!(again, Ok(Acquisition::Replayed(..))), "{again:?}");
    rig.server(0).thaw();
    release_kept(&rig, &first, &third).await;
    rig.nothing_left(&first.name).await;
    let used = rig.store.acquire(&keyed(key)).await;
    assert_eq!(used, Ok(Acquisition::IdempotencyExpired));
}

/// The node where another gateway tries for the lock, which the refused release has woken.
#[tokio::test]
async fn a_node_that_missed_the_replay_gets_the_lease_back_although_another_try_is_there() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let (first, second) = replayed_at_two_nodes(&rig).await;
    proxies[2].strike_later(&first.token.to_string(), Fault::HoldRequest, 1);
    release_refused(&rig, &first, &second).await;
    proxies[2].struck(1).await;
    let theirs = ["SET", LOCK, "theirs"];
    rig.server(2).run(&theirs).await;
    proxies[2].let_go();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.server(2).text(&["GET", LOCK]).await, "theirs");
    rig.server(2).run(&["DEL", LOCK]).await;
    let token = first.token.to_string();
    until("it has the lease", async || {
        rig.server(2).text(&["GET", LOCK]).await == token
    })
    .await;
    // The time until then is not added to the time of the lease.
    let left = async |node| rig.server(node).integer(&["PTTL", LOCK]).await;
    let others = left(0).await;
    assert!(left(2).await <= others);
    release_kept(&rig, &first, &second).await;
    rig.nothing_left(&first.name).await;
}

#[tokio::test]
async fn a_lease_is_not_given_back_to_a_node_after_its_end() {
    for is_broken in [false, true] {
        let (rig, proxies) = Rig::with_proxies(3).await;
        let (first, second) = replayed_at_two_nodes(&rig).await;
        write_down_everything(rig.server(2)).await;
        proxies[2].strike_later(&first.token.to_string(), Fault::HoldRequest, 1);
        release_refused(&rig, &first, &second).await;
        proxies[2].struck(1).await;
        if is_broken {
            rig.store.must_break(&first.name, None).await;
        } else {
            release_kept(&rig, &first, &second).await;
        }
        let before = runs(rig.server(2), &first.token).await;
        proxies[2].let_go();
        until_runs(rig.server(2), &first.token, before + 1).await;
        assert_eq!(rig.holds(&first.name).await, 0);
    }
}
