//! Every kind of event, on every store.

use latchgate::engine::events::EventKind;

use super::fixture::{ReceivedEvent, Site, acquire, hold, post, release, renew};
use crate::api::prelude::*;

/// Defines one test for each case and store.
macro_rules! on_every_store {
    ($($case:ident,)+) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Site::embedded()).await;
            })+
        }
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Site::redis(1).await).await;
            })+
        }
    };
}

on_every_store! {
    a_lease_that_is_acquired_renewed_and_released_is_told_so,
    a_lease_whose_time_is_over_has_expired,
    a_lease_that_was_released_does_not_expire,
    one_who_waits_is_queued_and_acquires_it_by_hand_off,
    one_who_waits_in_pieces_is_queued_once_and_has_waited_since_then,
    a_hold_is_renewed_and_released_like_any_lease,
    a_hold_that_loses_its_lease_is_told_so,
    a_lease_that_nobody_is_there_for_is_released,
    a_lease_that_is_answered_again_is_acquired_once,
    a_lease_that_was_granted_while_its_caller_was_away_is_acquired_when_it_is_collected,
    a_lease_that_somebody_breaks_is_broken_and_the_next_acquires_it,
    a_lease_that_somebody_asks_for_is_broken_after_the_grace,
}

async fn a_lease_that_is_acquired_renewed_and_released_is_told_so(site: Site) {
    let (gateway, mut reader) = site.heard().await;
    let body = json!({"owner": "ci", "metadata": {"run": "7"}, "ttl_ms": 60_000});
    let lease = acquire(gateway, "a", &body).await;
    renew(gateway, &lease).await;
    release(gateway, &lease).await;
    for kind in ["acquired", "renewed", "released"] {
        let event = reader.expect(kind).await;
        assert_eq!(event["name"], "a");
        assert_eq!(event["fencing_token"], lease["fencing_token"]);
        assert_eq!(event["owner"], "ci");
        assert!(event["at"].is_string());
        assert_eq!(event.get("metadata"), None);
        let left = event["expires_in_ms"].as_u64();
        assert_eq!(left.is_some(), kind != "released", "{event}");
        assert!(left.is_none_or(|left| left > 50_000), "{event}");
    }
}

async fn a_lease_whose_time_is_over_has_expired(site: Site) {
    let gateway = site.gateway();
    let mut reader = site.reader_of_expiries().await;
    let lease = acquire(gateway, "a", &json!({"ttl_ms": 1_500, "owner": "ci"})).await;
    renew(gateway, &lease).await;
    let begin = Instant::now();
    reader.expect("acquired").await;
    reader.expect("renewed").await;
    let event = reader.expect("expired").await;
    assert!(begin.elapsed() >= Duration::from_millis(1_490));
    assert_eq!(event["fencing_token"], lease["fencing_token"]);
    assert_eq!(event["owner"], "ci");
    let next = acquire(gateway, "a", &json!({})).await;
    let event = reader.expect("acquired").await;
    assert_eq!(
        event["fencing_token"], next["fencing_token"],
        "nothing between"
    );
}

async fn a_lease_that_was_released_does_not_expire(site: Site) {
    let gateway = site.gateway();
    let mut reader = site.reader_of_expiries().await;
    let lease = acquire(gateway, "a", &json!({"ttl_ms": 1_500})).await;
    release(gateway, &lease).await;
    acquire(gateway, "b", &json!({"ttl_ms": 1_600})).await;
    let is_last = |heard: &ReceivedEvent| heard.kind == "expired";
    let heard: Vec<_> = reader.up_to(is_last).await;
    let heard: Vec<_> = heard.iter().map(ReceivedEvent::brief).collect();
    assert_eq!(
        heard,
        [
            "acquired a -",
            "released a -",
            "acquired b -",
            "expired b -"
        ]
    );
}

async fn one_who_waits_is_queued_and_acquires_it_by_hand_off(site: Site) {
    let (gateway, mut reader) = site.heard().await;
    let first = acquire(gateway, "a", &json!({})).await;
    let body = json!({"wait_ms": 20_000, "owner": "second"});
    // The second lease is released only after all events were read: otherwise the answer to the first release could be
    // published after the end of the second lease.
    let second = acquire(gateway, "a", &body);
    let told = async {
        reader.expect("acquired").await;
        let queued = reader.expect("queued").await;
        assert_eq!(fields(&queued, ["owner", "position"]), json!(["second", 1]));
        assert_eq!(queued.get("fencing_token"), None);
        release(gateway, &first).await;
        let [released, acquired] = reader.expect_both(["released", "acquired"]).await;
        assert_eq!(released["fencing_token"], first["fencing_token"]);
        acquired
    };
    let (second, acquired) = tokio::join!(second, told);
    assert_eq!(acquired["fencing_token"], second["fencing_token"]);
    assert_eq!(acquired["waited_ms"], second["waited_ms"]);
    assert_eq!(acquired["owner"], "second");
    release(gateway, &second).await;
    reader.expect("released").await;
}

