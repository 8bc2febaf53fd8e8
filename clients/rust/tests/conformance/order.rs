//! C38 and C39: work that has an order.

use std::collections::BTreeMap;

use latchgate_client::{
    AcquireMode, AcquireRequest, ClientError, GroupLocks, LockName, OrderNumber, Problem, Reason,
    SupersedeKey,
};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::rig::{LONG, Rig, acquire, keep, millis, result, seconds, wait};

fn number(order: u64) -> OrderNumber {
    OrderNumber::new(order).unwrap()
}

fn ordered(order: u64) -> AcquireRequest {
    AcquireRequest {
        order: Some(number(order)),
        ..AcquireRequest::default()
    }
}

fn waiting(order: u64) -> AcquireRequest {
    AcquireRequest {
        order: Some(number(order)),
        ..wait(LONG)
    }
}

fn outdated<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> Problem {
    match outcome {
        Err(ClientError::Outdated(problem)) => *problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn c38_a_lock_is_granted_for_no_older_work() {
    let rig = Rig::start();
    let client = rig.client_with(|options| {
        options.owner = latchgate_client::Owner::new("run").ok();
    });
    let first = client.acquire(&rig.name, &ordered(5)).await.unwrap();
    client.release_lease(&first).await.unwrap();
    rig.forget_log().await;
    rig.fault("lose-reply", 1, json!({ "method": "POST" }))
        .await;
    let begun = Instant::now();
    let problem = outdated(client.acquire(&rig.name, &waiting(4)).await);
    assert!(begun.elapsed() < seconds(5));
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (409, "outdated-order")
    );
    assert_eq!((problem.order, problem.granted_order), (Some(4), Some(5)));
    let grant = problem.order_granted.unwrap();
    assert_eq!(grant.owner.as_deref(), Some("run"));
    assert_eq!(rig.log("POST").await.len(), 2);
    let equal = client.acquire(&rig.name, &ordered(5)).await.unwrap();

    let seventh = acquire(&client, &rig.name, waiting(7));
    rig.until_waiters(1).await;
    #[expect(clippy::disallowed_methods, reason = "the test waits for the task")]
    let sixth = {
        let (client, name) = (client.clone(), rig.name.clone());
        tokio::spawn(async move { client.acquire(&name, &waiting(6)).await })
    };
    rig.until_waiters(2).await;
    client.release_lease(&equal).await.unwrap();
    let (lease, _) = result(seventh).await;
    client.release_lease(&lease).await.unwrap();
    outdated(timeout(seconds(1), sixth).await.unwrap().unwrap());
    assert!(rig.is_free().await);

    let back = AcquireRequest {
        rollback: Some(Reason::new("the new one fails").unwrap()),
        ..ordered(4)
    };
    let kept = keep(&client, &rig.name, back).await;
    let lock = rig.look().await;
    assert_eq!(
        (lock.granted_order, lock.holders[0].order),
        (Some(7), Some(4))
    );
    let why = Some("the new one fails");
    assert_eq!(lock.holders[0].rollback.as_deref(), why);
    let reason = Reason::new("the test").unwrap();
    let target = Some(kept.lease.fence.into());
    client.break_lock(&rig.name, &reason, target).await.unwrap();
    let last = client.history(&rig.name).await.unwrap().entries.remove(0);
    assert_eq!((last.order, last.rollback.as_deref()), (Some(4), why));
    client
        .set_order(&rig.name, None, Some(number(7)), &reason)
        .await
        .unwrap();
    assert_eq!(rig.look().await.granted_order, None);

    let names = ["a", "b", "c"].map(|end| LockName::new(&format!("{}-{end}", rig.name)).unwrap());
    let shared = AcquireMode::Shared { limit: None };
    let modes = [AcquireMode::Exclusive, AcquireMode::Exclusive, shared];
    let modes: BTreeMap<_, _> = names.iter().cloned().zip(modes).collect();
    let group = GroupLocks::from(modes).with_order(&names[1], number(3));
    let lease = client
        .acquire_all(group.clone(), &ordered(9))
        .await
        .unwrap();
    client.release_lease(&lease).await.unwrap();
    let mut granted = Vec::new();
    for name in &names {
        granted.push(client.inspect(name).await.unwrap().granted_order);
    }
    assert_eq!(granted, [Some(9), Some(3), None]);
    outdated(client.acquire_all(group, &ordered(8)).await);
    client.acquire(&names[1], &ordered(3)).await.unwrap();
}

#[tokio::test]
async fn c39_a_wait_in_pieces_says_how_long_it_has_taken() {
    let rig = Rig::start();
    rig.restart("a", &json!({ "LATCHGATE_LIMITS_MAX_WAIT_MS": "1000" }))
        .await;
    let (client, at_b) = (rig.client(), rig.at_b());
    at_b.acquire(&rig.name, &AcquireRequest::default())
        .await
        .unwrap();
    let latest = AcquireRequest {
        supersedes: Some(SupersedeKey::new("deploy").unwrap()),
        ..wait(seconds(3))
    };
    let held = client.acquire(&rig.name, &latest).await;
    assert!(matches!(held, Err(ClientError::WaitOver(_))), "{held:?}");
    let log = rig.log("POST").await;
    let (first, more) = log.split_first().unwrap();
    assert!(
        first.body["waiting_since_ms"].is_null() && more.len() >= 3,
        "{log:?}"
    );
    for asked in more {
        let passed = asked.at_ms - first.at_ms;
        let told = asked.body["waiting_since_ms"].as_u64().unwrap();
        assert!(
            told + 300 >= passed && told <= passed + 1_000,
            "{told} after {passed}"
        );
    }
    assert!(more.last().unwrap().body["waiting_since_ms"].as_u64() >= Some(2_000));
    rig.forget_log().await;
    client
        .acquire(&rig.name, &wait(seconds(2)))
        .await
        .unwrap_err();
    let log = rig.log("POST").await;
    assert!(log.len() >= 2 && log.iter().all(|it| it.body["waiting_since_ms"].is_null()));
    rig.forget_log().await;
    let busy =
        json!({ "method": "POST", "status": 429, "code": "too-many-orders", "retry_after": 1 });
    rig.fault("status", 1, busy).await;
    let other = LockName::new(&format!("{}-o", rig.name)).unwrap();
    client.acquire(&other, &ordered(1)).await.unwrap();
    let log = rig.log("POST").await;
    let pause = log[1].at_ms - log[0].answered_at_ms.unwrap();
    assert!(millis(pause) >= seconds(1) && log.len() == 2, "{log:?}");
}
