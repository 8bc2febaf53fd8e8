//! Orders: what the client sends, and what it makes of the answers.

use std::{collections::BTreeMap, time::Duration};

use latchgate::{
    client::{AcquireMode, AcquireRequest, ClientError, GroupLocks},
    lock::{GroupNames, LockName, OrderNumber, Reason, SupersedeKey},
};
use serde_json::{Value, json};

use super::answers::{client, lease, name};
use crate::support::fake_gateway::{FakeGateway, Reply};

const GRANT: &str = r#"{"at":"2026-11-28T09:00:00.000Z","by":"ci","owner":"run 41902"}"#;

fn order(number: u64) -> OrderNumber {
    OrderNumber::new(number).unwrap()
}

fn bodies(gateway: &FakeGateway) -> Vec<Value> {
    let received = gateway.received().into_iter();
    received
        .map(|it| serde_json::from_str(&it.body).unwrap())
        .collect()
}

#[tokio::test]
async fn an_outdated_acquire_says_which_order_was_granted_to_whom() {
    for (more, text) in [
        (
            format!(r#","granted_order":41902,"order_granted":{GRANT}"#),
            "outdated: 41902 was granted at 2026-11-28T09:00:00.000Z to run 41902, API key ci",
        ),
        // An API key that may not view the lock is not told of the grant.
        (
            r#","granted_order":41902"#.to_owned(),
            "outdated: the lock remembers the order 41902",
        ),
        (String::new(), "outdated: A title (outdated-order, 409)"),
    ] {
        let more = format!(r#","order":41873{more}"#);
        let gateway = FakeGateway::new([Reply::problem(409, "outdated-order", &more)]);
        let request = AcquireRequest {
            wait: AcquireRequest::FOR_EVER,
            order: Some(order(41_873)),
            ..AcquireRequest::default()
        };
        let error = client(&gateway).acquire(&name(), &request).await;
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), text);
        assert!(matches!(&error, ClientError::Outdated(it) if it.order == Some(41_873)));
        assert_eq!(gateway.received().len(), 1);
    }
}

#[tokio::test]
async fn a_lock_of_a_group_has_an_order_of_its_own() {
    let names = ["a", "b", "c"].map(|it| LockName::new(it).unwrap());
    let group = GroupNames::new(names.clone()).unwrap();
    let shared = AcquireMode::Shared { limit: None };
    let modes = [AcquireMode::Exclusive, AcquireMode::Exclusive, shared];
    let modes: BTreeMap<_, _> = names.iter().cloned().zip(modes).collect();
    let unknown = LockName::new("z").unwrap();
    for (locks, sent) in [
        (GroupLocks::from(&group), json!(["a", "b", "c"])),
        (
            GroupLocks::from(&group).with_order(&unknown, order(3)),
            json!(["a", "b", "c"]),
        ),
        (
            GroupLocks::from(&group).with_order(&names[1], order(3)),
            json!(["a", {"name": "b", "order": 3}, "c"]),
        ),
        (
            GroupLocks::from(modes).with_order(&names[0], order(0)),
            json!([
                {"name": "a", "mode": "exclusive", "order": 0},
                {"name": "b", "mode": "exclusive"},
                {"name": "c", "mode": "shared"},
            ]),
        ),
    ] {
        let gateway = FakeGateway::new([Reply::problem(403, "forbidden", "")]);
        let request = AcquireRequest {
            order: Some(order(9)),
            ..AcquireRequest::default()
        };
        let outcome = client(&gateway).acquire_all(locks, &request).await;
        outcome.unwrap_err();
        let body = bodies(&gateway).remove(0);
        assert_eq!((&body["names"], &body["order"]), (&sent, &json!(9)));
    }
}

#[tokio::test]
async fn only_further_requests_of_a_wait_that_supersedes_say_how_long_it_has_taken() {
    let busy = || Reply::problem(503, "draining", r#","retry_after_ms":300"#);
    for supersedes in [SupersedeKey::new("deploy").ok(), None] {
        let gateway = FakeGateway::new([busy(), Reply::Lost, lease()]);
        let supersedes_any = supersedes.is_some();
        let request = AcquireRequest {
            wait: Duration::from_mins(1),
            supersedes,
            ..AcquireRequest::default()
        };
        let client = client(&gateway);
        let mut acquiring = client.acquiring(name(), request);
        // The time before the first request does not count.
        tokio::time::sleep(Duration::from_millis(200)).await;
        acquiring.finish().await.unwrap();
        let sent = bodies(&gateway);
        let told: Vec<_> = sent
            .iter()
            .map(|it| it["waiting_since_ms"].as_u64())
            .collect();
        if supersedes_any {
            assert_eq!(told[0], None);
            assert!(Some(300) <= told[1] && told[1] <= told[2], "{told:?}");
        } else {
            assert_eq!(told, [None, None, None]);
        }
    }
}

#[tokio::test]
async fn a_lock_shows_the_order_that_it_remembers() {
    let lock = format!(
        r#"{{"state":"held","holders":[{{"order":41800,"rollback":"bad"}}],"granted_order":41902,"order_granted":{GRANT}}}"#
    );
    let gateway = FakeGateway::new([Reply::Answer(200, lock)]);
    let lock = client(&gateway).inspect(&name()).await.unwrap();
    assert_eq!(lock.granted_order, Some(41_902));
    let grant = lock.order_granted.unwrap();
    assert_eq!(
        (grant.by.as_deref(), grant.owner.as_deref()),
        (Some("ci"), Some("run 41902"))
    );
    let holder = &lock.holders[0];
    assert_eq!(
        (holder.order, holder.rollback.as_deref()),
        (Some(41_800), Some("bad"))
    );
}

#[tokio::test]
async fn an_order_is_set_where_the_lock_remembers_the_expected_one() {
    let changed = || Reply::problem(409, "order-changed", r#","granted_order":7"#);
    let set = || Reply::Answer(200, r#"{"name":"deploy","granted_order":5}"#.to_owned());
    let other = Reply::Answer(200, r#"{"name":"x","granted_order":5}"#.to_owned());
    for (replies, expected) in [
        (vec![set()], "set"),
        (vec![Reply::Lost, set()], "set"),
        (vec![changed()], "refused"),
        // An earlier copy may have set the order before it was changed again.
        (vec![Reply::Lost, changed()], "unknown"),
        (vec![other], "unknown"),
    ] {
        let gateway = FakeGateway::new(replies.clone());
        let reason = Reason::new("milliseconds").unwrap();
        let client = client(&gateway);
        let (name, seen) = (name(), Some(order(6)));
        let outcome = client.set_order(&name, Some(order(5)), seen, &reason).await;
        let outcome = match outcome {
            Ok(()) => "set",
            Err(ClientError::Refused(_)) => "refused",
            Err(ClientError::OutcomeUnknown { .. }) => "unknown",
            Err(error) => panic!("{error}"),
        };
        assert_eq!(outcome, expected, "{replies:?}");
        assert_eq!(gateway.received().len(), replies.len());
        let body = json!({"order": 5, "if_order": 6, "reason": "milliseconds"});
        assert_eq!(bodies(&gateway)[0], body);
        let line = &gateway.received()[0].line;
        assert_eq!(line, "PUT /locks/deploy/granted-order HTTP/1.1");
    }
}
