//! Waiters with an idempotency key keep their position between their requests; and the stored value of the key
//! meanwhile.

use latchgate::store::contract::TOMBSTONE;

use super::gate::keyed_request;
use crate::redis::prelude::*;

fn brief(wait_ms: u64, request: AcquireRequest) -> AcquireRequest {
    with(request, |it| it.wait = Duration::from_millis(wait_ms))
}

#[tokio::test]
async fn what_somebody_came_back_for_is_released_although_no_answer_arrived() {
    let server = RedisServer::start().await;
    let here = TestGateway::on(&server).await;
    let proxy = Proxy::start(server.port(), &here.lifecycle).await;
    let there = TestGateway::at(&proxy.url());
    // From here on the gateway grants locks.
    there.take("warm").await;
    let mut asked = brief(50, keyed_request("lost", "k"));
    // The TTL is longer than the test waits.
    asked.terms.set_ttl(ttl(600_000));
    let lease = here.take("lost").await;
    here.ask(asked.clone()).refusal().await;
    here.release(&lease).await;
    // The reply to the first copy does not reach the gateway, and the reply to the second copy does not reach the
    // caller.
    proxy.strike("lg:{lost}:lock", Fault::CutReply);
    let again = there.engine.acquire(asked).await;
    assert_eq!(proxy.strikes(), 1);
    drop(again.expect("it is answered the lease"));
    here.until_free("lost").await;
}

#[tokio::test]
async fn a_place_that_a_dead_gateway_kept_is_shown_no_longer_than_the_grace() {
    let (server, [here, there], _lease) = two_gateways_holding("shown").await;
    let brief = brief(50, keyed_request("shown", "k"));
    there.ask(brief).refusal().await;
    there.kill().await;
    let _behind = here.queue(request("shown")).await;
    let shown = here.look("shown").await;
    assert_eq!((shown.queue.len(), shown.waiters), (2, 2));
    here.until_queued("shown", 1).await;
    assert_eq!(here.look("shown").await.queue.len(), 1);
    let standing = server.integer(&["LLEN", "lg:{shown}:wait"]).await;
    assert_eq!(standing, 2, "nobody has taken it out");
}

#[tokio::test]
async fn an_attempt_whose_place_was_taken_over_does_not_come_back_for_it() {
    let (_server, [here, there], lease) = two_gateways_holding("back").await;
    let older = waiting(keyed("back", "k"));
    let newer = waiting(keyed("back", "k"));
    let mut told = here.stand(&older).await;
    let mut stands = there.stand(&newer).await;
    assert_eq!(told.news().await, News::Replaced);
    // The gateway of the older attempt asks again, because the message was lost or the queue seemed to be.
    drop(told);
    let _place = here.park(&older);
    here.must_answer(&older, Acquisition::Replaced).await;
    here.must_be_replaced(&older, Some(GRACE)).await;
    here.release(&lease).await;
    assert_eq!(stands.news().await, News::GrantedProvisionally);
}

#[tokio::test]
async fn a_grant_that_comes_while_its_attempt_leaves_has_its_full_ttl() {
    let (server, [here, there], lease) = two_gateways_holding("leaves").await;
    let asked = waiting(attempt("leaves"));
    let _place = there.stand(&asked).await;
    here.release(&lease).await;
    let lease = there.must_leave_granted(&asked).await;
    assert!(lease.expires_in > Duration::from_secs(29));
    let left = server.integer(&["PTTL", "lg:{leaves}:lock"]).await;
    assert!(left > 29_000, "{left}");
}

#[tokio::test]
async fn who_leaves_a_lock_that_is_free_gets_it_in_the_last_moment() {
    let (server, gate, _) = gateway_holding("last").await;
    let asked = waiting(keyed("last", "k"));
    let _place = gate.stand(&asked).await;
    server.run(&["DEL", "lg:{last}:lock"]).await;
    let left = gate.leave(&asked.name, &asked.token, Some(GRACE));
    let left = left.await.unwrap();
    assert!(matches!(left, Leaving::Granted(_)), "{left:?}");
}