async fn one_who_waits_in_pieces_is_queued_once_and_has_waited_since_then(site: Site) {
    const PIECE: u64 = 600;
    // An attempt enters the queue a moment after its request has begun to wait, and its wait counts from then.
    const MOMENT: u64 = 300;
    let (gateway, mut reader) = site.heard().await;
    let first = acquire(gateway, "a", &json!({})).await;
    let mut key = vec![("idempotency-key", "5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d13")];
    key.extend(JSON);
    let ask = async |wait_ms: u64| {
        let body = json!({"wait_ms": wait_ms, "owner": "patient"}).to_string();
        gateway.ask("POST /locks/a", &key, body).await
    };
    for pieces in 1..=2 {
        let refused = ask(PIECE).await.is(423);
        let waited = refused["waited_ms"].as_u64().unwrap();
        assert!(waited >= pieces * PIECE - MOMENT, "{waited}");
    }
    let stats = async || {
        let stats = gateway.get("/stats").await;
        stats.json()
    };
    let began = Instant::now();
    let longest = async {
        let longest = eventually("it goes on with its place", async || {
            let longest = stats().await["longest_wait_ms"].as_u64()?;
            (longest >= 2 * PIECE - MOMENT).then_some(longest)
        });
        let longest = longest.await;
        assert!(
            began.elapsed() < Duration::from_millis(longest),
            "{longest}"
        );
        release(gateway, &first).await;
        longest
    };
    let (lease, longest) = tokio::join!(ask(20_000), longest);
    assert_eq!(lease.status, 201);
    let lease = lease.json();
    assert!(lease["waited_ms"].as_u64().unwrap() >= longest, "{lease}");
    let heard = reader
        .up_to(|heard| heard.kind == "acquired" && heard.data["owner"] == "patient")
        .await;
    let acquired = &heard.last().unwrap().data;
    assert_eq!(acquired["waited_ms"], lease["waited_ms"]);
    let queued = heard.iter().filter(|heard| heard.kind == "queued");
    assert_eq!(queued.count(), 1, "{heard:?}");
    let counted = stats().await["totals"]["acquires"].clone();
    assert_eq!(fields(&counted, ["held", "granted"]), json!([1, 2]));
}

async fn a_hold_is_renewed_and_released_like_any_lease(site: Site) {
    let (gateway, mut reader) = site.heard().await;
    let holding = hold(gateway, "a", &json!({"ttl_ms": 3_000, "owner": "held"})).await;
    let fence = reader.expect("acquired").await["fencing_token"].clone();
    let renewed = reader.expect("renewed").await;
    assert_eq!(renewed["fencing_token"], fence);
    drop(holding);
    let heard = reader.up_to(|heard| heard.kind != "renewed").await;
    let last = heard.last().unwrap();
    assert_eq!(last.kind, "released");
    assert_eq!(
        fields(&last.data, ["fencing_token", "owner"]),
        json!([fence, "held"])
    );
}

async fn a_lease_that_somebody_breaks_is_broken_and_the_next_acquires_it(site: Site) {
    let (gateway, mut reader) = site.heard().await;
    let first = acquire(gateway, "a", &json!({"owner": "ci", "ttl_ms": 60_000})).await;
    let body = json!({"wait_ms": 20_000, "owner": "second"});
    let broken = async {
        reader.expect("acquired").await;
        reader.expect("queued").await;
        let why = json!({"reason": "it hangs", "fencing_token": first["fencing_token"]});
        post(gateway, "/locks/a/break", &why).await.is(200);
        reader.expect_both(["broken", "acquired"]).await
    };
    let (second, [broken, acquired]) = tokio::join!(acquire(gateway, "a", &body), broken);
    assert_eq!(broken["name"], "a");
    assert_eq!(broken["fencing_token"], first["fencing_token"]);
    assert_eq!(broken["owner"], "ci");
    assert_eq!(broken["reason"], "it hangs");
    assert_eq!(broken["by"], json!(null), "no key is needed");
    assert_eq!(acquired["fencing_token"], second["fencing_token"]);
    // A break is the only event of the lease's end: neither `released` nor `expired` follows.
    release(gateway, &second).await;
    let released = reader.expect("released").await;
    assert_eq!(released["fencing_token"], second["fencing_token"]);
}

async fn a_lease_that_somebody_asks_for_is_broken_after_the_grace(site: Site) {
    let (gateway, mut reader) = site.heard().await;
    let lease = acquire(gateway, "a", &json!({"owner": "ci", "ttl_ms": 60_000})).await;
    reader.expect("acquired").await;
    let why = json!({"reason": "deploy", "fencing_token": lease["fencing_token"], "grace_ms": 300});
    let began = Instant::now();
    post(gateway, "/locks/a/break", &why).await.is(202);
    let requested = reader.expect("release-requested").await;
    let broken = reader.expect("broken").await;
    assert!(began.elapsed() >= Duration::from_millis(300));
    for event in [&requested, &broken] {
        assert_eq!(event["fencing_token"], lease["fencing_token"]);
        assert_eq!(event["owner"], "ci");
        assert_eq!(event["reason"], "deploy");
    }
    // The time left when the store answered.
    let left = requested["expires_in_ms"].as_u64().unwrap();
    assert!((1..=300).contains(&left), "{left}");
}

