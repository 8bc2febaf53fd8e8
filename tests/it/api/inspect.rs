//! `GET /locks/{name}`.

use std::time::Duration;

use latchgate::{
    lock::{ForeignMark, Owner},
    store::contract::{Holder, Inspection},
};
use serde_json::Value;

use super::{
    scripted::{free, held, shown},
    service::Service,
};

async fn inspect(inspection: Inspection) -> Value {
    let service = Service::start();
    service
        .script
        .inspect
        .lock()
        .unwrap()
        .push_back(Ok(inspection));
    let answer = service.get("/locks/a").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[tokio::test]
async fn a_free_lock_has_no_holder() {
    insta::assert_json_snapshot!(inspect(free()).await, @r#"
    {
      "holder_count": 0,
      "holders": [],
      "name": "a",
      "state": "free",
      "waiter_count": 0,
      "waiters": []
    }
    "#);
}

#[tokio::test]
async fn a_held_lock_shows_its_holder_and_never_a_token() {
    let mut lease = held();
    lease.held_for = Duration::from_secs(9);
    lease.expires_in = Duration::from_secs(21);
    lease.hold_expires_in = Some(Duration::from_secs(51));
    lease.owner = Some(Owner::new("ci-runner-7").unwrap());
    let body = inspect(shown(Holder::Lease(lease))).await;
    insta::assert_json_snapshot!(body, @r#"
    {
      "holder_count": 1,
      "holders": [
        {
          "acquired_at": "2026-11-20T11:59:51.000Z",
          "expires_at": "2026-11-20T12:00:21.000Z",
          "expires_in_ms": 21000,
          "fencing_token": 42,
          "foreign": false,
          "foreign_mark": null,
          "group": null,
          "hold_expires_in_ms": 51000,
          "metadata": {},
          "mode": "exclusive",
          "owner": "ci-runner-7",
          "slot": null,
          "ttl_ms": 30000
        }
      ],
      "name": "a",
      "state": "held",
      "waiter_count": 0,
      "waiters": []
    }
    "#);
}

#[tokio::test]
async fn a_foreign_holder_shows_as_what_it_is() {
    let with_expiry = shown(Holder::Foreign {
        expires_in: Some(Duration::from_millis(1_500)),
        mark: ForeignMark::new("0123456789abcdef0123456789abcdef01234567").ok(),
    });
    insta::assert_json_snapshot!(inspect(with_expiry).await["holders"][0], @r#"
    {
      "acquired_at": null,
      "expires_at": "2026-11-20T12:00:01.500Z",
      "expires_in_ms": 1500,
      "fencing_token": null,
      "foreign": true,
      "foreign_mark": "0123456789abcdef0123456789abcdef01234567",
      "group": null,
      "hold_expires_in_ms": null,
      "metadata": {},
      "mode": null,
      "owner": null,
      "slot": null,
      "ttl_ms": null
    }
    "#);
    let without = inspect(shown(Holder::Foreign {
        expires_in: None,
        mark: None,
    }))
    .await;
    assert_eq!(without["holders"][0]["foreign_mark"], Value::Null);
    assert_eq!(without["holders"][0]["expires_in_ms"], Value::Null);
    assert_eq!(without["holders"][0]["expires_at"], Value::Null);
    assert_eq!(without["state"], "held");
}
