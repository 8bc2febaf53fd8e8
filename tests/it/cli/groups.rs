//! Several locks on one command line.

use rustix::process::Signal;
use serde_json::Value;

use super::run::{run_sh, until, waiters};
use crate::support::{
    gateway::Gateway,
    program::{Run, latchgate},
};

fn on(gateway: &Gateway, arguments: &[&str]) -> Run {
    latchgate(arguments).env("LATCHGATE_URL", &gateway.url())
}

fn state(gateway: &Gateway, name: &str) -> Value {
    let shown = on(gateway, &["inspect", name, "--json"]).read();
    let lock: Value = serde_json::from_str(&shown.out).unwrap();
    lock["state"].clone()
}

#[test]
fn several_locks_are_acquired_renewed_and_released_with_one_token() {
    let gateway = Gateway::start();
    let acquired = on(&gateway, &["acquire", "b", "a", "--ttl", "20s"]).read();
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
    let token = acquired.out.trim_end();
    assert_eq!(token.len(), 43);
    let lines: Vec<_> = acquired.err.lines().collect();
    assert!(
        lines[0].starts_with("acquired a: fencing token "),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("acquired b: fencing token "),
        "{lines:?}"
    );

    let renewed = on(&gateway, &["renew", "a", "b"])
        .env("LATCHGATE_TOKEN", token)
        .read();
    assert_eq!(renewed.code, Some(0), "{renewed:?}");
    assert!(
        renewed.err.starts_with("renewed a: expires in "),
        "{renewed:?}"
    );

    let released = on(&gateway, &["release", "a"])
        .env("LATCHGATE_TOKEN", token)
        .read();
    assert_eq!(released.code, Some(0), "{released:?}");
    // One that is lost is told, and the others are renewed and released.
    let renewed = on(&gateway, &["renew", "a", "b"])
        .env("LATCHGATE_TOKEN", token)
        .read();
    assert_eq!(renewed.code, Some(102), "{renewed:?}");
    assert!(
        renewed.err.contains("the lease of a is lost"),
        "{renewed:?}"
    );
    let released = on(&gateway, &["release", "a", "b"])
        .env("LATCHGATE_TOKEN", token)
        .read();
    assert_eq!(released.code, Some(102), "{released:?}");
    assert!(released.err.starts_with("released b\n"), "{released:?}");
    assert_eq!(state(&gateway, "b"), "free");
}

#[test]
fn a_lock_that_is_held_leaves_the_others_free() {
    let gateway = Gateway::start();
    on(&gateway, &["acquire", "b"]).read();
    let refused = on(&gateway, &["acquire", "a", "b", "c"]).read();
    assert_eq!(refused.code, Some(100), "{refused:?}");
    assert_eq!(refused.out, "");
    assert_eq!(state(&gateway, "c"), "free");
}

#[test]
fn names_that_are_no_group_are_refused() {
    let gateway = Gateway::start();
    let twice = on(&gateway, &["acquire", "a", "a"]).read();
    assert_eq!(twice.code, Some(2), "{twice:?}");
    assert!(twice.err.contains("has a more than once"), "{twice:?}");
}

#[test]
fn a_command_runs_while_all_are_held_and_knows_their_fencing_tokens() {
    let gateway = Gateway::start();
    let script = "echo $LATCHGATE_NAME $LATCHGATE_FENCING_TOKEN; echo $LATCHGATE_FENCING_TOKENS; \
                  sleep 2; \"$0\" inspect a --json; \"$0\" inspect b --json";
    let program = env!("CARGO_BIN_EXE_latchgate");
    let run = [
        "run", "b", "a", "--ttl", "1500ms", "--", "sh", "-c", script, program,
    ];
    let run = on(&gateway, &run).read();
    assert_eq!(run.code, Some(0), "{run:?}");
    let lines: Vec<_> = run.out.lines().collect();
    let tokens: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(lines[0], format!("a {}", tokens["a"]));
    assert!(tokens["b"].is_u64(), "{tokens}");
    // Both outlast their TTL: they are renewed.
    for line in &lines[2..] {
        let lock: Value = serde_json::from_str(line).unwrap();
        assert_eq!(lock["state"], "held");
        assert_eq!(lock["holders"][0]["group"]["count"], 2);
    }
    for name in ["a", "b"] {
        assert_eq!(state(&gateway, name), "free");
    }
}

#[test]
fn a_part_that_is_lost_stops_the_command() {
    let gateway = Gateway::start();
    let script = "\"$0\" break b --yes --reason test 2>&1; sleep 60";
    let program = env!("CARGO_BIN_EXE_latchgate");
    let run = [
        "run", "a", "b", "--ttl", "3s", "--", "sh", "-c", script, program,
    ];
    let run = on(&gateway, &run).read();
    assert_eq!(run.code, Some(102), "{run:?}");
    assert_eq!(state(&gateway, "a"), "free");
}

#[test]
fn a_command_is_killed_at_once_if_a_part_was_given_to_another() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let tidy = r#"trap "echo tidying" TERM; echo up; while :; do sleep 0.05; done"#;
    let arguments = ["a", "b", "--ttl", "9s", "--kill-after", "4500ms"];
    let mut losing = run_sh(&url, &arguments, tidy);
    losing.printed("up");
    let mut next = run_sh(&url, &["b"], "echo up; exec sleep 60");
    until("it waits", || waiters(&url, "b") == 1);
    let broken = on(&gateway, &["break", "b", "--reason", "it hangs", "--yes"]).read();
    assert_eq!(broken.code, Some(0), "{broken:?}");
    next.printed("up");
    losing.said("the lease of b is lost: The lease of this token was broken by an operator");
    let lost = losing.wait();
    // It gets no TERM: another works under `b`.
    assert_eq!(
        (lost.code, lost.out.as_str()),
        (Some(102), "up\n"),
        "{lost:?}"
    );
    next.signal(Signal::TERM);
    next.wait();
}

#[test]
fn what_came_of_each_is_printed_as_one_line_of_json() {
    let gateway = Gateway::start();
    let acquired = on(&gateway, &["acquire", "a", "b"]).read();
    let token = acquired.out.trim_end();
    let ran = |arguments: &[&str]| {
        let run = on(&gateway, arguments).env("LATCHGATE_TOKEN", token);
        run.read()
    };
    assert_eq!(ran(&["release", "a"]).code, Some(0));
    for command in ["renew", "release"] {
        let ran = ran(&[command, "a", "b", "--json"]);
        assert_eq!(ran.code, Some(102), "{ran:?}");
        let printed: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(printed["results"][0]["code"], "lease-lost");
        assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
    }
}
