//! The audit log of the real program, and the log line of a request in both formats.

use latchgate::auth::ApiKey;

use crate::cli::prelude::*;

fn events(path: &Path) -> Vec<(String, Value)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| (line["event"].as_str().unwrap().to_owned(), line))
        .collect()
}

#[test]
fn start_and_stop_stand_in_it_and_a_hup_opens_it_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (
        directory.path().join("audit"),
        directory.path().join("audit.1"),
    );
    let setup = Setup::default().with("LATCHGATE_AUDIT_PATH", path.to_str().unwrap());
    let mut gateway = Gateway::start_with(setup);
    until("it has started", || events(&path).len() == 1);
    let (event, start) = events(&path).remove(0);
    assert_eq!(event, "start");
    assert_eq!(start["listen"], gateway.address.to_string());
    assert_eq!(start["version"], env!("CARGO_PKG_VERSION"));
    assert!(start["store"].as_str().unwrap().starts_with("embedded:"));

    fs::rename(&path, &moved).unwrap();
    gateway.signal(Signal::HUP);
    until("there is a new file", || path.exists());
    gateway.ends_by(Signal::TERM, 0);
    assert_eq!(events(&moved).len(), 1);
    let (event, stop) = events(&path).remove(0);
    assert_eq!(
        (event.as_str(), &stop["reason"]),
        ("stop", &Value::from("TERM"))
    );
}

#[test]
fn one_that_cannot_be_opened_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none/audit");
    let store = format!("embedded:{}", directory.path().join("data").display());
    let ran = typed(&format!("serve --listen 127.0.0.1:0 --store {store}"))
        .env("LATCHGATE_AUDIT_PATH", path.to_str().unwrap())
        .ends(2);
    let said = format!(
        "audit.path: cannot open the audit log {}: No such file",
        path.display()
    );
    ran.says(&said);
}

#[test]
fn every_reload_of_the_keys_stands_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let (path, keys) = (
        directory.path().join("audit"),
        directory.path().join("keys.toml"),
    );
    let key = ApiKey::random();
    let secret = format!("{}:sha256:{}", key.id(), key.hash());
    let entry = format!("[[key]]\nname = 'ci'\nsecrets = ['{secret}']\nview = ['*']\n");
    fs::write(&keys, entry).unwrap();
    let setup = Setup::default()
        .with("LATCHGATE_AUDIT_PATH", path.to_str().unwrap())
        .with("LATCHGATE_AUTH_KEYS_FILE", keys.to_str().unwrap());
    let gateway = Gateway::start_with(setup);
    gateway.signal(Signal::HUP);
    let reloads = || {
        let mut events = events(&path);
        events.retain(|(event, _)| event == "key-reload");
        events
    };
    until("it was read again", || reloads().len() == 1);
    let same = reloads().remove(0).1;
    assert_eq!(fields(&same, ["outcome", "count"]), json!(["reloaded", 1]));
    assert!(same.get("changed").is_none(), "{same}");
    // The gateway may notice the changed file before the signal. Then the signal changes nothing.
    let change = |text: &str| {
        let before = reloads().len();
        fs::write(&keys, text).unwrap();
        gateway.signal(Signal::HUP);
        until("it was read again", || reloads().len() > before);
        reloads().remove(before).1
    };
    let other = ApiKey::random();
    let new_secret = format!("{}:sha256:{}", other.id(), other.hash());
    let entry = |name: &str, secret: &str| {
        format!("[[key]]\nname = '{name}'\nsecrets = ['{secret}']\nview = ['*']\n")
    };
    let added = change(&(entry("ci", &secret) + &entry("ops", &new_secret)));
    assert_eq!(added["added"], serde_json::json!(["ops"]));
    let changed = change(&entry("ci", &new_secret));
    assert_eq!(changed["removed"], serde_json::json!(["ops"]));
    assert_eq!(changed["changed"], serde_json::json!(["ci"]));
    assert!(
        !changed.to_string().contains(&other.hash().to_string()),
        "{changed}"
    );
    let refused = change("[[key]]\nnome = 'a'\n");
    assert_eq!(refused["outcome"], "refused");
    assert_has(refused["reason"].as_str().unwrap(), "name of");
}

#[test]
fn a_break_stands_in_it_with_its_reason_whatever_came_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    let setup = Setup::default().with("LATCHGATE_AUDIT_PATH", path.to_str().unwrap());
    let gateway = Gateway::start_with(setup);
    gateway.typed("acquire deploy --owner ci-7").ends(0);
    gateway
        .typed("break deploy --reason guessed --fencing-token 7")
        .ends(108);
    gateway
        .typed("break deploy --reason 'hangs for hours' --yes")
        .ends(0);
    // The line is on disk before the answer is sent.
    let breaks: Vec<_> = events(&path)
        .into_iter()
        .filter_map(|(event, line)| (event == "break").then_some(line))
        .collect();
    let [refused, broken] = &breaks[..] else {
        panic!("{breaks:?}");
    };
    assert_eq!(refused["outcome"], "holder-changed");
    assert_eq!(refused["fencing_token"], 7);
    assert_eq!(broken["outcome"], "broken");
    assert_eq!(broken["name"], "deploy");
    assert_eq!(broken["reason"], "hangs for hours");
    assert!(broken["fencing_token"].as_u64() > Some(7), "{broken}");
    assert_eq!(broken["owner"], "ci-7");
    assert!(refused.get("owner").is_none(), "{refused}");
    assert_eq!(broken["remote"], "127.0.0.1");
    assert!(broken["request_id"].is_string(), "{broken}");
}

