//! The audit log records refused requests, and contains no secret.

use std::os::unix::fs::{PermissionsExt, symlink};

use latchgate::audit::{AuditedLease, BreakAttempt, ReloadedKeys, Requester};

use crate::api::prelude::*;

/// A gateway with an audit log in this directory, for callers with one of these keys.
fn service(directory: &Path, keys: &str) -> Service {
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
    let gate = if keys.is_empty() {
        Gate::open()
    } else {
        let ring = KeysFile::new("keys.toml").parse(keys).unwrap();
        Gate::guarded(ring, SessionSeal::random(), &Config::default().auth, clock)
    };
    Service::with_audit(Config::default(), gate, audit(&directory.join("log")))
}

#[tokio::test]
async fn every_refusal_is_a_line_that_says_who_and_what() {
    let (directory, path) = log_file();
    let key = Key::new();
    let service = service(directory.path(), &key.entry("weak", "view = ['team/']"));
    let stranger = Key::new();
    let id = |id: &'static str| ("x-request-id", id);
    let ask = async |method, target: &str, headers: &[(&str, &str)]| {
        service
            .call(&format!("{method} {target}"), headers)
            .await
            .status
    };
    assert_eq!(
        ask(Method::POST, "/locks/team2%2fa", &[key.auth(), id("1")]).await,
        403
    );
    assert_eq!(
        ask(Method::GET, "/locks/a", &[stranger.auth(), id("2")]).await,
        401
    );
    let foreign = ("origin", "https://evil.example");
    assert_eq!(
        ask(Method::PUT, "/locks/b/renew", &[foreign, id("3")]).await,
        403
    );
    // A request with a token in the place of a name writes no line that shows the token.
    let target = format!("/locks/{TOKEN}");
    assert_eq!(
        ask(Method::GET, &target, &[id("4"), ("lock-token", TOKEN)]).await,
        401
    );
    assert_eq!(
        ask(Method::GET, "/locks/team%2Fa", &[key.auth(), id("5")]).await,
        200
    );
    until("all are written", || audit_lines(&path).len() == 4).await;
    let mut written = audit_lines(&path);
    for line in &mut written {
        assert_eq!(line["at"], "1970-01-01T00:00:00.000Z");
        assert_eq!(line["event"], "refused");
        let reason = line.as_object_mut().unwrap().remove("reason").unwrap();
        assert!(reason.as_str().unwrap().len() > 10);
        line.as_object_mut().unwrap().remove("at");
        line.as_object_mut().unwrap().remove("event");
    }
    let name = "/locks/{name}";
    assert_eq!(
        written,
        [
            json!({"key": "weak", "request_id": "1", "method": "POST", "route": name,
                "name": "team2/a", "outcome": "forbidden"}),
            json!({"request_id": "2", "method": "GET", "route": name, "name": "a",
                "outcome": "unauthorized"}),
            json!({"request_id": "3", "method": "PUT", "route": "/locks/{name}/renew",
                "name": "b", "outcome": "origin-refused"}),
            json!({"request_id": "4", "method": "GET", "route": name, "outcome": "unauthorized"}),
        ]
    );
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("https://evil.example"), "{text}");
    for secret in [TOKEN, key.key.expose(), stranger.key.expose()] {
        assert!(!text.contains(secret.to_string().as_str()), "{text}");
    }
}

#[tokio::test]
async fn what_a_caller_chooses_stays_on_its_line_and_within_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path(), "");
    let long = format!("https://{}.example", "a".repeat(4_000));
    let forged = "https://a\",\"event\":\"start";
    for origin in [long.as_str(), forged] {
        let headers = [("origin", origin)];
        service.call("POST /locks/a", &headers).await.is(403);
    }
    let path = directory.path().join("log");
    until("both are written", || audit_lines(&path).len() == 2).await;
    for line in audit_lines(&path) {
        assert_eq!(line["event"], "refused");
        assert!(line["reason"].as_str().unwrap().len() <= 512, "{line}");
    }
}

