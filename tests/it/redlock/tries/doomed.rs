//! What remains of a failed try is no lease, however much it looks like one.

use crate::redlock::prelude::*;

/// A field of the try that has the lock at a node.
async fn field(server: &RedisServer, field: &str) -> String {
    server.text(&["HGET", "lg:{lock}:info", field]).await
}

/// Bytes that only a withdrawal sends here: two of its keys, one behind the other.
const WITHDRAWAL: &str = "lg:{lock}:ended\r\n$16\r\nlg:{lock}:wanted\r\n";

/// Loses the replies of all nodes to the second round, and then every withdrawal. The second round asks a majority,
/// without nodes that were late in the first.
async fn strand(proxies: &[Proxy], asked: &Attempt) {
    let token = asked.token.to_string();
    for proxy in proxies {
        proxy.strike_later(&token, Fault::CutReply, 1);
        // More faults than withdrawals can come before the faults are removed. A held request would hold all requests
        // behind it.
        for _ in 0..2_000 {
            proxy.strike(WITHDRAWAL, Fault::CutRequest);
        }
    }
    all_struck(proxies, 2).await;
}

/// A quorum with a try that a majority has accepted and that cannot be withdrawn before the faults are removed; and the
/// answers to this many acquires of its attempt.
async fn doomed(
    acquires: usize,
) -> (
    Rig,
    Vec<Proxy>,
    Attempt,
    Vec<Result<Acquisition, StoreError>>,
) {
    let (rig, proxies) = Rig::with_proxies(3).await;
    // Longer than the whole test: the end of a lease would allow a grant.
    let asked = with(attempt("lock"), |it| it.terms.set_ttl(ttl(600_000)));
    let acquire = async {
        let mut outcomes = Vec::new();
        for _ in 0..acquires {
            outcomes.push(rig.store.acquire(&asked).await);
        }
        outcomes
    };
    let (outcomes, ()) = tokio::join!(acquire, strand(&proxies, &asked));
    let mut accepted = Vec::new();
    for server in &rig.nodes.servers {
        let fence = field(server, "fence").await;
        accepted.extend((fence.len() > 1).then_some(fence));
    }
    assert!(accepted.len() >= 2, "{accepted:?}");
    accepted.dedup();
    assert_eq!(accepted.len(), 1, "{accepted:?}");
    (rig, proxies, asked, outcomes)
}

#[tokio::test]
async fn what_is_about_to_be_withdrawn_is_answered_to_nobody() {
    let (rig, proxies, asked, outcomes) = doomed(2).await;
    for outcome in &outcomes {
        let granted = matches!(outcome, Ok(Acquisition::Granted(_)));
        assert!(!granted, "{outcome:?}");
    }
    proxies.iter().for_each(Proxy::take_back);
    rig.nothing_left(&asked.name).await;
    rig.turn("lock").await;
}

#[tokio::test]
async fn what_is_about_to_be_withdrawn_is_confirmed_to_nobody() {
    let (rig, proxies, asked, _) = doomed(1).await;
    let confirmed = rig.store.confirm(&asked.name, &asked.token).await;
    let is_confirmed = matches!(confirmed, Ok(Confirmation::Confirmed(_)));
    assert!(!is_confirmed, "{confirmed:?}");
    proxies.iter().for_each(Proxy::take_back);
    // As a gateway does that does not know whether the grant was confirmed.
    let given_back = rig.store.give_back(&asked.name, &asked.token, None).await;
    assert!(given_back.is_ok(), "{given_back:?}");
    rig.nothing_left(&asked.name).await;
    rig.turn("lock").await;
}

