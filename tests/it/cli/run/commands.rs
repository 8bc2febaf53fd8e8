//! The environment of a `latchgate run` command, the exit codes for its ends, and release requests while it runs.

use super::fixture::run;
use crate::cli::prelude::*;

#[test]
fn the_command_holds_the_lock_and_its_exit_code_is_ours() {
    let (_gateway, url) = Gateway::start_and_url();
    let script = r#"echo "$LATCHGATE_NAME"; "$LATCHGATE" inspect "$LATCHGATE_NAME" | grep -q "fencing token  $LATCHGATE_FENCING_TOKEN" && exit 7"#;
    let ran = run_sh(&url, &["acme/deploy"], script).wait();
    ran.gives(7, "acme/deploy\n");
    assert_eq!(ran.err, "");
    assert_eq!(inspect(&url, "acme/deploy"), "acme/deploy is free\n");
}

#[test]
fn a_command_that_a_signal_ended_is_128_and_the_signal() {
    let gateway = Gateway::start();
    let ran = run_sh(&gateway.url(), &["deploy"], "kill -KILL $$").wait();
    assert_eq!(ran.code, Some(137), "{ran:?}");
}

#[test]
fn a_command_that_cannot_be_started_leaves_no_lock_behind() {
    let (_gateway, url) = Gateway::start_and_url();
    let found = run(&url, &["deploy", "--", "/no/such/command"]).wait();
    assert_eq!(found.code, Some(127), "{found:?}");
    found.begins("latchgate: cannot start /no/such/command: ");
    run(&url, &["deploy", "--", "/dev/null"]).wait().ends(126);
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

#[test]
fn whether_the_command_can_be_started_is_looked_at_before_the_wait() {
    let (_gateway, url) = Gateway::start_and_url();
    let _holder = held(&url, &["deploy"]);
    let directory = tempfile::tempdir().unwrap();
    let (file, path) = (directory.path().join("file"), directory.path());
    fs::write(&file, "").unwrap();
    let (file, path) = (file.to_str().unwrap(), path.to_str().unwrap());
    for (command, code) in [
        ("./typo.sh", 127),
        ("no-such-command", 127),
        (&format!("{file}/x"), 127),
        (file, 126),
        (path, 126),
    ] {
        let ran = run(&url, &["deploy", "--", command]).wait().ends(code);
        let said = format!("latchgate: cannot start {command}: ");
        ran.begins(&said);
        assert_eq!(ran.err.lines().count(), 1, "it did not wait: {ran:?}");
    }
    assert_eq!(waiters(&url, "deploy"), 0);
}

#[test]
fn a_command_without_the_dashes_before_it_is_told_of_them() {
    for (command, said) in [
        (
            "./deploy.sh",
            "-- is missing before the command: latchgate run NAME -- ./deploy.sh",
        ),
        ("deploy", "-- <CMD>..."),
    ] {
        let ran = latchgate(&["run", "deploy", command]).read();
        assert_eq!(ran.code, Some(2), "{ran:?}");
        ran.says(said);
    }
    let ran = latchgate(&["run", "a//b", "--", "true"]).ends(2);
    ran.says_not("-- is missing");
}

#[test]
fn a_gateway_may_be_configured_under_a_lock() {
    let gateway = Gateway::start();
    let script = r#"env | grep -c ^LATCHGATE_ && "$LATCHGATE" config check"#;
    let arguments = ["a", "b", "--limit", "2", "--token-env"];
    let ran = run_sh(&gateway.url(), &arguments, script).wait().ends(0);
    // The command has the URL of the gateway and all variables that `run` sets.
    assert!(ran.out.starts_with("7\n"), "{ran:?}");
}

#[test]
fn held_and_waited_in_vain_are_two_codes_and_a_pipe_gets_lines_and_no_drawing() {
    let (_gateway, url) = Gateway::start_and_url();
    let _holder = held(&url, &["deploy", "--owner", "me"]);
    let held = run_sh(&url, &["deploy", "--wait", "0"], "echo ran").wait();
    held.gives(100, "");
    let waited = run_sh(&url, &["deploy", "--wait", "1500ms"], "echo ran").wait();
    waited.gives(101, "");
    let last = waited.err.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("latchgate: deploy: the wait ran out: the lock is held by me"),
        "{waited:?}"
    );
    waited.says_not("\x1b");
    // A run that does not wait prints no line about a wait.
    assert_eq!(held.err.lines().count(), 1, "{held:?}");
}

