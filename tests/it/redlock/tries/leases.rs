//! How long a lease of a quorum lives, what a paused client is told, what a list shows, and what many leases leave
//! behind.

use std::{cell::Cell, time::UNIX_EPOCH};

use futures_util::{StreamExt, stream};
use latchgate::{clock::Clock, store::cursor::Cursor};

use crate::redlock::{
    prelude::*,
    votes::{clocks, learning::NODE},
};

#[tokio::test]
async fn what_is_left_of_a_lease_is_less_than_its_ttl_by_the_drift_and_what_it_took() {
    let rig = Rig::start(3).await;
    rig.turn("lock").await;
    let asked = attempt("lock");
    let start = Instant::now();
    let lease = rig.grant(&asked).await;
    let took = start.elapsed();
    // The TTL less 1 % and 2 ms.
    let most = Duration::from_millis(30_000 - 302);
    assert!(lease.expires_in <= most, "{:?}", lease.expires_in);
    assert!(lease.expires_in + took >= most, "{:?}", lease.expires_in);
}

#[tokio::test]
async fn what_the_answers_of_the_second_round_took_is_no_part_of_a_lease() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let asked = attempt("lock");
    for proxy in &proxies {
        // The first request with the token is the reservation.
        proxy.strike_later(&asked.token.to_string(), Fault::HoldReply, 1);
    }
    let late = Duration::from_millis(300);
    let (lease, ()) = tokio::join!(rig.grant(&asked), async {
        // The replies of the second round, which asks no node that was late in the first.
        until("a majority is held", async || {
            let struck = proxies.iter().map(Proxy::strikes).sum::<usize>();
            struck >= 2
        })
        .await;
        sleep(late).await;
        proxies.iter().for_each(Proxy::let_go);
    });
    let most = Duration::from_millis(30_000 - 302);
    assert!(lease.expires_in + late <= most, "{:?}", lease.expires_in);
}

#[tokio::test]
async fn a_client_that_was_paused_finds_its_lease_lost_and_its_fence_passed() {
    let rig = Rig::start(3).await;
    let paused = with(attempt("lock"), |it| it.terms.set_ttl(ttl(200)));
    let lease = rig.grant(&paused).await;
    let next = attempt("lock");
    let fence = eventually("the lease is over", async || {
        match rig.store.acquire(&next).await {
            Ok(Acquisition::Granted(lease)) => Some(lease.fence),
            _ => None,
        }
    })
    .await;
    assert!(fence > lease.fence);
    rig.store.must_lose(&paused, Loss::HeldByAnother).await;
    rig.store
        .must_not_release(&paused, Loss::HeldByAnother)
        .await;
    rig.release(&next).await;
}

#[tokio::test]
async fn a_renewal_when_nothing_is_left_finds_the_lease_over_and_tells_who_was_asked_to_release_it()
{
    let rig = Rig::start(3).await;
    for (was_asked, loss) in [(false, Loss::Free), (true, Loss::Broken { held: false })] {
        let (asked, _) = rig.grant_everywhere("lock").await;
        for server in &rig.nodes.servers {
            // The hold limit is over, but the node still has the key: it keeps a key until its last millisecond has
            // ended.
            let over = ["HSET", "lg:{lock}:info", "hold", "1735689601000"];
            server.run(&over).await;
            if was_asked {
                // The request is remembered for a minute after the time of the holder was over; half of this minute is
                // left.
                let now = SystemClock.wall().duration_since(UNIX_EPOCH).unwrap();
                let counts_until = (now.as_millis() + 30_000).to_string();
                let request = format!("q:{}", asked.token);
                let remembered = ["ZADD", "lg:{lock}:ended", &counts_until, &request];
                server.run(&remembered).await;
            }
        }
        rig.store.must_lose(&asked, loss).await;
        rig.nothing_left(&asked.name).await;
    }
}

#[tokio::test]
async fn a_lease_that_the_nodes_take_longer_to_grant_than_it_would_last_is_not_granted() {
    let rig = Rig::start(3).await;
    rig.turn("lock").await;
    let asked = with(attempt("lock"), |it| it.terms.set_ttl(ttl(100)));
    // The nodes are busy for longer than the lease lives, and then reply.
    let busy = ["DEBUG", "SLEEP", "0.3"];
    let (outcome, ..) = tokio::join!(
        async {
            sleep(Duration::from_millis(50)).await;
            rig.store.acquire(&asked).await
        },
        rig.server(0).run(&busy),
        rig.server(1).run(&busy),
        rig.server(2).run(&busy),
    );
    // The lease comes from another try after that time, or there is none.
    if let Ok(Acquisition::Granted(lease)) = outcome {
        assert!(lease.expires_in > Duration::ZERO);
    }
    rig.nothing_left(&asked.name).await;
}

