//! `latchgate reserve` and `latchgate unreserve`: requests with a fake gateway, and real commands on the embedded store.

use crate::cli::prelude::*;

#[test]
fn the_time_is_sent_in_utc() {
    let lease = json!({
        "name": "staging", "token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU",
        "fencing_token": 42, "mode": "exclusive", "slot": null, "ttl_ms": 86_400_000,
        "expires_in_ms": 600_000, "renew_after_ms": 200_000, "hold_expires_in_ms": 600_000,
    });
    let gateway = FakeGateway::new([Reply::Answer(201, lease.to_string())]);
    let line = "reserve staging --until '2036-07-04 18:00' --reason 'load test' --owner me";
    let ran = gateway.typed(line).env("TZ", "Europe/Berlin").read();
    let note = "reserved staging until Fri 2036-07-04 18:00 Europe/Berlin: fencing token 42\n";
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", note));
    let body: Value = serde_json::from_str(&gateway.received()[0].body).unwrap();
    let reserve = json!({"until": "2036-07-04T16:00:00Z", "reason": "load test"});
    assert_eq!(
        (&body["reserve"], &body["owner"], &body["ttl_ms"]),
        (&reserve, &json!("me"), &Value::Null)
    );
}

#[test]
fn staging_is_mine_until_it_is_not_needed_any_longer() {
    let gateway = Gateway::start();
    let reserve = "reserve staging --until 'tomorrow 12:00' --reason 'load test'";
    let reserved = gateway.typed(reserve).env("TZ", "UTC").ends(0);
    assert_has(&reserved.err, " 12:00 UTC: fencing token ");
    let again = gateway.typed(reserve).ends(100);
    assert_has(&again.err, "because load test");
    let shown = gateway.typed("inspect staging").env("TZ", "UTC").ends(0);
    assert_has(&shown.out, "\n  reserved       until ");
    assert_has(&shown.out, " 12:00 UTC because load test\n");
    let listed = gateway.typed("list").env("TZ", "UTC").ends(0);
    assert_has(&listed.out, " 12:00 UTC because load test)");
    gateway.typed("unreserve staging").ends(0);
    gateway
        .typed("inspect staging")
        .read()
        .gives(0, "staging is free\n");
    let history = gateway.typed("history staging").ends(0);
    // Without API keys, the gateway cannot know who ended the reservation.
    assert_has(&history.out, "broken");
    gateway.typed("unreserve staging").ends(107);
    gateway.typed("acquire staging --ttl 1m").ends(0);
    let held = gateway.typed("unreserve staging").ends(107);
    assert_has(&held.err, "staging is not reserved");
    let past = gateway
        .typed("reserve x --until 'today 0:00' --reason x")
        .ends(2);
    assert_has(&past.err, "is in the past");
}
