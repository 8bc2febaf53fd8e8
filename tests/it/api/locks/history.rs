//! The history of a lock: `GET /locks/{name}/history`.

use crate::api::prelude::*;

/// A gateway over an embedded store, for callers with a key of this file.
fn gateway(keys: &str) -> (Service, TempDir) {
    let (store, directory) = embedded();
    (Service::over_with_keys(store, keys), directory)
}

async fn history(service: &Service, key: &Key) -> Value {
    let answer = service.call("GET /locks/a/history", &[key.auth()]).await;
    answer.is(200).json()
}

#[tokio::test]
async fn a_broken_lease_shows_who_broke_it_and_why_and_who_asked_for_it() {
    let (ci, ops) = (Key::new(), Key::new());
    let file = ci.entry("ci", "acquire = ['*']") + &ops.entry("ops", "break = ['*']\nview = ['*']");
    let (service, _directory) = gateway(&file);
    let nothing = history(&service, &ops).await;
    let expected = json!({
        "name": "a", "entries": [], "shorter_leases": null, "dropped": 0, "enabled": true,
    });
    assert_eq!(nothing, expected);
    let headers = [ci.auth(), JSON[0]];
    let lease = service
        .ask("POST /locks/a", &headers, r#"{"owner": "runner"}"#)
        .await
        .is(201);
    let headers = [ops.auth(), JSON[0]];
    for body in [
        r#"{"reason": "please", "grace_ms": 60000}"#,
        r#"{"reason": "stuck"}"#,
    ] {
        let answer = service.ask("POST /locks/a/break", &headers, body).await;
        assert!(answer.status < 300, "{body}");
    }
    let shown = history(&service, &ops).await;
    let entry = &shown["entries"][0];
    assert_eq!(entry["fencing_token"], lease["fencing_token"]);
    let [ended, by, reason] = ["ended", "ended_by", "reason"].map(|field| &entry[field]);
    assert_eq!(
        (ended, by, reason),
        (&"broken".into(), &"ops".into(), &"stuck".into())
    );
    assert_eq!(
        (&entry["owner"], &entry["mode"]),
        (&"runner".into(), &"exclusive".into())
    );
    assert!(
        entry["ended_at"].is_string() && entry["ended_at_latest"].is_null(),
        "{entry}"
    );
    let note = &entry["notes"][0];
    assert_eq!(
        (&note["kind"], &note["by"]),
        (&"release-requested".into(), &"ops".into())
    );
    assert_eq!(note["reason"], "please");
    assert_eq!(shown["entries"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_lease_of_a_second_shows_who_acquired_and_released_it_and_shorter_ones_are_counted() {
    let (ci, ops) = (Key::new(), Key::new());
    let file = ci.entry("ci", "acquire = ['*']") + &ops.entry("ops", "view = ['*']");
    let (service, _directory) = gateway(&file);
    for pause in [Duration::from_millis(1_100), Duration::ZERO] {
        let lease = service.call("POST /locks/a", &[ci.auth()]).await.is(201);
        sleep(pause).await;
        let token = lease["token"].as_str().unwrap();
        let headers = [ops.auth(), ("lock-token", token)];
        service.call("DELETE /locks/a", &headers).await.is(204);
    }
    let shown = history(&service, &ops).await;
    let entry = &shown["entries"][0];
    let [ended, released, acquired] =
        ["ended", "ended_by", "acquired_by"].map(|field| &entry[field]);
    let expected = (&"released".into(), &"ops".into(), &"ci".into());
    assert_eq!((ended, released, acquired), expected);
    assert_eq!(
        (&entry["waited_ms"], &shown["shorter_leases"]["count"]),
        (&0.into(), &1.into())
    );
}

#[tokio::test]
async fn without_a_history_nothing_is_shown() {
    let service = Service::configured(|config| config.history.entries = 0);
    service.call("POST /locks/a", &[]).await.is(201);
    let shown = service.get("/locks/a/history").await.is(200).json();
    assert_eq!(
        (&shown["enabled"], &shown["entries"]),
        (&false.into(), &json!([]))
    );
}
