//! Somebody asks for the lock while the command runs.

use std::time::Duration;

use tokio::time::Instant;

use super::fixture::{inspect, run_sh, until};
use crate::support::{gateway::Gateway, program::latchgate};

/// A command that says when it was asked to end, and takes a while to end.
const TIDY: &str = r#"trap "echo asked; sleep 0.3; echo tidied; exit 5" TERM; echo up; while :; do sleep 0.02; done"#;
/// A command that does not want to end.
const STUBBORN: &str = r#"trap "echo asked" TERM; echo up; while :; do sleep 0.02; done"#;

fn ask_for(url: &str, grace: &str) {
    let arguments = [
        "break",
        "deploy",
        "--reason",
        "a newer one",
        "--yes",
        "--grace",
        grace,
    ];
    let asked = latchgate(&arguments).env("LATCHGATE_URL", url).read();
    assert_eq!(asked.code, Some(0), "{asked:?}");
    let what = format!("asked for deploy within {grace}: ");
    assert!(asked.err.contains(&what), "{asked:?}");
}

#[test]
fn the_command_is_asked_to_end_and_its_exit_code_is_its_own() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let mut running = run_sh(&url, &["deploy", "--ttl", "3s"], TIDY);
    running.printed("up");
    // Far longer than the lease: it is renewed until the command has ended.
    ask_for(&url, "5m");
    assert!(inspect(&url, "deploy").contains("asked for by somebody: a newer one"));
    let ran = running.wait();
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert_eq!(ran.out, "up\nasked\ntidied\n");
    assert!(
        ran.err
            .contains("latchgate: deploy: to be released within "),
        "{ran:?}"
    );
    assert!(ran.err.contains("asked for by somebody: a newer one"));
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

#[test]
fn the_lease_is_renewed_while_the_command_ends() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let slow = r#"trap "echo asked; sleep 5; echo tidied; exit 0" TERM; echo up; while :; do sleep 0.02; done"#;
    let mut running = run_sh(&url, &["deploy", "--ttl", "3s"], slow);
    running.printed("up");
    ask_for(&url, "5m");
    let ran = running.wait();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out, "up\nasked\ntidied\n");
    assert_eq!(ran.err.matches("to be released").count(), 1, "{ran:?}");
}

#[test]
fn a_command_that_does_not_end_in_time_is_killed_before_the_lock_is_broken() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let mut running = run_sh(&url, &["deploy", "--ttl", "3s"], STUBBORN);
    running.printed("up");
    let began = Instant::now();
    ask_for(&url, "6s");
    let ran = running.wait();
    assert_eq!(ran.code, Some(102), "{ran:?}");
    assert_eq!(ran.out, "up\nasked\n");
    let why = "somebody asked for the lock, and it was not released in time";
    assert!(ran.err.contains(why), "{ran:?}");
    assert!(
        began.elapsed() > Duration::from_secs(3),
        "it had time to end"
    );
}

#[test]
fn one_that_is_to_ignore_it_goes_on_until_the_lock_is_broken() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let arguments = [
        "deploy",
        "--ttl",
        "3s",
        "--on-request",
        "ignore",
        "--on-lost",
        "continue",
    ];
    let script =
        r#"trap "echo asked" TERM; echo up; while [ ! -e "$GO" ]; do sleep 0.02; done; exit 5"#;
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let script = format!("GO={}; {script}", go.display());
    let mut running = run_sh(&url, &arguments, &script);
    running.printed("up");
    ask_for(&url, "3s");
    running.said("to be released within ");
    until("it is broken", || {
        inspect(&url, "deploy") == "deploy is free\n"
    });
    running.said("the lease is lost, the command goes on");
    assert!(!running.has_ended());
    std::fs::write(&go, "").unwrap();
    let ran = running.wait();
    // What is left running gets a TERM when the command has ended, and not before.
    assert_eq!((ran.code, ran.out.as_str()), (Some(5), "up\n"), "{ran:?}");
}