async fn a_hold_that_loses_its_lease_is_told_so(site: Site) {
    let (gateway, mut reader) = site.heard().await;
    let body = json!({"ttl_ms": 400, "max_hold_ms": 500});
    let _holding = hold(gateway, "a", &body).await;
    let heard = reader.up_to(|heard| heard.kind == "lost").await;
    let lost = heard.last().unwrap();
    assert_eq!(lost.data["reason"], "hold-limit");
    assert_eq!(lost.data["fencing_token"], heard[0].data["fencing_token"]);
    // The undelivered lease is released at once, unless its TTL ended first.
    let end = reader.next().await.unwrap();
    assert!(
        matches!(end.kind.as_str(), "released" | "expired"),
        "{end:?}"
    );
    assert_eq!(end.data["fencing_token"], heard[0].data["fencing_token"]);
    if end.kind == "released" {
        assert_eq!(
            end.data["reason"], "hold-limit",
            "somebody was there for it"
        );
    }
}

async fn a_lease_that_nobody_is_there_for_is_released(site: Site) {
    let (gateway, mut reader) = site.heard().await;
    // The body of the answer is never read, as if the caller had gone.
    drop(gateway.open("POST /locks/a", &[], "").await);
    let fence = reader.expect("acquired").await["fencing_token"].clone();
    let released = reader.expect("released").await;
    assert_eq!(released["reason"], "abandoned");
    assert_eq!(released["fencing_token"], fence);
}

async fn a_lease_that_is_answered_again_is_acquired_once(site: Site) {
    let (gateway, mut reader) = site.heard().await;
    let key = [("idempotency-key", "5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11")];
    for status in [201, 200] {
        gateway.call("POST /locks/a", &key).await.is(status);
    }
    post(gateway, "/locks/b", &json!({})).await;
    assert_eq!(reader.expect("acquired").await["name"], "a");
    assert_eq!(reader.expect("acquired").await["name"], "b");
}

async fn a_lease_that_was_granted_while_its_caller_was_away_is_acquired_when_it_is_collected(
    site: Site,
) {
    let (gateway, mut reader) = site.heard().await;
    let first = acquire(gateway, "a", &json!({})).await;
    let mut key = vec![("idempotency-key", "5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d12")];
    key.extend(JSON);
    let ask = async || {
        let body = json!({"wait_ms": 50, "owner": "away"}).to_string();
        gateway.ask("POST /locks/a", &key, body).await
    };
    assert_eq!(ask().await.status, 423);
    release(gateway, &first).await;
    for kind in ["acquired", "queued", "released"] {
        reader.expect(kind).await;
    }
    let lease = ask().await.is(200);
    let waited = lease["waited_ms"].as_u64().unwrap();
    assert!(
        waited >= 50,
        "it waited {waited} ms while it asked and was away"
    );
    assert_eq!(ask().await.status, 200);
    release(gateway, &lease.json()).await;
    for kind in ["acquired", "released"] {
        let event = reader.expect(kind).await;
        assert_eq!(event["fencing_token"], lease["fencing_token"]);
        assert_eq!(event["owner"], "away");
    }
}

#[test]
fn every_kind_is_in_the_documents_and_on_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let document = serde_json::to_value(openapi()).unwrap();
    let kinds = EventKind::ALL.map(EventKind::as_str);
    let listed = document["components"]["schemas"]["LockEventName"]["enum"].clone();
    // The list ends with the kinds that only the stream itself sends.
    assert_eq!(listed, json!([&kinds[..], &["session", "end"]].concat()));
    let listed = format!(
        "KINDS = [{}];",
        kinds.map(|kind| format!("\"{kind}\"")).join(", ")
    );
    assert!(
        text("dashboard/model/feed.js").contains(&listed),
        "{listed}"
    );
    let told = document["paths"]["/events"]["get"]["description"]
        .as_str()
        .unwrap();
    for kind in kinds {
        assert!(
            told.contains(&format!("`{kind}`:")),
            "{kind} is not explained"
        );
        for path in ["docs/events.md", "clients/rust/src/events.rs"] {
            assert!(
                text(path).contains(&format!("`{kind}`")),
                "{kind} in {path}"
            );
        }
        let icons = text("dashboard/parts/icon.js");
        assert!(
            // JavaScript needs quotes around a name with a hyphen.
            icons.contains(&format!("\n  {kind}: \""))
                || icons.contains(&format!("\n  \"{kind}\": \"")),
            "{kind} has no icon"
        );
    }
}
