//! How long a gateway that is told to stop may still be needed by holders.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::scripted_store::*;
use crate::{
    lock::Token,
    store::contract::{Loss, Renewal, RenewalTtl},
};

const TTL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_granted_lease_may_be_renewed_or_released_until_it_is_over() {
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    assert_eq!(engine.leases_needed_until(), None);
    let granted = engine.acquire(request(None)).await.unwrap();
    granted.delivery.delivered();
    assert_eq!(engine.leases_needed_until(), Some(Instant::now() + TTL));
    sleep(TTL / 2).await;
    let (name, token) = (granted.lease.name, granted.lease.token);
    let renewed = engine.renew(name, token, RenewalTtl::default());
    renewed.await.unwrap();
    assert_eq!(engine.leases_needed_until(), Some(Instant::now() + TTL));
    sleep(TTL).await;
    assert_eq!(engine.leases_needed_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_known_to_be_over_is_not_waited_for() {
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let granted = engine.acquire(request(None)).await.unwrap();
    granted.delivery.delivered();
    // Releasing an unknown token does not end the known lease.
    let other = engine.release(name(), Token::random().hash(), None);
    other.await.unwrap_err();
    assert!(engine.leases_needed_until().is_some());
    let (name, token) = (granted.lease.name, granted.lease.token);
    // The store says that the lease is lost, which counts as released.
    engine.release(name, token.hash(), None).await.unwrap_err();
    assert_eq!(engine.leases_needed_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_granted_elsewhere_counts_once_it_is_renewed_here() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let renew = || engine.renew(name(), token.clone(), RenewalTtl::default());
    renew().await.unwrap();
    assert_eq!(engine.leases_needed_until(), Some(Instant::now() + TTL));
    let lost = Ok(Renewal::Lost(Loss::Free));
    store.renewals.lock().push_back(lost);
    renew().await.unwrap_err();
    assert_eq!(engine.leases_needed_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_has_heard_of_is_not_waited_for() {
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let granted = engine.acquire(request(KEY)).await.unwrap();
    assert!(engine.leases_needed_until().is_some());
    drop(granted);
    assert_eq!(engine.leases_needed_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_hold_counts_for_as_long_as_its_gateway_renews_it() {
    let (_, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let mut hold = engine.hold(request(None)).await.unwrap();
    next_grant(&mut hold).await;
    assert_is(&hold.next().await, "Some(Renewed(");
    assert_eq!(engine.leases_needed_until(), Some(Instant::now() + TTL));
    drop(hold);
    settle().await;
    assert_eq!(engine.leases_needed_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_hold_whose_holder_was_sent_elsewhere_is_waited_for_no_longer_than_it_takes_to_say_so() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, lifecycle) = engine(&store);
    let mut hold = engine.hold(request(None)).await.unwrap();
    next_grant(&mut hold).await;
    lifecycle.drain();
    assert_is(&end_of(&mut hold).await.0, "Draining {");
    settle().await;
    let until = Instant::now() + Duration::from_secs(2);
    assert_eq!(engine.leases_needed_until(), Some(until));
    sleep_until(until).await;
    assert_eq!(engine.leases_needed_until(), None);
}
