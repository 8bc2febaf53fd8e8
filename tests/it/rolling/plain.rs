//! Clients without streams: they acquire locks in turns, each turn with a wait and an idempotency key, or renew their
//! own lease.

use serde_json::json;
use tokio::time::sleep_until;

use super::client::{Client, Load};
use crate::support::HttpRequest;
use crate::support::prelude::*;

/// How many locks the clients take turns for.
const LOCKS: usize = 4;
/// How long a turn keeps its lock.
const TURN: Duration = Duration::from_millis(15);
/// The TTL, long enough for a machine that does other work. A third of it is shorter than a restart.
const TTL: Duration = Duration::from_millis(7_500);

/// Takes turns until the test is over.
pub(super) async fn take_turns(load: Arc<Load>, number: usize) {
    let mut client = Client::new(&load, "acquirer", number);
    let lock = format!("turns:{}", number / 2 % LOCKS);
    let path = format!("/locks/{lock}");
    let mut served = Instant::now();
    while !load.is_over() {
        let key = IdempotencyKey::random();
        let wanted = json!({"wait_ms": 20_000, "ttl_ms": 20_000, "owner": client.name});
        let wanted = HttpRequest::new("POST", path.clone())
            .with("Idempotency-Key", key.expose())
            .body(wanted);
        let (status, lease) = client.ask(&wanted).await;
        // The position was kept while the client changed the gateway, and the lock was granted to it meanwhile.
        let came_to_its_place = status == 200 && client.sent() > 1;
        assert!(
            status == 201 || came_to_its_place,
            "{}: {lease}",
            client.name
        );
        if came_to_its_place {
            load.tally.count("grants to a place that was kept");
        }
        load.tally.count("grants to acquirers");
        load.tally
            .took("an acquirer between two grants", served.elapsed());
        served = Instant::now();

        let fence = lease["fencing_token"].as_u64().unwrap();
        load.rooms.enter(&lock, &client.name, fence);
        sleep(TURN).await;
        load.rooms.leave(&lock, &client.name);

        let release = HttpRequest::new("DELETE", path.clone());
        let release = release.with("Lock-Token", lease["token"].as_str().unwrap());
        let (status, problem) = client.ask(&release).await;
        assert_eq!(status, 204, "{}: {problem}", client.name);
    }
}

/// Renews a lease at a third of its TTL until the test is over, and releases it.
pub(super) async fn renew(load: Arc<Load>, number: usize) {
    let mut client = Client::new(&load, "renewer", number);
    let lock = format!("renewed:{number}");
    let path = format!("/locks/{lock}");
    let ttl = json!({"ttl_ms": u64::try_from(TTL.as_millis()).unwrap()});
    let (status, lease) = client
        .ask(&HttpRequest::new("POST", path.clone()).body(ttl))
        .await;
    assert_eq!(status, 201, "{}: {lease}", client.name);
    let fence = lease["fencing_token"].as_u64().unwrap();
    load.rooms.enter(&lock, &client.name, fence);
    let token = lease["token"].as_str().unwrap();
    let renewal = HttpRequest::new("PUT", format!("{path}/renew")).with("Lock-Token", token);
    let mut due = Instant::now() + TTL / 3;
    while !load.is_over() {
        sleep_until(due).await;
        let asked = Instant::now();
        let (status, renewed) = client.ask(&renewal).await;
        assert_eq!(status, 200, "{}: {renewed}", client.name);
        assert_eq!(renewed["fencing_token"], fence, "{}", client.name);
        load.tally.count("renewals");
        load.tally
            .took("a renewal with its retries", asked.elapsed());
        due = asked + TTL / 3;
    }
    load.rooms.leave(&lock, &client.name);
    let release = HttpRequest::new("DELETE", path).with("Lock-Token", token);
    let (status, problem) = client.ask(&release).await;
    assert_eq!(status, 204, "{}: {problem}", client.name);
}
