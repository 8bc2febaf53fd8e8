//! A break of a lock that several share: one of them, or all.

use std::{fs, sync::Arc};

use http::Method;
use latchgate::{
    auth::Gate,
    config::Config,
    lock::{BreakTarget, FencingToken, Owner},
    store::contract::{Breaking, Holder, SharedHolders},
};
use serde_json::Value;

use super::{
    audit::audit,
    key::Key,
    listener::Listener,
    scripted::{Script, Scripted, StoreCall, held, sharers},
    service::{ApiResponse, JSON, Service},
};

const ALL: &str = r#"{"reason":"drain","all":true}"#;

async fn break_lock(service: &Service, body: &str) -> ApiResponse {
    let (post, body) = (Method::POST, body.to_owned());
    service.ask(post, "/locks/a/break", JSON, body).await
}

fn answers(script: &Script, breaking: Breaking) {
    script.break_lock.lock().unwrap().push_back(Ok(breaking));
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
async fn all_is_not_sent_together_with_one() {
    let service = Service::start();
    let both =
        "all: is true, and so no single holder is meant: leave fencing_token and foreign_mark out";
    let no_flag = "all: is a text; true or false is expected";
    for (body, expected) in [
        (r#"{"reason":"x","all":true,"fencing_token":1}"#, both),
        (
            r#"{"reason":"x","all":true,"foreign_mark":"0123456789abcdef0123456789abcdef01234567"}"#,
            both,
        ),
        (r#"{"reason":"x","all":"yes"}"#, no_flag),
    ] {
        assert_eq!(break_lock(&service, body).await.errors(), [expected]);
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn a_break_that_could_mean_several_names_the_fields_that_say_which() {
    let service = Service::start();
    answers(&service.script, Breaking::Ambiguous(sharers(3, 3)));
    let answer = break_lock(&service, r#"{"reason":"x"}"#).await;
    assert_eq!(
        answer.errors(),
        [
            "fencing_token: is missing, and the lock is shared (3 now hold it): send that of the lease that is meant",
            "all: is missing: instead of fencing_token send true, to break all of them",
        ]
    );
    let changed = Breaking::HolderChanged(Holder::Shared(sharers(1, 1)));
    answers(&service.script, changed);
    let answer = break_lock(&service, r#"{"reason":"x","fencing_token":1}"#).await;
    assert_eq!(answer.problem(), (409, "holder-changed".to_owned()));
}

#[tokio::test]
async fn what_was_broken_is_answered_a_hundred_at_most_and_how_many_they_were() {
    let service = Service::start();
    answers(&service.script, broken(sharers(1, 1)));
    let one = break_lock(&service, r#"{"reason":"x","fencing_token":42}"#)
        .await
        .json();
    assert_eq!(
        (&one["holder_count"], &one["holders"][0]["slot"]),
        (&1.into(), &0.into())
    );
    answers(&service.script, broken(sharers(130, 130)));
    let all = break_lock(&service, ALL).await.json();
    assert_eq!(all["holders"].as_array().unwrap().len(), 100);
    assert_eq!(all["holder_count"], 130);
    let text = service.get("/metrics").await.body;
    assert!(
        text.contains("\nlatchgate_broken_leases_total 131\n"),
        "{text}"
    );
}

#[tokio::test]
async fn each_lease_that_was_broken_is_a_line_in_the_audit_log_and_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let script = Arc::new(Script::default());
    let store = Scripted(Arc::clone(&script));
    let service = Service::audited(store, Config::default(), Gate::open(), audit(&path));
    let request = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut events = Listener::ask(service.connect().await, request).await;
    events.chunk().await;
    answers(&script, broken(sharers(130, 130)));
    break_lock(&service, ALL).await;
    // No waiting here: it is there before the answer is.
    let text = fs::read_to_string(&path).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let fences: Vec<_> = lines
        .map(|line| {
            assert_eq!(
                (&line["event"], &line["outcome"]),
                (&"break".into(), &"broken".into())
            );
            line["fencing_token"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(fences, (42..172).collect::<Vec<_>>());
    let mut told = Vec::new();
    while told.len() < 130 {
        // Several may come together.
        let chunk = events.chunk().await.unwrap();
        let data = chunk.lines().filter_map(|line| line.strip_prefix("data: "));
        told.extend(data.map(|data| serde_json::from_str::<Value>(data).unwrap()));
    }
    for ((slot, fence), event) in (42..172).enumerate().zip(told) {
        assert_eq!(
            (&event["kind"], &event["fencing_token"], &event["slot"]),
            (&"broken".into(), &Value::from(fence), &Value::from(slot))
        );
    }
}

#[tokio::test]
async fn what_was_not_broken_is_one_line_with_what_was_meant() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let script = Arc::new(Script::default());
    let store = Scripted(Arc::clone(&script));
    let service = Service::audited(store, Config::default(), Gate::open(), audit(&path));
    for (breaking, body) in [
        (Breaking::Ambiguous(sharers(3, 3)), r#"{"reason":"x"}"#),
        (
            Breaking::HolderChanged(Holder::Lease(held())),
            r#"{"reason":"x","fencing_token":7}"#,
        ),
        (Breaking::NotHeld, ALL),
    ] {
        answers(&script, breaking);
        break_lock(&service, body).await;
    }
    let text = fs::read_to_string(&path).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told: Vec<_> = lines
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

#[tokio::test]
async fn it_tells_the_holders_only_to_those_who_may_view_them() {
    for (view, owner) in [("", None), ("view = ['a']", Some("somebody"))] {
        let key = Key::new();
        let service = Service::with_keys(&key.entry("ci", &format!("break = ['*']\n{view}")));
        let mut holders = sharers(2, 2);
        for lease in &mut holders.leases {
            lease.owner = Some(Owner::new("somebody").unwrap());
        }
        answers(&service.script, broken(holders));
        let headers = [key.auth(), JSON[0]];
        let answer = service
            .ask(Method::POST, "/locks/a/break", &headers, ALL)
            .await;
        for holder in answer.json()["holders"].as_array().unwrap() {
            assert_eq!(holder["owner"].as_str(), owner);
        }
    }
}