#[test]
fn a_reservation_stands_in_it_and_so_does_its_owner_when_it_is_broken() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    let key = Made::new("ops", &["--acquire", "*", "--reserve", "*", "--view", "*"]);
    let breaker = Made::new("boss", &["--view", "*", "--break", "*"]);
    let keys = File::new(&(key.toml.clone() + &breaker.toml));
    let setup = Setup::default()
        .with("LATCHGATE_AUDIT_PATH", path.to_str().unwrap())
        .with("LATCHGATE_AUTH_KEYS_FILE", keys.path());
    let gateway = Gateway::start_with(setup);
    let run = |key: &Made, line: &str| gateway.typed(line).key(&key.key);
    run(
        &key,
        "reserve staging --until +2h --reason 'load test' --owner ann",
    )
    .ends(0);
    run(&key, "acquire other --owner ann").ends(0);
    run(&breaker, "break staging --reason hotfix --yes").ends(0);
    let lines = || {
        let mut events = events(&path);
        events.retain(|(event, _)| event == "reserve" || event == "break");
        events
    };
    until("both stand in it", || lines().len() == 2);
    let [(_, reserved), (_, broken)] = &lines()[..] else {
        panic!("a reservation and a break");
    };
    let told = fields(
        reserved,
        ["event", "key", "name", "owner", "reserved_by", "reason"],
    );
    assert_eq!(
        told,
        json!(["reserve", "ops", "staging", "ann", "ops", "load test"])
    );
    assert!(
        reserved["until"].as_str().unwrap().ends_with('Z'),
        "{reserved}"
    );
    let told = fields(broken, ["event", "key", "owner", "reserved_by", "outcome"]);
    assert_eq!(told, json!(["break", "boss", "ann", "ops", "broken"]));
    assert_eq!(broken["fencing_token"], reserved["fencing_token"]);
}

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The log lines of a request that was granted a lock and of a request that was refused.
fn lines(format: &str) -> [String; 2] {
    let key = Made::new("ci", &["--acquire", "*"]);
    let keys = File::new(&key.toml);
    let setup = Setup::default()
        .with("LATCHGATE_AUTH_KEYS_FILE", keys.path())
        .with("LATCHGATE_LOG_FORMAT", format)
        .with("LATCHGATE_LOG_REQUESTS", "all");
    let gateway = Gateway::start_with(setup);
    for _ in 0..2 {
        gateway
            .typed("acquire deploy")
            .key(&key.key)
            .env("TRACEPARENT", PARENT)
            .read();
    }
    // The answer may arrive before its log line is written.
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let log = gateway.log();
        let of = |status: &str| {
            let (text, json) = (format!("status={status}"), format!("\"status\":{status}"));
            let is_of = |line: &&str| line.contains(&text) || line.contains(&json);
            let mut lines = log.lines().filter(|line| line.contains(TRACE));
            lines.find(is_of).map(str::to_owned)
        };
        if let (Some(granted), Some(refused)) = (of("201"), of("423")) {
            return [granted, refused];
        }
        assert!(Instant::now() < deadline, "{log}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn as_text() {
    let [granted, refused] = lines("text");
    for (line, status) in [(&granted, "status=201"), (&refused, "status=423")] {
        for part in [
            "INFO",
            "method=\"POST\"",
            "route=\"/locks/{name}\"",
            status,
            "us=",
            "id=\"",
            "key=\"ci\"",
            &format!("trace_id={TRACE}"),
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert!(refused.contains("code=\"locked\""), "{refused}");
    assert!(!granted.contains("code="), "{granted}");
}

#[test]
fn as_json() {
    let [granted, refused] = lines("json");
    for (line, status) in [(&granted, 201), (&refused, 423)] {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["message"], "request");
        assert_eq!(line["method"], "POST");
        assert_eq!(line["route"], "/locks/{name}");
        assert_eq!(line["status"], status);
        assert_eq!(line["key"], "ci");
        assert_eq!(line["trace_id"], TRACE);
        assert!(line["us"].as_u64().unwrap() > 0, "{line}");
        assert!(line["id"].as_str().unwrap().len() > 16, "{line}");
        assert!(line["timestamp"].is_string(), "{line}");
    }
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert_eq!(refused["code"], "locked");
    let granted: Value = serde_json::from_str(&granted).unwrap();
    assert!(granted.get("code").is_none(), "{granted}");
}

#[test]
fn a_reason_does_not_pretend_to_be_another_text() {
    let reason = "\u{202e}txt.exe\u{200b}";
    for (format, escaped) in [
        ("text", r"\u{202e}txt.exe\u{200b}"),
        ("json", r"\u202etxt.exe\u200b"),
    ] {
        let setup = Setup::default().with("LATCHGATE_LOG_FORMAT", format);
        let gateway = Gateway::start_with(setup);
        let url = gateway.url();
        typed(&format!("acquire deploy --url {url}")).read();
        typed(&format!("break deploy --yes --reason {reason} --url {url}")).read();
        // The log line is written before the answer is sent.
        let log = gateway.logged(escaped);
        assert!(!log.contains('\u{202e}'), "{log}");
    }
}
