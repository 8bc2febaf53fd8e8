//! What every answer and event says is left of a lease of which the store was asked a while ago: the gateway stood
//! still before it passed the answer on.

use std::time::Duration;

use http::Method;
use latchgate::{
    lock::{HeldLease, Ttl},
    store::contract::{Acquisition, Holder, Renewal},
};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    listener::Listener,
    scripted::{held, held_by, shown},
    service::{JSON, Service, TOKEN, WITH_TOKEN, until},
};

/// How long ago the store was asked.
const AGO: Duration = Duration::from_secs(10);

/// A lease of 30 s, as the store told it then.
fn from_before() -> HeldLease {
    HeldLease {
        as_of: Instant::now().checked_sub(AGO).unwrap(),
        ..held()
    }
}

/// Two thirds at most, whatever else the machine does, and certainly a part of it.
#[track_caller]
fn is_told_now(told: &Value) {
    let left = told["expires_in_ms"].as_u64();
    assert!(
        left.is_some_and(|left| (1..=20_000).contains(&left)),
        "{told}"
    );
}

#[tokio::test]
async fn a_grant_and_a_renewal_are_answered_as_they_are_then() {
    let service = Service::start();
    service.script.acquires(Acquisition::Granted(from_before()));
    let answer = service.ask(Method::POST, "/locks/a", JSON, "").await;
    assert_eq!(answer.status, 201);
    let lease = answer.json();
    is_told_now(&lease);
    let renew_after = lease["renew_after_ms"].as_u64().unwrap();
    assert_eq!(renew_after, lease["expires_in_ms"].as_u64().unwrap() / 3);
    let renewed = Ok(Renewal::Renewed(from_before(), Duration::ZERO));
    service.script.renew.lock().unwrap().push_back(renewed);
    let path = "/locks/a/renew";
    let answer = service.ask(Method::PUT, path, WITH_TOKEN, "").await;
    assert_eq!(answer.status, 200);
    is_told_now(&answer.json());
}

#[tokio::test]
async fn a_holder_is_shown_as_it_is_then() {
    let service = Service::start();
    let holder = || Holder::Lease(from_before());
    service.script.acquires(held_by(holder()));
    let answer = service.ask(Method::POST, "/locks/a", JSON, "").await;
    assert_eq!(answer.status, 423);
    is_told_now(&answer.json()["holders"][0]);
    let inspection = Ok(shown(holder()));
    service.script.inspect.lock().unwrap().push_back(inspection);
    let answer = service.ask(Method::GET, "/locks/a", &[], "").await;
    is_told_now(&answer.json()["holders"][0]);
}

#[tokio::test]
async fn a_stream_tells_its_events_as_they_are_then() {
    let service = Service::start();
    // The adoption is a renewal, too.
    let short = HeldLease {
        ttl: Ttl::from_millis(300).unwrap(),
        ..from_before()
    };
    let renewals = (0..2).map(|_| Ok(Renewal::Renewed(short.clone(), Duration::ZERO)));
    service.script.renew.lock().unwrap().extend(renewals);
    let header = format!("Lock-Token: {TOKEN}\r\n");
    let mut listener = Listener::hold(service.connect().await, &header, "").await;
    is_told_now(&listener.expect("granted").await);
    is_told_now(&listener.expect("renewed").await);
}

#[tokio::test]
async fn a_grant_of_which_nothing_is_left_is_not_answered() {
    let service = Service::start();
    let over = HeldLease {
        expires_in: AGO,
        ..from_before()
    };
    service.script.acquires(Acquisition::Granted(over));
    let answer = service.ask(Method::POST, "/locks/a", JSON, "").await;
    assert_eq!(answer.problem(), (504, "outcome-unknown".to_owned()));
    until("it is given back", || service.script.given_back() == 1).await;
}
