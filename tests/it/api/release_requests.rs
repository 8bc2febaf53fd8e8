//! `POST /locks/{name}/break` with `grace_ms`: whoever holds the lock is asked first.

use std::{fs, sync::Arc, time::SystemTime};

use axum::body::Body;
use http::Method;
use latchgate::{
    auth::{Gate, KeysFile, SessionSeal},
    clock::ManualClock,
    config::Config,
    lock::{BreakTarget, FencingToken, HeldLease, Reason, ReleaseRequest},
    store::contract::{Acquisition, Contention, Holder, Inspection, Renewal, Requesting},
};
use serde_json::{Value, json};
use tokio::time::Duration;

use super::{
    audit::audit,
    key::Key,
    listener::Listener,
    scripted::{Script, Scripted, StoreCall, held},
    service::{ApiResponse, JSON, Service, WITH_TOKEN, until},
};

async fn break_lock(service: &Service, body: &str) -> ApiResponse {
    let (post, body) = (Method::POST, body.to_owned());
    service.ask(post, "/locks/a/break", JSON, body).await
}

fn answering(requesting: Requesting) -> Service {
    let service = Service::start();
    let mut answers = service.script.request_release.lock().unwrap();
    answers.push_back(Ok(requesting));
    drop(answers);
    service
}

fn request() -> ReleaseRequest {
    ReleaseRequest {
        by: Some("ops".into()),
        reason: Reason::new("deploy").unwrap(),
        within: Duration::from_secs(30),
    }
}

/// A lease whose holder is asked.
fn asked() -> HeldLease {
    let mut lease = held();
    lease.request_release(&request());
    lease
}

/// How [`request`] is shown.
fn shown() -> Value {
    json!({"by": "ops", "reason": "deploy", "within_ms": 30_000})
}

const GRACE: &str = r#"{"reason":"deploy","fencing_token":42,"grace_ms":30000}"#;

#[tokio::test]
async fn answers_202_and_who_was_asked() {
    let service = Service::start();
    let answer = break_lock(&service, GRACE).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let body = answer.json();
    assert_eq!(body["name"], "a");
    assert_eq!(body["holders"][0]["fencing_token"], 42);
    // Without API keys nobody has a name.
    let told = json!({"by": null, "reason": "deploy", "within_ms": 30_000});
    assert_eq!(body["holders"][0]["release_requested"], told);
    let meant = BreakTarget::Lease(FencingToken::new(42).unwrap());
    let expected = ReleaseRequest {
        by: None,
        ..request()
    };
    let calls = service.script.asked();
    assert!(
        matches!(&calls[..], [StoreCall::RequestRelease(name, Some(target), asked)]
            if name.as_str() == "a" && *target == meant && **asked == expected),
        "{calls:?}"
    );
}