/// An attempt with a key that was granted the lock through another gateway without hearing of it. The grant has ended,
/// another caller holds the lock, and a newer request with the key is in the queue.
async fn one_that_was_overtaken(
    gates: &[TestGateway; 2],
    server: &RedisServer,
    lock: &str,
) -> Attempt {
    let lease = gates[0].take(lock).await;
    let older = waiting(keyed(lock, "k"));
    gates[1].acquire(&older).await.unwrap();
    gates[0].release(&lease).await;
    let key = format!("lg:{{{lock}}}:lock");
    server.run(&["SET", &key, "theirs"]).await;
    older
}

/// A newer request enters the queue, the older attempt does something, and a third request with the key takes over the
/// position of the newer one.
async fn none_stands_beside(gate: &TestGateway, lock: &str, ends: impl Future<Output = ()>) {
    let newer = waiting(keyed(lock, "k"));
    gate.must_queue(&newer).await;
    ends.await;
    let newest = waiting(keyed(lock, "k"));
    gate.must_queue(&newest).await;
    assert_eq!(gate.look(lock).await.waiters, 1);
}

#[tokio::test]
async fn an_older_attempt_that_leaves_late_does_not_free_the_key_of_a_newer_one() {
    let (server, gates) = two_gateways().await;
    for keep in [None, Some(GRACE)] {
        let lock = if keep.is_some() { "keeps" } else { "leaves" };
        let older = one_that_was_overtaken(&gates, &server, lock).await;
        none_stands_beside(&gates[0], lock, async {
            let left = gates[1].leave(&older.name, &older.token, keep).await;
            let expected = matches!(left, Ok(Leaving::Left(_) | Leaving::Replaced));
            assert!(expected, "{left:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn an_older_attempt_that_is_given_back_late_does_not_free_the_key_of_a_newer_one() {
    let (server, gates) = two_gateways().await;
    let older = one_that_was_overtaken(&gates, &server, "gives").await;
    none_stands_beside(&gates[0], "gives", async {
        let back = gates[1].give_back(&older.name, &older.token, None).await;
        back.unwrap();
    })
    .await;
}

/// Whether the server has run the script that gives up the position of an attempt: the only script with one key that
/// gets the id.
async fn has_lapsed(server: &RedisServer, id: &str) -> bool {
    let [one, id] = ["1", id].map(|word| Value::BulkString(word.into()));
    // A logged command has the words EVALSHA, hash, number of keys, and so on.
    let lapses = |words: &Vec<Value>| words.get(2) == Some(&one) && words.contains(&id);
    written_down(server).await.iter().any(lapses)
}

#[tokio::test]
async fn a_kept_place_that_lapses_late_does_not_free_the_key_of_a_newer_one() {
    let (server, gate) = gateway().await;
    write_down_everything(&server).await;
    let lease = gate.take("lapses").await;
    let brief = brief(50, keyed_request("lapses", "k"));
    gate.ask(brief).refusal().await;
    let older = server.text(&["LINDEX", "lg:{lapses}:wait", "0"]).await;
    gate.release(&lease).await;
    // The undelivered grant has ended, and a foreign lock holds the lock.
    server.run(&["SET", "lg:{lapses}:lock", "theirs"]).await;
    let newer = gate.queue(keyed_request("lapses", "k")).await;
    let is_so = async || has_lapsed(&server, &older).await;
    until("the older place lapses", is_so).await;
    let newest = gate.ask(keyed_request("lapses", "k"));
    let told = newer.refusal().await;
    assert!(matches!(told, AcquireError::Replaced), "{told:?}");
    assert_eq!(gate.look("lapses").await.waiters, 1);
    drop(newest);
}

#[tokio::test]
async fn a_ticket_whose_key_leads_elsewhere_is_granted_nothing() {
    let (server, gate, lease) = gateway_holding("elsewhere").await;
    let older = gate.queue(keyed_request("elsewhere", "k")).await;
    let behind = gate.queue(request("elsewhere")).await;
    let keys = server.keys().await;
    let key = keys.iter().find(|key| key.contains(":key:")).unwrap();
    let newer = format!("q2{}", "0".repeat(64));
    server.run(&["SET", key, &newer, "PX", "60000"]).await;
    gate.release(&lease).await;
    gate.release(&behind.lease().await).await;
    let told = older.refusal().await;
    assert!(matches!(told, AcquireError::Replaced), "{told:?}");
    assert_eq!(server.text(&["GET", key]).await, newer);
}

#[tokio::test]
async fn an_older_attempt_that_asks_again_late_does_not_take_the_lease_of_a_newer_one() {
    let (server, gates, lease) = two_gateways_holding("late").await;
    let older = waiting(keyed("late", "k"));
    // The attempt is parked, but cannot confirm its grant.
    let _place = gates[1].stand(&older).await;
    gates[0].release(&lease).await;
    server.run(&["DEL", "lg:{late}:lock"]).await;
    let newer = waiting(keyed("late", "k"));
    gates[0].must_grant(&newer).await;
    let late = gates[1].acquire(&older).await.unwrap();
    assert!(matches!(late, Acquisition::Replaced), "{late:?}");
}

/// A waiter that has not confirmed its grant in time asks again, after a newer waiter has come.
#[tokio::test]
async fn a_waiter_that_lost_its_grant_does_not_take_out_a_newer_one() {
    for key in [None, Some("k")] {
        let (server, gates, lease) = two_gateways_holding("again").await;
        let superseding = || {
            let plain = key.map_or_else(|| attempt("again"), |key| keyed("again", key));
            with(waiting(plain), |it| {
                let hash = SupersedeHash::from_bytes([7; 16]);
                it.wait.as_mut().unwrap().supersedes = Some(hash.into());
            })
        };
        let older = superseding();
        // The attempt is parked, but cannot confirm its grant.
        let _place = gates[1].stand(&older).await;
        gates[0].release(&lease).await;
        server
            .run(&["SET", "lg:{again}:lock", "of another program"])
            .await;
        let newer = with(superseding(), |it| it.idempotency = None);
        gates[0].must_queue(&newer).await;
        for _ in 0..2 {
            gates[1].must_answer(&older, Acquisition::NewerWaiter).await;
        }
        assert_eq!(server.integer(&["LLEN", "lg:{again}:wait"]).await, 1);
    }
}

/// Two gateways on a server.
struct Pair {
    server: RedisServer,
    here: TestGateway,
    there: TestGateway,
}

/// A waiter with an idempotency key at the other gateway, for a lock that is held at this gateway.
struct Keyed {
    holder: Attempt,
    asked: Attempt,
    parked: Parked,
    /// The Redis key of its idempotency key.
    key: String,
}

/// How much the remaining times of two keys that one script has set may differ, in ms.
const MARGIN: i64 = 200;

// === impl Pair ===

impl Pair {
    async fn start() -> Self {
        let (server, [here, there]) = two_gateways().await;
        Self {
            server,
            here,
            there,
        }
    }

    /// Makes an attempt with a TTL wait at a gateway.
    async fn queue(&self, gate: &TestGateway, lock: &str, ttl_ms: u64) -> Keyed {
        let holder = self.here.must_hold(attempt(lock)).await;
        let asked = with(waiting(keyed(lock, "k")), |it| {
            it.terms.set_ttl(ttl(ttl_ms));
        });
        let parked = gate.stand(&asked).await;
        let key = self.key_of(lock).await;
        let waits = Keyed {
            holder,
            asked,
            parked,
            key,
        };
        assert_eq!(self.under(&waits).await, format!("q2{}", waits.asked.token));
        waits
    }

    /// Makes an attempt with a TTL wait at the other gateway.
    async fn queue_there(&self, lock: &str, ttl_ms: u64) -> Keyed {
        self.queue(&self.there, lock, ttl_ms).await
    }

    /// The only idempotency key of a lock.
    async fn key_of(&self, lock: &str) -> String {
        let prefix = format!("lg:{{{lock}}}:key:");
        let mut keys = self.server.keys().await;
        keys.retain(|key| key.starts_with(&prefix));
        assert_eq!(keys.len(), 1, "{keys:?}");
        keys.remove(0)
    }

    async fn release(&self, holder: &Attempt) {
        self.here.must_release(holder).await;
    }

    /// The value of the waiter's idempotency key.
    async fn under(&self, waits: &Keyed) -> String {
        self.server.text(&["GET", &waits.key]).await
    }

    async fn is_unused(&self, waits: &Keyed) {
        assert_eq!(self.under(waits).await, "");
    }

    /// Asserts that the idempotency key points to the lease, and that it outlives the lease by the time for which an
    /// end is remembered.
    async fn is_used_beyond_the_lease(&self, waits: &Keyed) {
        assert_eq!(self.under(waits).await, format!("l2{}", waits.asked.token));
        let lock = format!("lg:{{{}}}:lock", waits.asked.name.as_str());
        let both = "return {redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2])}";
        let both = ["EVAL", both, "2", &lock, &waits.key];
        let [lock, key]: [i64; 2] = from_redis_value(self.server.run(&both).await).unwrap();
        let longer = key - lock - i64::try_from(TOMBSTONE.as_millis()).unwrap();
        assert!(lock > 0 && longer.abs() <= MARGIN, "{lock}, {key}");
    }
}

#[tokio::test]
async fn a_grant_that_another_gateway_confirms_uses_the_key_for_a_minute_beyond_the_lease() {
    let pair = Pair::start().await;
    let mut waits = pair.queue_there("confirms", 600_000).await;
    pair.release(&waits.holder).await;
    assert_eq!(waits.parked.news().await, News::GrantedProvisionally);
    // No caller has heard of the grant yet.
    let place = format!("q2{}", waits.asked.token);
    assert_eq!(pair.under(&waits).await, place);
    pair.there.must_confirm(&waits.asked).await;
    pair.is_used_beyond_the_lease(&waits).await;
    // The key stays for as long as the lease is renewed.
    let hour = Some(ttl(3_600_000));
    pair.there.must_renew(&waits.asked, hour).await;
    pair.is_used_beyond_the_lease(&waits).await;
}

#[tokio::test]
async fn a_grant_at_the_own_gateway_uses_the_key_for_a_minute_beyond_the_lease() {
    let pair = Pair::start().await;
    let mut waits = pair.queue(&pair.here, "own", 600_000).await;
    pair.release(&waits.holder).await;
    let news = waits.parked.news().await;
    assert!(matches!(news, News::Granted(_)), "{news:?}");
    pair.is_used_beyond_the_lease(&waits).await;
}

#[tokio::test]
async fn the_key_of_a_confirmed_lease_that_has_run_out_is_used() {
    let pair = Pair::start().await;
    let mut waits = pair.queue_there("over", 300).await;
    pair.release(&waits.holder).await;
    assert_eq!(waits.parked.news().await, News::GrantedProvisionally);
    pair.there.must_confirm(&waits.asked).await;
    pair.here.until_free("over").await;
    let again = with(keyed("over", "k"), |it| it.terms.set_ttl(ttl(300)));
    pair.here.must_expire(&again).await;
}

#[tokio::test]
async fn who_leaves_the_queue_leaves_nothing_under_its_key() {
    let pair = Pair::start().await;
    let waits = pair.queue_there("leaves", 30_000).await;
    pair.there.must_leave(&waits.asked, None).await;
    pair.is_unused(&waits).await;
}

#[tokio::test]
async fn a_kept_place_that_lapses_leaves_nothing_under_its_key() {
    let pair = Pair::start().await;
    let waits = pair.queue_there("lapses", 30_000).await;
    pair.there.must_leave(&waits.asked, Some(GRACE)).await;
    // The key is kept no longer than the position and a minute.
    let left = pair.server.integer(&["PTTL", &waits.key]).await;
    let kept = i64::try_from((GRACE + TOMBSTONE).as_millis()).unwrap();
    assert!((1..=kept).contains(&left), "{left}");
    until_integer(&pair.server, &["LLEN", "lg:{lapses}:wait"], 0).await;
    pair.is_unused(&waits).await;
}

#[tokio::test]
async fn a_ticket_of_a_dead_gateway_that_is_passed_over_leaves_nothing_under_its_key() {
    let pair = Pair::start().await;
    let waits = pair.queue_there("dead", 30_000).await;
    pair.there.kill().await;
    forget_gateways(&pair.server).await;
    pair.release(&waits.holder).await;
    assert_eq!(pair.server.text(&["GET", "lg:{dead}:lock"]).await, "");
    pair.is_unused(&waits).await;
    // A new request with the key is granted the lock.
    granted(pair.here.acquire(&keyed("dead", "k")).await);
}
