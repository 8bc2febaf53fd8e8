//! Clients that take a lock in turns, each with a wait and a key for each turn.

use serde_json::json;

use super::client::{Client, Load};
use crate::support::HttpRequest;
use crate::support::prelude::*;

/// How many locks they take.
const LOCKS: usize = 4;
/// How long each of them keeps a lock.
const TURN: Duration = Duration::from_millis(15);

/// Takes turns until it is over.
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
        // Its place was kept while it went to the other gateway, and the lock came to it meanwhile.
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
