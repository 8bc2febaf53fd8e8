//! The line of a request has everything that is to be in it, in either format.

use serde_json::Value;

use super::key_fixture::{File, Made};
use crate::support::{
    gateway::{Gateway, Setup},
    program::latchgate,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The lines of a request that was granted a lock and of one that was refused it.
fn lines(format: &str) -> [String; 2] {
    let key = Made::new("ci", &["--acquire", "*"]);
    let keys = File::new(&key.toml);
    let setup = Setup::default()
        .with("LATCHGATE_AUTH_KEYS_FILE", keys.path())
        .with("LATCHGATE_LOG_FORMAT", format)
        .with("LATCHGATE_LOG_REQUESTS", "all");
    let gateway = Gateway::start_with(setup);
    for _ in 0..2 {
        latchgate(&["acquire", "deploy", "--url", &gateway.url()])
            .env("LATCHGATE_KEY", &key.key)
            .env("TRACEPARENT", PARENT)
            .read();
    }
    // The last answer may overtake its line.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
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
        assert!(tokio::time::Instant::now() < deadline, "{log}");
        std::thread::sleep(std::time::Duration::from_millis(5));
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
        latchgate(&["acquire", "deploy", "--url", &url]).read();
        let broken = [
            "break", "deploy", "--yes", "--reason", reason, "--url", &url,
        ];
        latchgate(&broken).read();
        // The answer comes after the line.
        let log = gateway.logged(escaped);
        assert!(!log.contains('\u{202e}'), "{log}");
    }
}