/// Reads the next page, and adds its names to `seen`. Answers the cursor behind the page.
async fn page(rig: &Rig, cursor: Option<Cursor>, seen: &mut Vec<String>) -> Option<Cursor> {
    let query = ListQuery {
        filter: ListFilter::default(),
        limit: 1,
        cursor,
    };
    let page = rig.store.list(&query).await.unwrap();
    seen.extend(page.locks.iter().map(|lock| lock.name.to_string()));
    page.next
}

#[tokio::test]
async fn a_lease_that_comes_to_a_node_behind_the_walk_is_shown_by_the_next() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    rig.grant_everywhere("first").await;
    let late = attempt("late");
    proxies[0].strike(&late.token.to_string(), Fault::HoldRequest);
    rig.grant(&late).await;
    proxies[0].struck(1).await;
    assert_eq!(rig.holds(&late.name).await, 2);
    // The list goes past the node that does not have the lease yet.
    let mut seen = Vec::new();
    let mut next = page(&rig, None, &mut seen).await;
    while let Some(at_first @ Cursor::Quorum { node: 0, .. }) = next {
        next = page(&rig, Some(at_first), &mut seen).await;
    }
    assert!(!seen.contains(&"late".to_owned()), "{seen:?}");
    proxies[0].let_go();
    rig.until_holds(&late.name, 3).await;
    assert!(next.is_some(), "the walk is over");
    while next.is_some() {
        next = page(&rig, next, &mut seen).await;
    }
    assert!(seen.contains(&"late".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn a_lease_that_is_older_than_the_walk_is_shown_once() {
    let rig = Rig::start(3).await;
    for lock in ["a", "b", "c"] {
        rig.grant_everywhere(lock).await;
    }
    // Leases that are much older than a list takes.
    sleep(Duration::from_secs(2)).await;
    let mut seen = Vec::new();
    let mut next = page(&rig, None, &mut seen).await;
    while next.is_some() {
        next = page(&rig, next, &mut seen).await;
    }
    seen.sort();
    assert_eq!(seen, ["a", "b", "c"]);
}

/// Ten times the time that a node may be behind the others, and less than a lease here lives.
const SOON: Duration = Duration::from_secs(20);
/// More seconds than an end is remembered.
const FORGOTTEN: i64 = 120;

/// The keys at all nodes, without counters and what a node has learned.
async fn others(rig: &Rig) -> Vec<String> {
    let mut others = Vec::new();
    for server in &rig.nodes.servers {
        let keys = server.keys().await;
        let counters = keys.iter().filter(|key| key.ends_with(":fence")).count();
        assert!(counters <= Slot::COUNT, "{counters} counters");
        let is_other = |key: &String| !key.ends_with(":fence") && key != NODE;
        others.extend(keys.into_iter().filter(is_other));
    }
    others
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_many_names_leave_nothing_at_any_node_but_the_counters_of_their_slots_and_what_it_has_learnt()
 {
    let (rig, clocks) = clocks::rig(&[0, 0, 0]).await;
    let names = if full() { 100_000 } else { 5_000 };
    let turn = async |name: usize| {
        let asked = with(attempt(&format!("job:{name}")), |it| {
            it.terms.set_ttl(ttl(60_000));
        });
        rig.grant(&asked).await;
        rig.release(&asked).await;
    };
    stream::iter(0..names).for_each_concurrent(20, turn).await;
    let released = eventually("no lease is left", async || {
        let others = others(&rig).await;
        let ends = others.iter().all(|key| key.ends_with(":ended"));
        ends.then_some(())
    });
    timeout(SOON, released).await.expect("no lease is left");
    let ahead = Cell::new(0);
    eventually(
        "what is remembered of their ends is forgotten",
        async || {
            ahead.set(ahead.get() + FORGOTTEN);
            for clock in &clocks {
                clock.set(ahead.get());
            }
            others(&rig).await.is_empty().then_some(())
        },
    )
    .await;
}
