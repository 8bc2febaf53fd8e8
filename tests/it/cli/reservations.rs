//! `latchgate reserve` and `latchgate unreserve`: requests with a fake gateway, and real commands on the embedded store.

use crate::cli::prelude::*;

/// The answer to a reservation.
fn reserved() -> Reply {
    let lease = json!({
        "name": "staging", "token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU",
        "fencing_token": 42, "mode": "exclusive", "slot": null, "ttl_ms": 86_400_000,
        "expires_in_ms": 600_000, "renew_after_ms": 200_000, "hold_expires_in_ms": 600_000,
    });
    Reply::Answer(201, lease.to_string())
}

#[test]
fn a_time_zone_that_is_not_known_is_not_taken_for_utc() {
    for (until, sent) in [
        ("'2036-07-04 18:00'", None),
        ("18:00", None),
        // These times need no zone.
        ("2036-07-04T18:00Z", Some("2036-07-04T18:00:00Z")),
        ("2036-07-04T18:00:00+0100", Some("2036-07-04T17:00:00Z")),
    ] {
        let gateway = FakeGateway::new([reserved()]);
        let line = format!("reserve staging --until {until} --reason x");
        let ran = gateway.typed(&line).env("TZ", "Europe/Berlim").read();
        let Some(sent) = sent else {
            assert_eq!(ran.code, Some(2), "{ran:?}");
            ran.says("the time zone of this machine is not known");
            ran.says("set TZ to a zone that exists");
            assert_eq!(gateway.received().len(), 0);
            continue;
        };
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.says("UTC: fencing token 42");
        let body: Value = serde_json::from_str(&gateway.received()[0].body).unwrap();
        assert_eq!(body["reserve"]["until"], sent);
    }
}

#[test]
fn the_time_is_sent_in_utc() {
    let gateway = FakeGateway::new([reserved()]);
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
    let again = gateway.typed(reserve).env("TZ", "UTC").ends(100);
    assert_has(&again.err, "because load test");
    assert_has(&again.err, "latchgate: staging: the lock is held: ");
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
        .env("TZ", "UTC")
        .ends(2);
    assert_has(&past.err, "is in the past");
}
