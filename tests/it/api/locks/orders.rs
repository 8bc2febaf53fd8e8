//! Orders: the fields of a request, the permission, the refusal, and the change of the order that a lock remembers.

use latchgate::{
    lock::{Order, OrderNumber, Reason},
    store::contract::{GrantedOrder, OrderChange, OrderGrant, OrderSetting},
};

use crate::api::prelude::*;

fn number(number: u64) -> OrderNumber {
    OrderNumber::new(number).unwrap()
}

fn order(asked: u64, by: Option<&str>, rollback: Option<&str>) -> Order {
    Order {
        number: number(asked),
        by: by.map(Into::into),
        rollback: rollback.map(|why| Reason::new(why).unwrap()),
    }
}

/// What a lock remembers of a grant two seconds ago.
fn granted() -> GrantedOrder {
    GrantedOrder {
        number: number(41_902),
        grant: Some(Box::new(OrderGrant {
            ago: Duration::from_secs(2),
            by: Some("ci".into()),
            owner: Owner::new("run 41902").ok(),
        })),
    }
}

#[tokio::test]
async fn an_order_reaches_the_store_and_is_shown() {
    let service = Service::start();
    let granted = service.acquire(r#"{"order":41873}"#).await.is(201);
    assert_eq!(granted["order"], 41_873);
    assert_eq!(granted["rollback"], json!(null));
    let said = service.script.attempt().terms.said;
    assert_eq!(said.order.as_deref(), Some(&order(41_873, None, None)));
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ops", "acquire = ['*']\norder = ['a']"));
    let headers = [key.auth(), JSON[0]];
    let body = r#"{"order":0,"rollback":"41902 is broken"}"#;
    let granted = service.ask("POST /locks/a", &headers, body).await.is(201);
    let shown = (&granted["order"], &granted["rollback"]);
    assert_eq!(shown, (&json!(0), &json!("41902 is broken")));
    let said = service.script.attempt().terms.said;
    let expected = order(0, Some("ops"), Some("41902 is broken"));
    assert_eq!(said.order.as_deref(), Some(&expected));
    // Without the permission on this name.
    let refused = service.ask("POST /locks/b", &headers, body).await;
    assert_eq!(refused.problem(), (403, "forbidden"));
    service
        .ask("POST /locks/b", &headers, r#"{"order":7}"#)
        .await
        .is(201);
}

#[tokio::test]
async fn a_lower_order_is_refused_and_the_grant_is_shown_to_those_who_may_view_the_lock() {
    for (lines, sees) in [("view = ['*']", true), ("", false)] {
        let key = Key::new();
        let lines = format!("acquire = ['*']\norder = ['*']\n{lines}");
        let service = Service::with_keys(&key.entry("ops", &lines));
        let headers = [key.auth(), JSON[0]];
        let outdated = || Acquisition::OutdatedOrder(granted());
        service.script.acquire.ok(outdated());
        let refused = service
            .ask("POST /locks/a", &headers, r#"{"order":41873}"#)
            .await;
        assert_eq!(refused.problem(), (409, "outdated-order"));
        assert_eq!(
            (&refused["order"], &refused["granted_order"]),
            (&json!(41_873), &json!(41_902))
        );
        let detail = refused["detail"].as_str().unwrap();
        assert_eq!(
            detail.ends_with("to run 41902, API key ci."),
            sees,
            "{detail}"
        );
        let grant = &refused["order_granted"];
        let expected = if sees {
            json!({"at": grant["at"], "by": "ci", "owner": "run 41902"})
        } else {
            json!(null)
        };
        assert_eq!(*grant, expected);
        let body = r#"{"names":["a","b"],"order":41873}"#;
        service.script.acquire.ok(outdated());
        let refused = service.ask("POST /locks", &headers, body).await;
        assert_eq!(refused.problem(), (409, "outdated-order"));
        service
            .script
            .set_order
            .ok(OrderSetting::Changed(Some(granted())));
        let body = r#"{"order":5,"if_order":4,"reason":"ms"}"#;
        let changed = service
            .ask("PUT /locks/a/granted-order", &headers, body)
            .await;
        assert_eq!(changed.problem(), (409, "order-changed"));
        assert_eq!(changed["granted_order"], 41_902);
        assert_eq!(changed["order_granted"].is_object(), sees);
    }
}

#[tokio::test]
async fn an_order_for_several_locks_is_for_those_that_are_held_alone() {
    let service = Service::start();
    let body = r#"{"order":7,"names":["a",{"name":"b","order":5},{"name":"c","mode":"shared"}]}"#;
    service.ask("POST /locks", JSON, body).await.is(201);
    let asked = service.script.asked.lock().unwrap();
    let orders = asked.iter().filter_map(|call| match call {
        StoreCall::Acquire(attempt) => {
            let order = attempt.terms.said.order.as_ref();
            Some((attempt.name.as_str(), order.map(|it| it.number.get())))
        }
        _ => None,
    });
    let orders: BTreeMap<_, _> = orders.collect();
    let expected = [("a", Some(7)), ("b", Some(5)), ("c", None)];
    assert_eq!(orders, expected.into());
}

#[tokio::test]
async fn a_request_whose_order_makes_no_sense_is_refused_with_the_field() {
    let service = Service::start();
    let alone = "is for a lock that is held alone: leave out order, or mode and limit";
    let both = "goes with an order: send both";
    let reserve = r#"{"order":1,"reserve":{"until":"2026-11-22T18:00Z","reason":"x"}}"#;
    for (path, body, field, reason) in [
        ("/locks/a", r#"{"order":1,"mode":"shared"}"#, "order", alone),
        ("/locks/a", r#"{"order":1,"limit":1}"#, "order", alone),
        ("/locks/a", r#"{"rollback":"x"}"#, "rollback", both),
        (
            "/locks/a",
            reserve,
            "order",
            "does not go with reserve: leave one of the two out",
        ),
        (
            "/locks",
            r#"{"order":1,"mode":"shared","names":["a","b"]}"#,
            "order",
            alone,
        ),
        (
            "/locks",
            r#"{"names":["a",{"name":"b","order":1,"limit":2}]}"#,
            "order",
            alone,
        ),
        (
            "/locks",
            r#"{"rollback":"x","names":["a","b"]}"#,
            "rollback",
            both,
        ),
    ] {
        let refused = service.ask(&format!("POST {path}"), JSON, body).await;
        assert_eq!(refused.problem(), (400, "invalid-request"), "{body}");
        let errors = json!([{"field": field, "reason": reason}]);
        assert_eq!(refused["errors"], errors, "{body}");
    }
    assert_eq!(service.script.acquired(), 0);
    let token = Token::random().expose();
    let token = [("Lock-Token", token.as_str()), JSON[0]];
    let adopts = service
        .ask("POST /locks/a/hold", &token, r#"{"order":1}"#)
        .await;
    assert_eq!(adopts.problem(), (400, "invalid-request"));
    service.script.shares_nothing.set();
    let unsupported = service.acquire(r#"{"order":1}"#).await;
    assert_eq!(unsupported.problem(), (422, "unsupported-by-store"));
    let body = r#"{"order":1,"reason":"x"}"#;
    let unsupported = service.ask("PUT /locks/a/granted-order", JSON, body).await;
    assert_eq!(unsupported.problem(), (422, "unsupported-by-store"));
}

#[tokio::test]
async fn an_order_is_set_if_the_caller_has_seen_the_one_before() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ops", "order = ['a']"));
    let headers = [key.auth(), JSON[0]];
    for (body, seen, new) in [
        (
            r#"{"order":5,"if_order":4,"reason":"ms"}"#,
            Some(4),
            Some(5),
        ),
        (
            r#"{"order":null,"if_order":4,"reason":"ms"}"#,
            Some(4),
            None,
        ),
        (r#"{"order":5,"reason":"ms"}"#, None, Some(5)),
    ] {
        let set = service
            .ask("PUT /locks/a/granted-order", &headers, body)
            .await
            .is(200);
        assert_eq!(
            (&set["name"], &set["granted_order"]),
            (&json!("a"), &json!(new))
        );
        let change = OrderChange {
            seen: seen.map(number),
            new: new.map(number),
        };
        let asked = service.script.asked.lock().unwrap().pop();
        let is_it = matches!(asked, Some(StoreCall::SetOrder(name, it)) if name.as_str() == "a" && it == change);
        assert!(is_it, "{body}");
    }
    let body = r#"{"order":5,"reason":"ms"}"#;
    let refused = service
        .ask("PUT /locks/b/granted-order", &headers, body)
        .await;
    assert_eq!(refused.problem(), (403, "forbidden"));
    let refused = service
        .ask("PUT /locks/a/granted-order", &headers, r#"{"order":5}"#)
        .await;
    assert_eq!(refused.problem(), (400, "invalid-request"));
    let mut inspection = free();
    inspection.granted_order = Some(granted());
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ops", "view = ['a']"));
    service.script.inspect.ok(inspection);
    let shown = service.call("GET /locks/a", &[key.auth()]).await.is(200);
    assert_eq!(shown["granted_order"], 41_902);
    assert_eq!(shown["order_granted"]["owner"], "run 41902");
}

#[tokio::test]
async fn a_waiter_says_for_how_long_it_has_waited_before() {
    let service = Service::start();
    let body = r#"{"supersedes":"deploy","waiting_since_ms":60000,"wait_ms":10}"#;
    drop(service.acquire(body).await);
    let terms = service.script.attempt().terms;
    let supersedes = terms.supersedes.unwrap();
    assert_eq!(supersedes.waited_before, Duration::from_mins(1));
    let long = service.acquire(r#"{"waiting_since_ms":3600001}"#).await;
    assert_eq!(long.problem(), (400, "invalid-request"));
}