#[tokio::test]
async fn without_a_grace_or_with_none_it_is_a_break() {
    let service = Service::start();
    let answer = break_lock(&service, r#"{"reason":"deploy","grace_ms":0}"#).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["holders"][0].get("release_requested"), None);
    let calls = service.script.asked();
    assert!(
        matches!(&calls[..], [StoreCall::Break(_, None)]),
        "{calls:?}"
    );
}

#[tokio::test]
async fn a_grace_that_makes_no_sense_is_refused_before_anybody_is_asked() {
    let service = Service::start();
    for (body, error) in [
        (
            r#"{"reason":"x","grace_ms":3600001}"#,
            "grace_ms: is 3600001 ms; allowed are 0 to 3600000 ms",
        ),
        (
            r#"{"reason":"x","grace_ms":18446744073709551615}"#,
            "grace_ms: is 18446744073709551615 ms; allowed are 0 to 3600000 ms",
        ),
        (
            r#"{"reason":"x","grace_ms":"30s"}"#,
            "grace_ms: is a text; a number is expected, without quotes",
        ),
        (
            r#"{"reason":"x","grace_ms":true}"#,
            "grace_ms: is true or false; a whole number from 0 to 3600000 is expected",
        ),
        (
            r#"{"reason":"x","grace_ms":1000,"foreign_mark":"0123456789abcdef0123456789abcdef01234567"}"#,
            "grace_ms: is for holders that can be asked: leave it out, a foreign client cannot",
        ),
    ] {
        let answer = break_lock(&service, body).await;
        assert_eq!(answer.errors(), [error], "{body}");
    }
    for body in [
        r#"{"reason":"x","grace_ms":-1}"#,
        r#"{"reason":"x","grace_ms":1.5}"#,
        r#"{"grace_ms":1000}"#,
    ] {
        assert_eq!(break_lock(&service, body).await.status, 400, "{body}");
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn says_why_nobody_was_asked() {
    let foreign = Holder::Foreign {
        expires_in: None,
        mark: None,
    };
    let answer = break_lock(&answering(Requesting::Foreign(foreign)), GRACE).await;
    assert_eq!(answer.problem(), (400, "invalid-request".to_owned()));
    assert!(
        answer.errors()[0].starts_with("grace_ms: "),
        "{}",
        answer.body
    );
    for (requesting, code) in [
        (Requesting::NotHeld, "not-held"),
        (
            Requesting::HolderChanged(Holder::Lease(held())),
            "holder-changed",
        ),
    ] {
        let answer = break_lock(&answering(requesting), GRACE).await;
        assert_eq!(answer.problem(), (409, code.to_owned()));
    }
}

#[tokio::test]
async fn the_holder_is_told_when_it_renews() {
    let service = Service::start();
    let renew = async || {
        let renewed = service.ask(Method::PUT, "/locks/a/renew", WITH_TOKEN, Body::empty());
        renewed.await.json()
    };
    assert_eq!(renew().await.get("release_requested"), None);
    let renewal = Ok(Renewal::Renewed(asked(), Duration::ZERO));
    service.script.renew.lock().unwrap().push_back(renewal);
    assert_eq!(renew().await["release_requested"], shown());
}

#[tokio::test]
async fn the_holder_of_a_group_is_told_of_which_lock() {
    let service = Service::start();
    let renewals = [held(), asked()].map(|lease| Ok(Renewal::Renewed(lease, Duration::ZERO)));
    service.script.renew.lock().unwrap().extend(renewals);
    let target = "/locks?names=a,b";
    let renewed = service.ask(Method::PUT, target, WITH_TOKEN, Body::empty());
    let results = renewed.await.json()["results"].clone();
    assert_eq!(results[0].get("release_requested"), None);
    assert_eq!(results[1]["release_requested"], shown());
}

#[tokio::test]
async fn what_is_left_of_a_lease_is_never_more_than_its_holder_has_been_given() {
    let service = Service::start();
    let mut lease = held();
    let within = Duration::from_secs(5);
    lease.request_release(&ReleaseRequest {
        within,
        ..request()
    });
    assert!(
        lease.expires_in > within,
        "it lasts longer if the gateway dies"
    );
    let renewals =
        [held(), lease.clone(), lease].map(|it| Ok(Renewal::Renewed(it, Duration::ZERO)));
    service.script.renew.lock().unwrap().extend(renewals);
    let renew = async |target| {
        let renewed = service.ask(Method::PUT, target, WITH_TOKEN, Body::empty());
        renewed.await.json()
    };
    let group = renew("/locks?names=a,b").await;
    let single = renew("/locks/a/renew").await;
    for told in [&group, &group["results"][1], &single] {
        let left = told["expires_in_ms"].as_u64().unwrap();
        assert!((4_000..=5_000).contains(&left), "{told}");
    }
    assert!(
        single["renew_after_ms"].as_u64().unwrap() <= 5_000 / 3,
        "{single}"
    );
}

#[tokio::test]
async fn a_stream_that_holds_the_lock_is_told() {
    let service = Service::start();
    let lease = HeldLease {
        ttl: latchgate::lock::Ttl::from_millis(300).unwrap(),
        ..asked()
    };
    let granted = HeldLease {
        ttl: lease.ttl,
        ..held()
    };
    service.script.acquires(Acquisition::Granted(granted));
    let renewals = [lease.clone(), lease].map(|lease| Ok(Renewal::Renewed(lease, Duration::ZERO)));
    service.script.renew.lock().unwrap().extend(renewals);
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    listener.expect("granted").await;
    listener.expect("renewed").await;
    assert_eq!(listener.expect("release-requested").await, shown());
    // It is said once.
    listener.expect("renewed").await;
    listener.expect("renewed").await;
}

#[tokio::test]
async fn is_shown_to_those_who_look_and_who_want_the_lock_if_they_may_view_it() {
    let (ops, ci) = (Key::new(), Key::new());
    let keys = ops.entry("ops", "acquire = ['*']\nview = ['*']\nbreak = ['*']")
        + &ci.entry("ci", "acquire = ['*']\nbreak = ['*']");
    let service = Service::with_keys(&keys);
    let holder = || Some(Holder::Lease(asked()));
    let seen = Inspection {
        holder: holder(),
        queue: Vec::new(),
        waiters: 0,
    };
    service.script.inspect.lock().unwrap().push_back(Ok(seen));
    let inspected = service
        .ask(Method::GET, "/locks/a", &[ops.auth()], "")
        .await;
    assert_eq!(inspected.json()["holders"][0]["release_requested"], shown());
    for (key, expected) in [(&ops, Some(&shown())), (&ci, None)] {
        let contention = Contention {
            holder: holder(),
            waiters: 0,
        };
        let answer = Ok(Acquisition::Held(contention));
        service.script.acquire.lock().unwrap().push_back(answer);
        let locked = service
            .ask(Method::POST, "/locks/a", &[key.auth()], "")
            .await;
        assert_eq!(locked.status, 423, "{}", locked.body);
        let told = locked.json()["holders"][0].clone();
        assert_eq!(told.get("release_requested"), expected);
        let headers = [key.auth(), JSON[0]];
        let target = "/locks/a/break";
        let broken = service.ask(Method::POST, target, &headers, GRACE).await;
        assert_eq!(broken.status, 202, "{}", broken.body);
        let told = broken.json()["holders"][0].clone();
        assert_eq!(told.get("release_requested").is_some(), expected.is_some());
    }
}

#[tokio::test]
async fn is_in_the_audit_log_when_it_is_made_and_when_it_is_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let key = Key::new();
    let ring = KeysFile::new("keys.toml");
    let ring = ring.parse(&key.entry("ops", "break = ['*']")).unwrap();
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
    let auth = Config::default().auth;
    let gate = Gate::guarded(ring, SessionSeal::random(), &auth, clock);
    let script = Arc::new(Script::default());
    let store = Scripted(Arc::clone(&script));
    let service = Service::audited(store, Config::default(), gate, audit(&path));
    let headers = [key.auth(), JSON[0], ("x-request-id", "r1")];
    let body = r#"{"reason":"deploy","fencing_token":42,"grace_ms":100}"#;
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let answer = service
        .ask(Method::POST, "/locks/a/break", &headers, body)
        .await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let line = |outcome: &str| {
        json!({"at": "1970-01-01T00:00:00.000Z", "event": "break", "key": "ops",
            "request_id": "r1", "name": "a", "fencing_token": 42, "reason": "deploy",
            "outcome": outcome})
    };
    // No waiting here: it is on the disk.
    assert_eq!(lines()[0], line("requested"));
    until("it is broken", || lines().len() == 2).await;
    assert_eq!(lines()[1], line("broken"));
    let by_key = |call: &StoreCall| matches!(call, StoreCall::RequestRelease(_, _, request) if request.by.as_deref() == Some("ops"));
    assert!(script.asked().iter().any(by_key));
}
