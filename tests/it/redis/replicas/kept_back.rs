//! Grants that are held until replicas have acknowledged them: the time left that callers are told, servers without
//! free memory, and addresses that lead to another server.

use super::replicated::{Pair, assert_not_replicated, too_few, waits};
use crate::redis::prelude::*;

/// How much longer than its deadline a request may take on a busy machine.
const BUSY: Duration = Duration::from_secs(4);

/// The TTL that a lock has left, in ms.
async fn left(pair: &Pair, lock: &str) -> i64 {
    let key = format!("lg:{{{lock}}}:lock");
    pair.master.integer(&["PTTL", &key]).await
}

fn deadline(config: &RedisConfig) -> Duration {
    Duration::from_millis(config.deadline_ms.0)
}

#[tokio::test]
async fn a_lease_is_told_with_what_is_left_of_it_when_the_replica_has_it() {
    let (pair, store) = Pair::with_store().await;
    pair.replica.freeze();
    let asked = attempt("a");
    let (acquired, ()) = tokio::join!(store.acquire(&asked), async {
        until("a second of it is over", async || {
            let left = left(&pair, "a").await;
            left > 0 && left < 29_000
        })
        .await;
        pair.replica.thaw();
    });
    let lease = granted(acquired);
    let expected = lease.expires_in < Duration::from_millis(29_500);
    assert!(expected, "{lease:?}");
    assert!(lease.held_for > Duration::from_millis(500), "{lease:?}");
}

#[tokio::test]
async fn a_lease_that_is_over_when_the_replica_has_it_is_not_answered() {
    let (pair, store) = Pair::with_store().await;
    pair.replica.freeze();
    let asked = with(attempt("a"), |it| it.terms.set_ttl(ttl(1_000)));
    let (acquired, ()) = tokio::join!(store.acquire(&asked), async {
        for (what, over) in [("it is granted", false), ("it is over", true)] {
            eventually(what, async || {
                ((left(&pair, "a").await < 0) == over).then_some(())
            })
            .await;
        }
        // The time left of the lease counts from when the gateway heard of the grant.
        sleep(Duration::from_secs(1)).await;
        pair.replica.thaw();
    });
    let ran_out = StoreError::Unavailable(Unavailability::RanOut);
    assert_eq!(acquired.err(), Some(ran_out));
    pair.together().await;
    granted(store.acquire(&attempt("a")).await);
}

#[tokio::test]
async fn a_lock_is_handed_on_although_the_server_has_no_memory_left() {
    let pair = Pair::start().await;
    let gate = TestGateway::with(&pair.master.url(), &waits());
    let first = gate.take("a").await;
    let next = gate.queue(request("a")).await;
    pair.master.set("maxmemory", "1").await;
    let refused = gate.acquire(&attempt("b")).await.err();
    let no_memory = StoreError::Unavailable(Unavailability::OutOfMemory);
    assert_eq!(refused, Some(no_memory), "the fault happened");
    let lease = gate.pass(&first, next).await;
    assert_holds(&pair.replica, "a", &lease.token.hash(), "").await;
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_marker_is_sent_it_again() {
    let (pair, store) = Pair::with_store().await;
    pair.master.run(&["SCRIPT", "FLUSH"]).await;
    granted(store.acquire(&attempt("a")).await);
}

#[tokio::test]
async fn where_the_name_of_the_server_leads_to_another_one_its_replicas_stand_for_none_of_the_first()
 {
    let [one, other] = [Pair::start().await, Pair::start().await];
    let (proxy, store) = behind_proxy(&one.master, &waits()).await;
    granted(store.acquire(&attempt("first")).await);
    // From here on, the replica gets nothing that the first server grants.
    one.replica.freeze();
    proxy.lead_to(other.master.port());
    one.hang_up_on_markers().await;
    eventually("locks are granted again", async || {
        let asked = attempt(&token().to_string());
        match store.acquire(&asked).await {
            Ok(Acquisition::Granted(_)) => {
                assert_holds(&other.replica, asked.name.as_str(), &asked.token, "").await;
                Some(())
            }
            Err(error) => {
                too_few(Some(error));
                None
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    one.replica.thaw();
}

/// How many attempts ask at once while no connection can be opened: each tries for as long as connecting may take,
/// without success.
const CONVOY: usize = 20;

/// The answers to all attempts, each of which must come by its deadline.
async fn convoy(store: &RedisStore) -> Vec<Result<Acquisition, StoreError>> {
    let asked: Vec<_> = (0..CONVOY).map(|n| attempt(&format!("lock-{n}"))).collect();
    let start = Instant::now();
    let all = join_all(asked.iter().map(|asked| store.acquire(asked))).await;
    let took = start.elapsed();
    assert!(took < deadline(&waits()) + BUSY, "{took:?}");
    all
}

#[tokio::test]
async fn nobody_waits_for_the_others_who_cannot_open_a_line_either() {
    let (pair, store) = Pair::with_store().await;
    pair.hang_up_on_markers().await;
    pair.master.freeze();
    for acquired in convoy(&store).await {
        assert!(acquired.is_err(), "{acquired:?}");
    }
    pair.master.thaw();
}

#[tokio::test]
async fn all_who_wait_for_an_answer_that_does_not_come_are_told_so_by_their_deadline() {
    let pair = Pair::start().await;
    let (proxy, store) = behind_proxy(&pair.master, &waits()).await;
    granted(store.acquire(&attempt("first")).await);
    proxy.strike("marker", Fault::HoldReply);
    for acquired in convoy(&store).await {
        assert_eq!(too_few(acquired.err()), None);
    }
    proxy.let_go();
    // The gateway gives up a connection that has been silent for too long.
    until_answered(&store, "a").await;
}

#[tokio::test]
async fn all_that_is_done_for_a_request_has_one_deadline() {
    let pair = Pair::start().await;
    let config = with(waits(), |it| it.wait_timeout_ms = Millis(5_000));
    let (_proxy, store) = behind_proxy(&pair.master, &config).await;
    let first = store.must_hold(attempt("first")).await;
    store
        .give_back(&first.name, &first.token, None)
        .await
        .unwrap();
    pair.replica.freeze();
    let asked = attempt("a");
    let start = Instant::now();
    let (acquired, ()) = tokio::join!(store.acquire(&asked), async {
        until("it is granted", async || left(&pair, "a").await > 0).await;
        // The grant is not confirmed, and the reply to its release is not received either.
        pair.master.freeze();
    });
    assert!(
        start.elapsed() < deadline(&config) + BUSY,
        "{:?}",
        start.elapsed()
    );
    assert_not_replicated(acquired);
    pair.master.thaw();
    pair.replica.thaw();
}
