//! What the command finds, and what its end is told as.

use std::net::TcpListener;

use rustix::process::Signal;

use super::fixture::{inspect, run, run_sh, until, waiters};
use crate::support::gateway::Gateway;

#[test]
fn the_command_holds_the_lock_and_its_exit_code_is_ours() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let script = r#"echo "$LATCHGATE_NAME"; "$LATCHGATE" inspect "$LATCHGATE_NAME" | grep -q "fencing token  $LATCHGATE_FENCING_TOKEN" && exit 7"#;
    let ran = run_sh(&url, &["deploy"], script).wait();
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(7), "deploy\n"),
        "{ran:?}"
    );
    assert_eq!(ran.err, "");
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

#[test]
fn a_command_that_a_signal_ended_is_128_and_the_signal() {
    let gateway = Gateway::start();
    let ran = run_sh(&gateway.url(), &["deploy"], "kill -KILL $$").wait();
    assert_eq!(ran.code, Some(137), "{ran:?}");
}

#[test]
fn a_command_that_cannot_be_started_leaves_no_lock_behind() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let found = run(&url, &["deploy", "--", "/no/such/command"]).wait();
    assert_eq!(found.code, Some(127), "{found:?}");
    assert!(
        found
            .err
            .starts_with("latchgate: cannot start /no/such/command: "),
        "{found:?}"
    );
    let executable = run(&url, &["deploy", "--", "/dev/null"]).wait();
    assert_eq!(executable.code, Some(126), "{executable:?}");
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

#[test]
fn whether_the_command_can_be_started_is_looked_at_before_the_wait() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let holder = run_sh(&url, &["deploy"], "echo up; exec sleep 60");
    holder.printed("up");
    let directory = tempfile::tempdir().unwrap();
    let (file, path) = (directory.path().join("file"), directory.path());
    std::fs::write(&file, "").unwrap();
    let (file, path) = (file.to_str().unwrap(), path.to_str().unwrap());
    for (command, code) in [
        ("./typo.sh", 127),
        ("no-such-command", 127),
        (&format!("{file}/x"), 127),
        (file, 126),
        (path, 126),
    ] {
        let ran = run(&url, &["deploy", "--", command]).wait();
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let said = format!("latchgate: cannot start {command}: ");
        assert!(ran.err.starts_with(&said), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "it did not wait: {ran:?}");
    }
    assert_eq!(waiters(&url, "deploy"), 0);
}

#[test]
fn a_gateway_may_be_configured_under_a_lock() {
    let gateway = Gateway::start();
    let script = r#"env | grep -c ^LATCHGATE_ && "$LATCHGATE" config check"#;
    let arguments = ["a", "b", "--limit", "2", "--token-env"];
    let ran = run_sh(&gateway.url(), &arguments, script).wait();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // The address, and all that `run` sets.
    assert!(ran.out.starts_with("7\n"), "{ran:?}");
}

#[test]
fn held_and_waited_in_vain_are_two_codes_and_a_pipe_gets_lines_and_no_drawing() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let holder = run_sh(&url, &["deploy", "--owner", "me"], "echo up; exec sleep 60");
    holder.printed("up");
    let held = run_sh(&url, &["deploy", "--wait", "0"], "echo ran").wait();
    assert_eq!((held.code, held.out.as_str()), (Some(100), ""), "{held:?}");
    let waited = run_sh(&url, &["deploy", "--wait", "1500ms"], "echo ran").wait();
    assert_eq!(
        (waited.code, waited.out.as_str()),
        (Some(101), ""),
        "{waited:?}"
    );
    let last = waited.err.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("latchgate: the wait ran out: the lock is held by me"),
        "{waited:?}"
    );
    assert!(!waited.err.contains('\x1b'), "{waited:?}");
    // One that does not wait says nothing of a wait.
    assert_eq!(held.err.lines().count(), 1, "{held:?}");
}

#[test]
fn runs_take_turns_without_a_limit_to_the_wait() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let first = run_sh(&url, &["deploy"], "echo up; exec sleep 1");
    first.printed("up");
    let mut second = run_sh(&url, &["deploy"], "echo second");
    let ran = second.wait();
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "second\n"),
        "{ran:?}"
    );
}

#[test]
fn the_token_is_in_the_environment_only_if_it_was_asked_for() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let show = r#"echo "[$LATCHGATE_TOKEN]""#;
    // An inherited one is that of another lease.
    let nested = r#""$LATCHGATE" run inner -- sh -c 'echo "[$LATCHGATE_TOKEN]"'"#;
    assert_eq!(run_sh(&url, &["deploy"], show).wait().out, "[]\n");
    let asked = run_sh(&url, &["deploy", "--token-env"], show).wait();
    assert_eq!(asked.out.trim_end().len(), 43 + 2, "{asked:?}");
    assert_eq!(
        run_sh(&url, &["deploy", "--token-env"], nested).wait().out,
        "[]\n"
    );
}

#[test]
fn where_there_is_no_gateway_nothing_is_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ran = run_sh(&url, &["deploy"], "echo ran").wait();
    assert_eq!((ran.code, ran.out.as_str()), (Some(103), ""), "{ran:?}");
}

#[test]
fn times_that_cannot_work_are_refused_before_anything_is_asked() {
    for (flag, times) in [
        ("--ttl", ["--ttl", "999ms"].as_slice()),
        ("--kill-after", &["--ttl", "10s", "--kill-after", "5001ms"]),
    ] {
        let arguments = [&["deploy"], times].concat();
        let ran = run_sh("http://127.0.0.1:1", &arguments, "echo ran").wait();
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(&format!("{flag} must be at ")), "{ran:?}");
    }
}

#[test]
fn a_wait_that_is_given_up_is_not_in_the_way_of_the_next() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let mut holder = run_sh(&url, &["deploy"], "echo up; exec sleep 60");
    holder.printed("up");
    let mut patient = run_sh(&url, &["deploy"], "echo patient");
    until("it waits", || waiters(&url, "deploy") == 1);
    let ran = run_sh(&url, &["deploy", "--wait", "200ms"], "echo ran").wait();
    assert_eq!(ran.code, Some(101), "{ran:?}");
    holder.signal(Signal::TERM);
    assert_eq!(holder.wait().code, Some(143));
    assert_eq!(patient.wait().out, "patient\n");
}
