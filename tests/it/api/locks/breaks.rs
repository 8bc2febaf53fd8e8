//! `POST /locks/{name}/break`: of one lease, of a shared lock, and with `grace_ms`, which asks the holder to release
//! first.

use latchgate::{
    lock::{BreakTarget, Reason, ReleaseRequest},
    store::contract::Requesting,
};
use tokio::time::Duration;

use crate::api::prelude::*;

async fn break_lock(service: &Service, body: &str) -> ApiResponse {
    let body = body.to_owned();
    service.ask("POST /locks/a/break", JSON, body).await
}

fn answering(breaking: Result<Breaking, StoreError>) -> Service {
    let service = Service::start();
    service.script.break_lock.push(breaking);
    service
}

#[tokio::test]
async fn answers_what_was_broken_as_it_was() {
    let mut lease = held();
    lease.said.owner = Some(Owner::new("ci").unwrap());
    let service = answering(Ok(Breaking::Broken(Holder::Lease(lease))));
    let broken = break_lock(&service, r#"{"reason":"hangs","fencing_token":42}"#).await;
    assert_eq!(broken.status, 200, "{}", broken.body);
    let holders = [holder_view(json!({"owner": "ci"}))];
    let expected = json!({"holder_count": 1, "holders": holders, "name": "a"});
    assert_eq!(broken.json(), expected);
    let asked = service.script.asked().pop();
    let meant = FencingToken::new(42).unwrap();
    assert!(
        matches!(&asked, Some(StoreCall::Break(name, Some(asked)))
            if name.as_str() == "a" && *asked == BreakTarget::Lease(meant)),
        "{asked:?}"
    );
    break_lock(&service, r#"{"reason":"hangs"}"#).await;
    let asked = service.script.asked().pop();
    assert!(
        matches!(asked, Some(StoreCall::Break(_, None))),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_foreign_client_is_meant_by_its_mark() {
    let meant = ForeignMark::new(MARK).unwrap();
    let foreign = Holder::Foreign {
        expires_in: None,
        mark: Some(meant),
    };
    let service = answering(Ok(Breaking::Broken(foreign)));
    let body = format!(r#"{{"reason":"left behind","foreign_mark":"{MARK}"}}"#);
    let broken = break_lock(&service, &body).await.is(200);
    assert_eq!(broken["holders"][0]["foreign_mark"], MARK);
    let asked = service.script.asked().pop();
    assert!(
        matches!(asked, Some(StoreCall::Break(_, Some(BreakTarget::Foreign(mark)))) if mark == meant),
        "{asked:?}"
    );
}

#[tokio::test]
async fn says_why_nothing_was_broken() {
    for (breaking, problem) in [
        (Ok(Breaking::NotHeld), (409, "not-held")),
        (Ok(changed(Holder::Lease(held()))), (409, "holder-changed")),
        (Ok(changed(foreign())), (409, "holder-changed")),
        (Err(Uncertainty::TimedOut.into()), (504, "outcome-unknown")),
    ] {
        let answer = break_lock(&answering(breaking), r#"{"reason":"x","fencing_token":1}"#).await;
        assert_eq!(answer.problem(), problem);
    }
}

fn changed(holder: Holder) -> Breaking {
    Breaking::HolderChanged(holder)
}

#[tokio::test]
async fn wants_a_reason_and_nothing_else_that_it_does_not_know() {
    let service = Service::start();
    let cases = r#"
        - => reason: is missing or empty
        {} => reason: is missing or empty
        {"reason":" "} => reason: is missing or empty
        {"reason":"LONG"} => reason: has 201 characters; at most 200 are allowed
        {"reason":"a\nb"} => reason: has the control character '\n' in it
        {"reason":"x","fencing_token":0} => fencing_token: is 0; allowed are 1 to 9007199254740991
        {"reason":"x","fencing_token":"7"}
            => fencing_token: is a text; a number is expected, without quotes
        {"reason":"x","force":true} => force: is not known; the fields of this body are reason,
            .. fencing_token, foreign_mark, all, grace_ms
        {"reason":"x","foreign_mark":"0123"}
            => foreign_mark: is not the mark of a foreign holder; a mark is 40 hexadecimal digits
            .. in lower case
        {"reason":"x","fencing_token":1,"foreign_mark":"MARK"}
            => foreign_mark: is of a foreign client, which has no fencing_token: send
            .. only one of the two
        {"reason":"x","all":true,"fencing_token":1} => BOTH
        {"reason":"x","all":true,"foreign_mark":"MARK"} => BOTH
        {"reason":"x","all":"yes"} => all: is a text; true or false is expected
        {"reason":"x","grace_ms":3600001} => grace_ms: is 3600001 ms; allowed are 0 to 3600000 ms
        {"reason":"x","grace_ms":18446744073709551615}
            => grace_ms: is 18446744073709551615 ms; allowed are 0 to 3600000 ms
        {"reason":"x","grace_ms":"30s"} => grace_ms: is a text; a number is expected, without quotes
        {"reason":"x","grace_ms":true} => grace_ms: is true or false; MILLISECONDS
        {"reason":"x","grace_ms":-1} => grace_ms: is -1; MILLISECONDS
        {"reason":"x","grace_ms":1.5} => grace_ms: is 1.5; MILLISECONDS
        {"grace_ms":1000} => reason: is missing or empty
        {"reason":"x","grace_ms":1000,"foreign_mark":"MARK"}
            => grace_ms: is for holders that the gateway can ask, which a foreign client is not:
            .. leave it out
    "#;
    let both = "all: is true, which breaks all leases: leave fencing_token and foreign_mark out";
    let cases = cases
        .replace("BOTH", both)
        .replace("LONG", &"ä".repeat(201))
        .replace("MARK", MARK);
    let cases = cases.replace(
        "MILLISECONDS",
        "a whole number from 0 to 3600000 is expected",
    );
    for (body, error) in rows(&cases) {
        assert_eq!(
            break_lock(&service, &body).await.errors(),
            [error],
            "{body}"
        );
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn is_told_to_whoever_had_the_lease() {
    for (held, who) in [
        (true, "another caller holds the lock"),
        (false, "the lock is free"),
    ] {
        let detail = format!("The lease of this token was broken by an operator; {who}.");
        let service = Service::start();
        let loss = Loss::Broken { held };
        let renewal = Ok(Renewal::Lost(loss));
        service.script.renew.push(renewal);
        let release = Ok(Release::Lost(loss));
        service.script.release.push(release);
        for line in ["PUT /locks/a/renew", "DELETE /locks/a"] {
            let answer = service.call(line, WITH_TOKEN).await;
            assert_eq!(answer.problem(), (410, "lease-lost"));
            assert_eq!(answer["detail"], detail);
            assert_eq!(answer["held"], held);
        }
    }
}

const ALL: &str = r#"{"reason":"drain","all":true}"#;

fn answers(script: &Script, breaking: Breaking) {
    script.break_lock.ok(breaking);
}

fn broken(holders: SharedHolders) -> Breaking {
    Breaking::Broken(Holder::Shared(holders))
}

#[tokio::test]
async fn what_is_meant_reaches_the_store() {
    let service = Service::start();
    let fence = FencingToken::new(42).unwrap();
    for (body, meant) in [
        (ALL, Some(BreakTarget::All)),
        (r#"{"reason":"x","all":false}"#, None),
        (r#"{"reason":"x","all":null}"#, None),
        (
            r#"{"reason":"x","fencing_token":42,"all":false}"#,
            Some(BreakTarget::Lease(fence)),
        ),
    ] {
        assert_eq!(break_lock(&service, body).await.status, 200, "{body}");
        match service.script.asked().pop() {
            Some(StoreCall::Break(_, asked)) => assert_eq!(asked, meant, "{body}"),
            other => panic!("the last command is a break: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_break_that_could_mean_several_names_the_fields_that_say_which() {
    let service = Service::start();
    answers(&service.script, Breaking::Ambiguous(sharers(3, 3)));
    let answer = break_lock(&service, r#"{"reason":"x"}"#).await;
    assert_eq!(
        answer.errors(),
        [
            "fencing_token: is missing, and the lock is shared (3 now hold it): send the fencing \
             token of the lease to break",
            "all: is missing: instead of fencing_token send true, to break all of them",
        ]
    );
    let changed = Breaking::HolderChanged(Holder::Shared(sharers(1, 1)));
    answers(&service.script, changed);
    let answer = break_lock(&service, r#"{"reason":"x","fencing_token":1}"#).await;
    assert_eq!(answer.problem(), (409, "holder-changed"));
}

#[tokio::test]
async fn what_was_broken_is_answered_a_hundred_at_most_and_how_many_they_were() {
    let service = Service::start();
    answers(&service.script, broken(sharers(1, 1)));
    let one = break_lock(&service, r#"{"reason":"x","fencing_token":42}"#)
        .await
        .json();
    assert_eq!(one["holder_count"], 1);
    assert_eq!(one["holders"][0]["slot"], 0);
    answers(&service.script, broken(sharers(130, 130)));
    let all = break_lock(&service, ALL).await.json();
    assert_eq!(all["holders"].as_array().unwrap().len(), 100);
    assert_eq!(all["holder_count"], 130);
    let text = service.get("/metrics").await.body;
    assert_has(&text, "\nlatchgate_broken_leases_total 131\n");
}

#[tokio::test]
async fn each_lease_that_was_broken_is_a_line_in_the_audit_log_and_an_event() {
    let (_directory, path) = log_file();
    let service = Service::with_audit(Config::default(), Gate::open(), audit(&path));
    let mut events = Listener::events(&service).await;
    answers(&service.script, broken(sharers(130, 130)));
    break_lock(&service, ALL).await;
    // No waiting here: the audit line is written before the answer is sent.
    let lines = audit_lines(&path).into_iter();
    let fences: Vec<_> = lines
        .map(|line| {
            assert_eq!(
                fields(&line, ["event", "outcome"]),
                json!(["break", "broken"])
            );
            line["fencing_token"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(fences, (42..172).collect::<Vec<_>>());
    let mut told = Vec::new();
    while told.len() < 130 {
        // A chunk may contain several events.
        let chunk = events.chunk().await.unwrap();
        let data = chunk.lines().filter_map(|line| line.strip_prefix("data: "));
        told.extend(data.map(|data| serde_json::from_str::<Value>(data).unwrap()));
    }
    for ((slot, fence), event) in (42..172).enumerate().zip(told) {
        assert_eq!(
            fields(&event, ["kind", "fencing_token", "slot"]),
            json!(["broken", fence, slot])
        );
    }
}

#[tokio::test]
async fn what_was_not_broken_is_one_line_with_what_was_meant() {
    let (_directory, path) = log_file();
    let service = Service::with_audit(Config::default(), Gate::open(), audit(&path));
    for (breaking, body) in [
        (Breaking::Ambiguous(sharers(3, 3)), r#"{"reason":"x"}"#),
        (
            Breaking::HolderChanged(Holder::Lease(held())),
            r#"{"reason":"x","fencing_token":7}"#,
        ),
        (Breaking::NotHeld, ALL),
    ] {
        answers(&service.script, breaking);
        break_lock(&service, body).await;
    }
    let told: Vec<_> = audit_lines(&path)
        .iter()
        .map(|line| {
            let outcome = line["outcome"].as_str().unwrap().to_owned();
            (outcome, line["fencing_token"].as_u64())
        })
        .collect();
    let expected = [
        ("invalid-request", None),
        ("holder-changed", Some(7)),
        ("not-held", None),
    ];
    assert_eq!(
        told,
        expected.map(|(outcome, fence)| (outcome.to_owned(), fence))
    );
}

fn asking(requesting: Requesting) -> Service {
    let service = Service::start();
    service.script.request_release.push(Ok(requesting));
    service
}

fn request() -> ReleaseRequest {
    ReleaseRequest {
        by: Some("ops".into()),
        reason: Reason::new("deploy").unwrap(),
        within: Duration::from_secs(30),
    }
}

/// A lease with a release request.
fn asked() -> HeldLease {
    let mut lease = held();
    lease.request_release(&request());
    lease
}

/// The view of [`request`].
fn shown() -> Value {
    json!({"by": "ops", "reason": "deploy", "within_ms": 30_000})
}

const GRACE: &str = r#"{"reason":"deploy","fencing_token":42,"grace_ms":30000}"#;

#[tokio::test]
async fn answers_202_and_who_was_asked() {
    let service = Service::start();
    let answer = break_lock(&service, GRACE).await.is(202);
    let body = answer.json();
    assert_eq!(body["name"], "a");
    assert_eq!(body["holders"][0]["fencing_token"], 42);
    // Without API keys a request has no name.
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
    assert_eq!(answer["holders"][0].get("release_requested"), None);
    let calls = service.script.asked();
    assert!(
        matches!(&calls[..], [StoreCall::Break(_, None)]),
        "{calls:?}"
    );
}

#[tokio::test]
async fn says_why_nobody_was_asked() {
    let foreign = Holder::Foreign {
        expires_in: None,
        mark: None,
    };
    let answer = break_lock(&asking(Requesting::Foreign(foreign)), GRACE).await;
    assert_eq!(answer.problem(), (400, "invalid-request"));
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
        let answer = break_lock(&asking(requesting), GRACE).await;
        assert_eq!(answer.problem(), (409, code));
    }
}

#[tokio::test]
async fn the_holder_is_told_when_it_renews() {
    let service = Service::start();
    let renew = async || {
        let renewed = service.call("PUT /locks/a/renew", WITH_TOKEN);
        renewed.await.json()
    };
    assert_eq!(renew().await.get("release_requested"), None);
    let renewal = Ok(Renewal::Renewed(asked(), Duration::ZERO));
    service.script.renew.push(renewal);
    assert_eq!(renew().await["release_requested"], shown());
}

#[tokio::test]
async fn the_holder_of_a_group_is_told_of_which_lock() {
    let service = Service::start();
    let renewals = [held(), asked()].map(|lease| Ok(Renewal::Renewed(lease, Duration::ZERO)));
    service.script.renew.extend(renewals);
    let renewed = service.call("PUT /locks?names=a,b", WITH_TOKEN).await;
    let results = &renewed["results"];
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
    service.script.renew.extend(renewals);
    let group = service
        .call("PUT /locks?names=a,b", WITH_TOKEN)
        .await
        .json();
    let single = service.call("PUT /locks/a/renew", WITH_TOKEN).await.json();
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
        ttl: Ttl::from_millis(300).unwrap(),
        ..asked()
    };
    let granted = HeldLease {
        ttl: lease.ttl,
        ..held()
    };
    service.script.acquire.ok(Acquisition::Granted(granted));
    let renewals = [lease.clone(), lease].map(|lease| Ok(Renewal::Renewed(lease, Duration::ZERO)));
    service.script.renew.extend(renewals);
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    listener.expect("granted").await;
    listener.expect("renewed").await;
    assert_eq!(listener.expect("release-requested").await, shown());
    // The request is told in one event only.
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
        granted_order: None,
    };
    service.script.inspect.ok(seen);
    let inspected = service.call("GET /locks/a", &[ops.auth()]).await;
    assert_eq!(inspected["holders"][0]["release_requested"], shown());
    for (key, expected) in [(&ops, Some(&shown())), (&ci, None)] {
        let contention = Contention {
            holder: holder(),
            waiters: 0,
        };
        let answer = Ok(Acquisition::Held(contention));
        service.script.acquire.push(answer);
        let locked = service.call("POST /locks/a", &[key.auth()]).await.is(423);
        let told = locked["holders"][0].clone();
        assert_eq!(told.get("release_requested"), expected);
        let headers = [key.auth(), JSON[0]];
        let broken = service.ask("POST /locks/a/break", &headers, GRACE).await;
        assert_eq!(broken.status, 202, "{}", broken.body);
        let told = broken["holders"][0].clone();
        assert_eq!(told.get("release_requested").is_some(), expected.is_some());
    }
}

#[tokio::test]
async fn is_in_the_audit_log_when_it_is_made_and_when_it_is_carried_out() {
    let (_directory, path) = log_file();
    let key = Key::new();
    let ring = KeysFile::new("keys.toml");
    let ring = ring.parse(&key.entry("ops", "break = ['*']")).unwrap();
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
    let auth = Config::default().auth;
    let gate = Gate::guarded(ring, SessionSeal::random(), &auth, clock);
    let service = Service::with_audit(Config::default(), gate, audit(&path));
    let headers = [key.auth(), JSON[0], ("x-request-id", "r1")];
    let body = r#"{"reason":"deploy","fencing_token":42,"grace_ms":100}"#;
    let lines = || audit_lines(&path);
    let answer = service.ask("POST /locks/a/break", &headers, body).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let line = |outcome: &str| {
        json!({"at": "1970-01-01T00:00:00.000Z", "event": "break", "key": "ops",
            "request_id": "r1", "name": "a", "fencing_token": 42, "reason": "deploy",
            "outcome": outcome})
    };
    // No waiting here: the audit line is already on disk.
    assert_eq!(lines()[0], line("requested"));
    until("it is broken", || lines().len() == 2).await;
    assert_eq!(lines()[1], line("broken"));
    let by_key = |call: &StoreCall| matches!(call, StoreCall::RequestRelease(_, _, request) if request.by.as_deref() == Some("ops"));
    assert!(service.script.asked().iter().any(by_key));
}
