//! The word that an attempt holds the lock may come after the attempt has found it out by itself.

use bb8_redis::redis;
use latchgate::{
    lock::TokenHash,
    store::{
        Store,
        contract::{Acquisition, Confirmation, Leaving, Release},
        parking::{News, Parked},
    },
};

use super::{
    super::rig::{attempt, eventually, name, runs, write_down_everything},
    gate::{Gate, waiting},
};
use crate::support::RedisServer;

/// An attempt that stands in the queue by the store alone.
async fn stand(gate: &Gate, lock: &str) -> (Parked, TokenHash) {
    let asked = waiting(attempt(lock));
    let parked = gate.store.parking().park(asked.name.clone(), asked.token);
    let queued = gate.store.acquire(&asked).await.unwrap();
    assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
    (parked, asked.token)
}

/// Tells every gateway that an attempt was granted a lock, and waits until the one that had it has
/// looked into the matter.
async fn tell_late(server: &RedisServer, lock: &str, token: &TokenHash) {
    write_down_everything(server).await;
    let channels = server
        .run(&["PUBSUB", "CHANNELS", "lg:gw:????????????????"])
        .await;
    let channels: Vec<String> = redis::from_redis_value(channels).unwrap();
    for channel in channels {
        let message = format!("granted {token} {lock}");
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
    let [here, there] = [Gate::on(&server).await, Gate::on(&server).await];
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
    let gate = Gate::on(&server).await;
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
    let gate = Gate::on(&server).await;
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
async fn a_grant_that_nobody_has_heard_of_is_given_back_on_the_word_of_it() {
    let server = RedisServer::start().await;
    let gate = Gate::on(&server).await;
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