/// One node is not asked, because an earlier try of the attempt is being withdrawn there. Then both other nodes must
/// agree.
#[tokio::test]
async fn a_lease_is_confirmed_by_a_slow_node_beside_one_that_is_about_to_forget_a_try() {
    let patient = with(quick(), |it| it.node_timeout_ms = Millis(1_000));
    let (rig, proxies) = Rig::behind_proxies(3, &patient).await;
    let asked = attempt("lock");
    let token = asked.token.to_string();
    for proxy in &proxies[..2] {
        proxy.strike(&token, Fault::CutReply);
    }
    for _ in 0..2_000 {
        proxies[0].strike(WITHDRAWAL, Fault::CutRequest);
    }
    rig.store.until_granted(&asked).await;
    let (earlier, granted) = (rig.server(0), rig.server(1));
    assert_ne!(field(earlier, "nonce").await, field(granted, "nonce").await);
    proxies[2].strike(&token, Fault::HoldReply);
    let mut confirming = Box::pin(rig.store.confirm(&asked.name, &asked.token));
    // Longer than the gateway waits for a node that cannot change the outcome.
    let early = timeout(Duration::from_millis(300), &mut confirming).await;
    assert!(early.is_err(), "{early:?} by one node");
    proxies[2].let_go();
    let confirmed = confirming.await;
    let is_confirmed = matches!(confirmed, Ok(Confirmation::Confirmed(_)));
    assert!(is_confirmed, "{confirmed:?}");
    proxies[0].take_back();
    rig.release_everywhere(&asked).await;
}

#[tokio::test]
async fn a_lease_that_was_granted_is_answered_again_and_not_made_longer() {
    let rig = Rig::start(3).await;
    let (asked, lease) = rig.grant_everywhere("lock").await;
    let again = rig.grant(&asked).await;
    assert_eq!(again.fence, lease.fence);
    assert!(again.expires_in <= lease.expires_in);
}

#[tokio::test]
async fn a_minority_that_has_accepted_it_makes_no_lease_of_what_others_have_reserved() {
    let rig = Rig::start(3).await;
    let (asked, _) = rig.grant_everywhere("lock").await;
    for node in [1, 2] {
        let forget = ["HSET", "lg:{lock}:info", "fence", "1"];
        rig.server(node).run(&forget).await;
    }
    rig.store.must_refuse(&asked).await;
}

#[tokio::test]
async fn a_renewal_tells_the_fence_that_was_granted_whatever_another_try_has_left() {
    let rig = Rig::start(3).await;
    let (asked, lease) = rig.grant_everywhere("lock").await;
    let higher = (lease.fence.get() + 1_000).to_string();
    let left = ["HSET", "lg:{lock}:info", "fence", &higher];
    rig.server(1).run(&left).await;
    rig.keeps(&asked, &lease).await;
}

#[tokio::test]
async fn a_node_that_was_counted_by_a_renewal_is_not_withdrawn_by_an_earlier_try() {
    let rig = Rig::start(3).await;
    let (asked, _) = rig.grant_everywhere("lock").await;
    let nonce = field(rig.server(0), "nonce").await;
    let token = asked.token.to_string();
    let script = composed("withdraw");
    let withdraw = async || {
        let keys = ["lock", "info", "ended", "wanted"].map(|key| format!("lg:{{lock}}:{key}"));
        let mut command = vec!["EVAL", &script, "4"];
        command.extend(keys.iter().map(String::as_str));
        command.extend([&token, &nonce, "60000", "0"]);
        rig.server(0).run(&command).await;
        rig.holds(&asked.name).await
    };
    // A pause, so that the time left shows a renewal.
    sleep(Duration::from_millis(10)).await;
    rig.store.must_renew(&asked, None).await;
    assert_eq!(withdraw().await, 3);
    // A lease that was not renewed is withdrawn.
    rig.release_everywhere(&asked).await;
}

#[tokio::test]
async fn a_node_that_answers_late_accepts_the_fence_all_the_same() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let lease = eventually("the third has accepted it too", async || {
        let asked = attempt("lock");
        // Longer than the gateway waits for this node when the others have replied.
        proxies[2].strike(&asked.token.to_string(), Fault::HoldReply);
        let lease = rig.grant(&asked).await;
        proxies[2].let_go();
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            if field(rig.server(2), "fence").await == lease.fence.to_string() {
                return Some(lease);
            }
            sleep(Duration::from_millis(5)).await;
        }
        // On a busy machine the other nodes may have replied before this request was sent.
        rig.release(&asked).await;
        None
    })
    .await;
    let counter = rig.server(2).text(&["GET", &fence_key("lock")]).await;
    assert_eq!(counter, lease.fence.to_string());
}
