//! Places that are kept for those who have gone, among the limits of a key.

use std::time::Duration;

use http::Method;
use latchgate::store::contract::Holder;

use super::{
    key::Key,
    scripted::{held, held_by},
    service::Service,
};

#[tokio::test(start_paused = true)]
async fn a_place_that_is_kept_for_somebody_who_has_gone_counts_for_the_grace() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_waiters = 1"));
    let ask = async |idempotency_key: &str| {
        let headers = [
            ("authorization", key.header.as_str()),
            ("content-type", "application/json"),
            ("idempotency-key", idempotency_key),
        ];
        let body = r#"{"wait_ms": 1000}"#;
        let answer = service.ask(Method::POST, "/locks/a", &headers, body).await;
        answer.status
    };
    let [mine, another] = ["mine-0123456789abcdefghij", "another-0123456789abcdefg"];
    service.script.acquires(held_by(Holder::Lease(held())));
    assert_eq!(ask(mine).await, 423);
    assert_eq!(ask(another).await, 429);
    // Whoever comes back for it takes it over.
    service.script.acquires(held_by(Holder::Lease(held())));
    assert_eq!(ask(mine).await, 423);
    assert_eq!(ask(another).await, 429);
    // Who has the lock waits no more.
    assert_eq!(ask(mine).await, 201);
    service.script.acquires(held_by(Holder::Lease(held())));
    assert_eq!(ask(another).await, 423);
    assert_eq!(ask(mine).await, 429);
    tokio::time::advance(Duration::from_millis(5_001)).await;
    assert_eq!(ask(mine).await, 201, "the place is kept no longer");
}
