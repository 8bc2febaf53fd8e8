//! Clients that hold a lock of their own and renew it by plain requests.

use serde_json::json;
use tokio::time::sleep_until;

use super::client::{Client, Load};
use crate::support::HttpRequest;
use crate::support::prelude::*;

/// Long enough for a machine that does other things as well; a third of it is shorter than a restart.
const TTL: Duration = Duration::from_millis(7_500);

/// Renews at a third of the TTL until it is over, then releases.
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