#[test]
fn runs_take_turns_without_a_limit_to_the_wait() {
    let (_gateway, url) = Gateway::start_and_url();
    let _first = begun(&url, &["deploy"], "echo up; exec sleep 1");
    let mut second = run_sh(&url, &["deploy"], "echo second");
    let ran = second.wait();
    ran.gives(0, "second\n");
}

#[test]
fn the_token_is_in_the_environment_only_if_it_was_asked_for() {
    let (_gateway, url) = Gateway::start_and_url();
    let show = r#"echo "[$LATCHGATE_TOKEN]""#;
    // An inherited token belongs to another lease, so it is removed.
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
    ran.gives(103, "");
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
        ran.says(format!("{flag} must be at "));
    }
}

#[test]
fn a_wait_that_is_given_up_is_not_in_the_way_of_the_next() {
    let (_gateway, url) = Gateway::start_and_url();
    let mut holder = held(&url, &["deploy"]);
    let mut patient = run_sh(&url, &["deploy"], "echo patient");
    until("it waits", || waiters(&url, "deploy") == 1);
    let ran = run_sh(&url, &["deploy", "--wait", "200ms"], "echo ran").wait();
    assert_eq!(ran.code, Some(101), "{ran:?}");
    holder.signal(Signal::TERM);
    assert_eq!(holder.wait().code, Some(143));
    assert_eq!(patient.wait().out, "patient\n");
}

/// A command that prints a line when it gets TERM and takes a while to end.
const TIDY: &str = r#"trap "echo asked; sleep 0.3; echo tidied; exit 5" TERM; echo up; while :; do sleep 0.02; done"#;
/// A command that ignores TERM.
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
    let asked = latchgate(&arguments).env("LATCHGATE_URL", url).ends(0);
    let what = format!("requested the release of deploy within {grace}: ");
    asked.says(&what);
}

#[test]
fn the_command_is_asked_to_end_and_its_exit_code_is_its_own() {
    let (_gateway, url) = Gateway::start_and_url();
    let mut running = begun(&url, &["deploy", "--ttl", "3s"], TIDY);
    // The grace is far longer than the lease: `run` renews until the command has ended.
    ask_for(&url, "5m");
    assert!(inspect(&url, "deploy").contains("requested by somebody: a newer one"));
    let ran = running.wait().ends(5);
    assert_eq!(ran.out, "up\nasked\ntidied\n");
    ran.says("latchgate: deploy: to be released within ");
    assert!(ran.err.contains("requested by somebody: a newer one"));
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

#[test]
fn a_grace_that_is_shorter_than_the_lease_is_time_to_end_too() {
    let (_gateway, url) = Gateway::start_and_url();
    let mut running = begun(&url, &["deploy", "--ttl", "9s"], TIDY);
    ask_for(&url, "5s");
    let ran = running.wait().ends(5);
    assert_eq!(ran.out, "up\nasked\ntidied\n");
    assert!(!ran.err.contains("stopping the command"), "{ran:?}");
}

#[test]
fn the_lease_is_renewed_while_the_command_ends() {
    let (_gateway, url) = Gateway::start_and_url();
    let slow = r#"trap "echo asked; sleep 5; echo tidied; exit 0" TERM; echo up; while :; do sleep 0.02; done"#;
    let mut running = begun(&url, &["deploy", "--ttl", "3s"], slow);
    ask_for(&url, "5m");
    let ran = running.wait().ends(0);
    assert_eq!(ran.out, "up\nasked\ntidied\n");
    assert_eq!(ran.err.matches("to be released").count(), 1, "{ran:?}");
}

#[test]
fn a_command_that_does_not_end_in_time_is_killed_before_the_lock_is_broken() {
    let (_gateway, url) = Gateway::start_and_url();
    let mut running = begun(&url, &["deploy", "--ttl", "3s"], STUBBORN);
    let began = Instant::now();
    ask_for(&url, "6s");
    let ran = running.wait().ends(102);
    assert_eq!(ran.out, "up\nasked\n");
    let why = "a release of the lock was requested, and the lock was not released in time";
    ran.says(why);
    assert!(
        began.elapsed() > Duration::from_secs(3),
        "it had time to end"
    );
}

#[test]
fn one_that_is_to_ignore_it_goes_on_until_the_lock_is_broken() {
    let (_gateway, url) = Gateway::start_and_url();
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
    let mut running = begun(&url, &arguments, &script);
    ask_for(&url, "3s");
    running.said("to be released within ");
    until_free(&url);
    running.said("the lease is lost, the command goes on");
    assert!(!running.has_ended());
    fs::write(&go, "").unwrap();
    let ran = running.wait();
    // The command got no TERM.
    ran.gives(102, "up\n");
    ran.says("the command ended with exit code 5, but the lease was lost before");
}