#[tokio::test]
async fn a_break_is_on_the_disk_before_it_is_answered() {
    let (_directory, path) = log_file();
    let audit = audit(&path);
    let name = LockName::new("deploy").unwrap();
    let broken = BreakAttempt {
        requester: Requester {
            key: Some("ops"),
            request_id: "r1",
            remote: Some("192.0.2.7".parse().unwrap()),
        },
        name: &name,
        leases: &[
            AuditedLease {
                fence: FencingToken::new(42).ok(),
                owner: Some("ci"),
                reserved_by: Some("team"),
            },
            AuditedLease {
                fence: FencingToken::new(43).ok(),
                ..AuditedLease::default()
            },
        ],
        reason: "the holder's machine is gone\n{}",
        outcome: "broken",
    };
    audit.lock_broken(&broken).await;
    // No waiting here: the audit line is written before the answer is sent.
    assert_eq!(
        audit_lines(&path),
        [
            json!({"at": "1970-01-01T00:00:00.000Z", "event": "break", "key": "ops",
            "request_id": "r1", "remote": "192.0.2.7", "name": "deploy", "fencing_token": 42,
            "owner": "ci", "reserved_by": "team", "reason": "the holder's machine is gone\n{}", "outcome": "broken"}),
            json!({"at": "1970-01-01T00:00:00.000Z", "event": "break", "key": "ops",
            "request_id": "r1", "remote": "192.0.2.7", "name": "deploy", "fencing_token": 43,
            "reason": "the holder's machine is gone\n{}", "outcome": "broken"})
        ]
    );
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_disk_that_is_full_stops_nothing_and_is_a_warning() {
    let audit = audit(Path::new("/dev/full"));
    let service = Service::with_audit(Config::default(), Gate::open(), audit.clone());
    for _ in 0..3 {
        let headers = [("origin", "null")];
        let refused = service.call("POST /locks/a", &headers).await;
        assert_eq!(refused.problem(), (403, "origin-refused"));
    }
    until("it is noticed", || audit.is_failing()).await;
    let ready = service.get("/readyz").await.is(200);
    let checks = ready["checks"].as_array().unwrap().clone();
    let check = checks
        .iter()
        .find(|check| check["name"] == "audit")
        .unwrap();
    assert_eq!(check["status"], "warning");
    // Every caller may ask for readiness, so the reason is only in the log.
    let detail = check["detail"].as_str().unwrap();
    assert!(!detail.contains("space"), "{detail}");
}

#[tokio::test]
async fn a_log_that_can_be_written_again_ends_the_warning() {
    let (_directory, path) = log_file();
    symlink("/dev/full", &path).unwrap();
    let audit = audit(&path);
    audit.stopped("first");
    audit.flush(Duration::from_mins(1)).await;
    assert!(audit.is_failing());
    fs::remove_file(&path).unwrap();
    audit.reopen();
    audit.stopped("second");
    audit.flush(Duration::from_mins(1)).await;
    assert!(!audit.is_failing());
    assert_eq!(audit_lines(&path).len(), 1);
}

#[tokio::test]
async fn a_moved_log_goes_on_in_a_new_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
    let audit = audit(&path);
    audit.keys_reloaded(Ok(&ReloadedKeys {
        count: 3,
        ..ReloadedKeys::default()
    }));
    audit.flush(Duration::from_mins(1)).await;
    fs::rename(&path, &moved).unwrap();
    audit.reopen();
    audit.keys_reloaded(Err("line 3 is no key"));
    audit.flush(Duration::from_mins(1)).await;
    assert_eq!(audit_lines(&moved)[0]["count"], 3);
    assert_eq!(audit_lines(&path)[0]["reason"], "line 3 is no key");
    assert_eq!(
        (audit_lines(&moved).len(), audit_lines(&path).len()),
        (1, 1)
    );
}

/// Sends requests that are refused with the name of the key in the audit log.
async fn refuse(service: &Service, times: usize) {
    for _ in 0..times {
        let headers = [("origin", "null")];
        service.call("POST /locks/a", &headers).await.is(403);
    }
}

#[tokio::test]
async fn a_flood_of_refusals_is_a_number_in_the_next_line() {
    let (_directory, path) = log_file();
    let audit = audit(&path);
    let service = Service::with_audit(Config::default(), Gate::open(), audit.clone());
    refuse(&service, 1_000).await;
    audit.stopped("TERM");
    audit.flush(Duration::from_mins(1)).await;
    let lines = audit_lines(&path);
    let (stop, refused) = lines.split_last().unwrap();
    assert_eq!(refused.len(), 60);
    assert!(refused.iter().all(|line| line["event"] == "refused"));
    assert_eq!(stop["event"], "stop");
    assert_eq!(stop["refusals_left_out"], 940);
    assert!(!audit.is_failing());
}

#[tokio::test]
async fn a_line_that_broke_off_is_not_gone_on_with_after_a_start_or_a_hup() {
    let (_directory, path) = log_file();
    let half = "{\"at\":\"2026-01-01T00:00:00.000Z\",\"ev";
    fs::write(&path, half).unwrap();
    let audit = audit(&path);
    let wait = Duration::from_secs(10);
    audit.stopped("first");
    audit.flush(wait).await;
    fs::write(&path, half).unwrap();
    audit.reopen();
    audit.stopped("second");
    audit.flush(wait).await;
    audit.reopen();
    audit.stopped("third");
    audit.flush(wait).await;
    let text = fs::read_to_string(&path).unwrap();
    let reasons: Vec<_> = text
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["reason"].clone())
        .collect();
    assert_eq!(reasons, ["second", "third"]);
    assert!(text.starts_with(&format!("{half}\n")), "{text}");
}

#[tokio::test]
async fn a_break_that_cannot_be_written_is_answered_and_noticed() {
    let audit = audit(Path::new("/dev/full"));
    let name = LockName::new("deploy").unwrap();
    let broken = BreakAttempt {
        requester: Requester {
            key: None,
            request_id: "r1",
            remote: None,
        },
        name: &name,
        leases: &[AuditedLease::default(); 2],
        reason: "hangs",
        outcome: "broken",
    };
    audit.lock_broken(&broken).await;
    assert!(audit.is_failing());
}
