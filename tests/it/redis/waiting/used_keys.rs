//! What is under an idempotency key while its attempt waits, when it is granted the lock, and when it is gone.

use bb8_redis::redis::from_redis_value;
use latchgate::store::{
    Store,
    contract::{Acquisition, Attempt, Confirmation, Leaving, Renewal, TOMBSTONE},
    parking::{News, Parked},
};

use super::{
    super::{
        leases::keyed,
        rig::{attempt, eventually, granted, ttl},
    },
    gate::{GRACE, TestGateway, waiting},
};
use crate::support::RedisServer;

/// Two gateways on a server.
struct Pair {
    server: RedisServer,
    here: TestGateway,
    there: TestGateway,
}

/// One who waits at the other gateway under an idempotency key, for a lock that is held at this one.
struct Keyed {
    holder: Attempt,
    asked: Attempt,
    parked: Parked,
    /// Where its idempotency key is.
    key: String,
}

/// How far the remaining times of two keys may be off that were set by one script.
const MARGIN: i64 = 200;

// === impl Pair ===

impl Pair {
    async fn start() -> Self {
        let server = RedisServer::start().await;
        let here = TestGateway::on(&server).await;
        let there = TestGateway::on(&server).await;
        Self {
            server,
            here,
            there,
        }
    }

    /// Lets one wait at a gateway with a TTL.
    async fn queue(&self, gate: &TestGateway, lock: &str, ttl_ms: u64) -> Keyed {
        let holder = attempt(lock);
        granted(self.here.store.acquire(&holder).await);
        let asked = Attempt {
            ttl: ttl(ttl_ms),
            ..waiting(keyed(lock, "k"))
        };
        let parked = gate.store.parking().park(asked.name.clone(), asked.token);
        let queued = gate.store.acquire(&asked).await;
        assert!(matches!(queued, Ok(Acquisition::Queued(_))), "{queued:?}");
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

    /// The same at the other gateway.
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
        let released = self.here.store.release(&holder.name, &holder.token).await;
        released.unwrap();
    }

    /// What is under the key.
    async fn under(&self, waits: &Keyed) -> String {
        self.server.text(&["GET", &waits.key]).await
    }

    async fn is_unused(&self, waits: &Keyed) {
        assert_eq!(self.under(waits).await, "");
    }

    /// The key leads to the lease, and does so for longer than that lasts, for as long as an end is remembered.
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
    // Nobody has heard of it yet.
    let place = format!("q2{}", waits.asked.token);
    assert_eq!(pair.under(&waits).await, place);
    let (name, token) = (&waits.asked.name, &waits.asked.token);
    let confirmed = pair.there.store.confirm(name, token).await;
    assert!(
        matches!(confirmed, Ok(Confirmation::Confirmed(_))),
        "{confirmed:?}"
    );
    pair.is_used_beyond_the_lease(&waits).await;
    // As long as it is renewed the key stays.
    let renewed = pair
        .there
        .store
        .renew(name, token, Some(ttl(3_600_000)))
        .await;
    assert!(matches!(renewed, Ok(Renewal::Renewed(..))), "{renewed:?}");
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
    let (name, token) = (&waits.asked.name, &waits.asked.token);
    let confirmed = pair.there.store.confirm(name, token).await;
    assert!(
        matches!(confirmed, Ok(Confirmation::Confirmed(_))),
        "{confirmed:?}"
    );
    eventually("the lease runs out", async || {
        pair.here.look("over").await.holder.is_none().then_some(())
    })
    .await;
    let again = Attempt {
        ttl: ttl(300),
        ..keyed("over", "k")
    };
    let used = pair.here.store.acquire(&again).await;
    assert_eq!(used, Ok(Acquisition::IdempotencyExpired));
}

#[tokio::test]
async fn who_leaves_the_queue_leaves_nothing_under_its_key() {
    let pair = Pair::start().await;
    let waits = pair.queue_there("leaves", 30_000).await;
    let (name, token) = (&waits.asked.name, &waits.asked.token);
    let left = pair.there.store.leave(name, token, None).await;
    assert!(matches!(left, Ok(Leaving::Left(_))), "{left:?}");
    pair.is_unused(&waits).await;
}

#[tokio::test]
async fn a_kept_place_that_lapses_leaves_nothing_under_its_key() {
    let pair = Pair::start().await;
    let waits = pair.queue_there("lapses", 30_000).await;
    let (name, token) = (&waits.asked.name, &waits.asked.token);
    let left = pair.there.store.leave(name, token, Some(GRACE)).await;
    assert!(matches!(left, Ok(Leaving::Left(_))), "{left:?}");
    // What is kept is kept no longer than its place and a minute.
    let left = pair.server.integer(&["PTTL", &waits.key]).await;
    let kept = i64::try_from((GRACE + TOMBSTONE).as_millis()).unwrap();
    assert!((1..=kept).contains(&left), "{left}");
    eventually("the place lapses", async || {
        let places = pair.server.integer(&["LLEN", "lg:{lapses}:wait"]).await;
        (places == 0).then_some(())
    })
    .await;
    pair.is_unused(&waits).await;
}

#[tokio::test]
async fn a_ticket_of_a_dead_gateway_that_is_passed_over_leaves_nothing_under_its_key() {
    let pair = Pair::start().await;
    let waits = pair.queue_there("dead", 30_000).await;
    pair.there.kill().await;
    for key in pair.server.keys().await {
        if key.contains(":gw:") {
            pair.server.run(&["DEL", &key]).await;
        }
    }
    pair.release(&waits.holder).await;
    assert_eq!(pair.server.text(&["GET", "lg:{dead}:lock"]).await, "");
    pair.is_unused(&waits).await;
    // Whoever asks again is granted it.
    granted(pair.here.store.acquire(&keyed("dead", "k")).await);
}
