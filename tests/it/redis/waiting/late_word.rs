//! The word that an attempt holds the lock may come after the attempt has found it out by itself.

use bb8_redis::redis;
use latchgate::{
    lifecycle::Lifecycle,
    lock::TokenHash,
    store::{
        Store,
        contract::{Acquisition, Confirmation, Leaving, Release},
        parking::{News, Parked},
    },
};

use super::{
    super::rig::{attempt, eventually, name, runs, ttl, write_down_everything},
    gate::{TestGateway, waiting},
};
use crate::support::{Fault, Proxy, RedisServer};

/// An attempt that stands in the queue by the store alone.
async fn stand(gate: &TestGateway, lock: &str) -> (Parked, TokenHash) {
    let asked = waiting(attempt(lock));
    let parked = gate.store.parking().park(asked.name.clone(), asked.token);
    let queued = gate.store.acquire(&asked).await.unwrap();
    assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
    (parked, asked.token)
}

/// Tells every gateway that an attempt was granted the lease that it has, and waits until the one that had it
/// has looked into the matter.
async fn tell_late(server: &RedisServer, lock: &str, token: &TokenHash) {
    let fence = ["GETRANGE", &format!("lg:{{{lock}}}:lock"), "70", "85"];
    let fence = server.text(&fence).await.parse().unwrap();
    tell_late_of(server, lock, token, fence).await;
}

/// The same of a grant with this fence.
async fn tell_late_of(server: &RedisServer, lock: &str, token: &TokenHash, fence: u64) {
    write_down_everything(server).await;
    let channels = server
        .run(&["PUBSUB", "CHANNELS", "lg:gw:????????????????"])
        .await;
    let channels: Vec<String> = redis::from_redis_value(channels).unwrap();
    for channel in channels {
        let message = format!("granted {token} {lock} {fence}");
        server.run(&["PUBLISH", &channel, &message]).await;
    }
    eventually("it is looked into", async || {
        (runs(server, token).await > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn late_word_of_a_grant_that_was_confirmed_does_not_end_it() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let lease = there.take("confirmed").await;
    let (mut parked, token) = stand(&here, "confirmed").await;
    there.release(&lease).await;
    assert_eq!(parked.news().await, News::GrantedProvisionally);
    let confirmed = here.store.confirm(&name("confirmed"), &token).await;
    assert!(matches!(confirmed, Ok(Confirmation::Confirmed(_))));
    drop(parked);
    tell_late(&server, "confirmed", &token).await;
    let released = here.store.release(&name("confirmed"), &token).await;
    assert_eq!(released.unwrap(), Release::Released);
}

#[tokio::test]
async fn late_word_of_a_grant_that_was_found_on_leaving_does_not_end_it() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("left").await;
    let (parked, token) = stand(&gate, "left").await;
    gate.release(&lease).await;
    let left = gate.store.leave(&name("left"), &token, None).await;
    assert!(matches!(left, Ok(Leaving::Granted(_))), "{left:?}");
    drop(parked);
    tell_late(&server, "left", &token).await;
    let released = gate.store.release(&name("left"), &token).await;
    assert_eq!(released.unwrap(), Release::Released);
}

#[tokio::test]
async fn late_word_of_a_grant_that_was_answered_again_does_not_end_it() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("again").await;
    let asked = waiting(attempt("again"));
    let parked = gate.store.parking().park(asked.name.clone(), asked.token);
    gate.store.acquire(&asked).await.unwrap();
    gate.release(&lease).await;
    let again = gate.store.acquire(&asked).await.unwrap();
    assert!(matches!(again, Acquisition::Granted(_)), "{again:?}");
    drop(parked);
    tell_late(&server, "again", &asked.token).await;
    let released = gate.store.release(&asked.name, &asked.token).await;
    assert_eq!(released.unwrap(), Release::Released);
}

#[tokio::test]
async fn late_word_of_a_grant_that_was_lost_does_not_end_the_next_one_of_its_attempt() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("anew").await;
    let (mut parked, token) = stand(&gate, "anew").await;
    // It was granted the lock before, through another gateway, and lost it unconfirmed.
    let earlier = lease.held.fence.get() + 1;
    gate.release(&lease).await;
    let news = parked.news().await;
    let News::Granted(held) = news else {
        panic!("not granted: {news:?}");
    };
    assert!(held.fence.get() > earlier);
    // It is answered, and its word comes by the reply to the release alone.
    drop(parked);
    tell_late_of(&server, "anew", &token, earlier).await;
    let key = "lg:{anew}:lock";
    assert_eq!(
        server.text(&["GETRANGE", key, "1", "64"]).await,
        token.to_string()
    );
    // Word of the grant that it has is as good as none if nobody was there to hear it.
    tell_late_of(&server, "anew", &token, held.fence.get()).await;
    eventually("it is free", async || {
        server.text(&["GET", key]).await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn late_word_does_not_take_the_place_of_an_attempt_that_has_asked_again() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    gate.take("asked").await;
    let (parked, token) = stand(&gate, "asked").await;
    // In the instant between two places.
    drop(parked);
    tell_late_of(&server, "asked", &token, 1).await;
    assert_eq!(gate.look("asked").await.waiters, 1);
}

#[tokio::test]
async fn a_grant_that_nobody_has_heard_of_is_given_back_on_the_word_of_it() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("nobody").await;
    let (parked, token) = stand(&gate, "nobody").await;
    gate.release(&lease).await;
    drop(parked);
    tell_late(&server, "nobody", &token).await;
    eventually("it is free", async || {
        gate.look("nobody").await.holder.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_grant_that_nobody_has_heard_of_is_given_back_however_long_that_takes() {
    // More than are sent until a deadline has passed.
    const LOST: usize = 40;
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port(), &Lifecycle::new()).await;
    let gate = TestGateway::at(&proxy.url());
    let lease = gate.take("away").await;
    let mut asked = waiting(attempt("away"));
    // Longer than the test waits for it.
    asked.ttl = ttl(600_000);
    let queued = gate.store.acquire(&asked).await.unwrap();
    assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
    for _ in 0..LOST {
        proxy.strike(&asked.token.to_string(), Fault::CutRequest);
    }
    gate.release(&lease).await;
    eventually("it is free", async || {
        let held = server.text(&["GET", "lg:{away}:lock"]).await;
        held.is_empty().then_some(())
    })
    .await;
    assert_eq!(proxy.strikes(), LOST);
}

#[tokio::test]
async fn a_grant_whose_hold_limit_is_this_instant_is_over() {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    for confirms in [true, false] {
        let lease = gate.take("limit").await;
        let (_parked, token) = stand(&gate, "limit").await;
        gate.release(&lease).await;
        // Redis keeps a key for as long as its last millisecond lasts.
        let limit = ["SETRANGE", "lg:{limit}:lock", "126", "000000001"];
        server.run(&limit).await;
        let since = ["SETRANGE", "lg:{limit}:lock", "86", "1735689600000000"];
        server.run(&since).await;
        let over = if confirms {
            let confirmed = gate.store.confirm(&lease.name, &token).await.unwrap();
            matches!(confirmed, Confirmation::Lost)
        } else {
            let left = gate.store.leave(&lease.name, &token, None).await.unwrap();
            matches!(left, Leaving::Left(_))
        };
        assert!(over, "confirms: {confirms}");
        assert!(gate.look("limit").await.holder.is_none());
    }
}
