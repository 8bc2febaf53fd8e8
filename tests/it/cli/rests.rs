//! Minimum holds on the command line: requests and output with a fake gateway, and real commands on the embedded store.

use crate::cli::prelude::*;

const TOKEN: &str = "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU";

fn lease() -> Reply {
    let lease = json!({
        "name": "job", "token": TOKEN, "fencing_token": 42, "mode": "exclusive", "slot": null,
        "ttl_ms": 600_000, "expires_in_ms": 600_000, "renew_after_ms": 200_000,
    });
    Reply::Answer(201, lease.to_string())
}

#[test]
fn a_ttl_that_is_shorter_is_raised_to_the_minimum_hold() {
    for (arguments, ttl, min_hold) in [
        // The gateway raises the TTL that it gives by default.
        (&["--min-hold", "10m"][..], json!(null), json!(600_000)),
        (
            &["--min-hold", "10m", "--ttl", "1m"],
            json!(600_000),
            json!(600_000),
        ),
        (
            &["--min-hold", "10m", "--ttl", "1h"],
            json!(3_600_000),
            json!(600_000),
        ),
        (&["--min-hold", "1s"], json!(null), json!(1_000)),
        (&[], json!(null), json!(null)),
    ] {
        let gateway = FakeGateway::new([lease()]);
        let ran = gateway
            .latchgate(&[&["acquire", "job"], arguments].concat())
            .read();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let body: Value = serde_json::from_str(&gateway.received()[0].body).unwrap();
        assert_eq!((&body["ttl_ms"], &body["min_hold_ms"]), (&ttl, &min_hold));
    }
}

#[test]
fn a_job_runs_once_in_its_window_until_an_operator_ends_the_rest() {
    let gateway = Gateway::start();
    let run = "run job --min-hold 10m --wait 0 -- echo done";
    gateway.typed(run).read().gives(0, "done\n");
    let again = gateway.typed(run).ends(100);
    assert_has(&again.err, "rests for another 9m");
    let shown = gateway.typed("inspect job").ends(0);
    assert_has(&shown.out, "job is resting\n  available in   9m");
    let listed = gateway.typed("list").ends(0);
    assert_has(&listed.out, "resting");
    let broken = gateway.typed("break job --reason x --yes").ends(0);
    assert_has(&broken.err, "job rests after its last lease, fencing token");
    assert_has(&broken.err, "broke job: its last lease");
    gateway
        .typed("inspect job")
        .read()
        .gives(0, "job is free\n");
    gateway.typed(run).read().gives(0, "done\n");
}

/// Writes an executable script, and returns its path.
fn script(directory: &TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_command_that_could_not_start_uses_no_window_up() {
    let gateway = Gateway::start();
    let directory = tempfile::tempdir().unwrap();
    let broken = script(&directory, "broken", "#!/no/such/interpreter\n");
    // Only the system finds out that the interpreter of the interpreter is missing.
    let nested = script(&directory, "nested", &format!("#!{broken}\n"));
    let run = ["run", "job", "--min-hold", "10m", "--wait", "0", "--"];
    let ran = |command: &[&str]| {
        let arguments = [&run, command].concat();
        let gateway = latchgate(&arguments).env("LATCHGATE_URL", &gateway.url());
        gateway.read()
    };
    let cannot = ran(&[&nested]);
    assert_eq!(cannot.code, Some(127), "{cannot:?}");
    cannot.begins(format!("latchgate: cannot start {nested}: "));
    gateway
        .typed("inspect job")
        .read()
        .gives(0, "job is free\n");
    // A shell has started, and has not found its command.
    let found = ran(&["sh", "-c", "/no/such/command"]);
    assert_eq!(found.code, Some(127), "{found:?}");
    gateway.typed("run job --wait 0 -- true").ends(100);
}

#[test]
fn a_script_without_its_interpreter_is_refused_before_the_wait() {
    let directory = tempfile::tempdir().unwrap();
    for (line, missing) in [
        ("#!/bin/sh\r\n", r#""/bin/sh\r""#),
        ("#! /usr/bin/env sh\r\n", r#""sh\r""#),
        ("#!/no/such/interpreter -x\n", r#""/no/such/interpreter""#),
        (
            "#!/usr/bin/env no-such-interpreter\n",
            r#""no-such-interpreter""#,
        ),
    ] {
        let path = script(&directory, "job", line);
        let gateway = FakeGateway::new([lease()]);
        let ran = gateway.latchgate(&["run", "job", "--", &path]).read();
        assert_eq!(ran.code, Some(127), "{ran:?}");
        ran.says(format!(
            "its first line names {missing}, which does not exist"
        ));
        assert_eq!(gateway.received().len(), 0);
    }
    for line in ["", "#!", "#!/bin/sh\n", "#!/usr/bin/env -S sh -x\n"] {
        let path = script(&directory, "job", line);
        let gateway = FakeGateway::new([lease(), Reply::Answer(204, String::new())]);
        gateway.latchgate(&["run", "job", "--", &path]).read();
        assert_eq!(gateway.received().len(), 2, "{line:?}");
    }
}

#[test]
fn so_many_run_in_each_period_and_the_next_wait_for_their_turn() {
    let gateway = Gateway::start();
    let run = "run pool --limit 2 --min-hold 10s";
    let began = Instant::now();
    for _ in 0..2 {
        gateway.typed(&format!("{run} --wait 0 -- true")).ends(0);
    }
    gateway.typed(&format!("{run} --wait 0 -- true")).ends(100);
    gateway.typed(&format!("{run} -- true")).ends(0);
    assert!(began.elapsed() >= Duration::from_secs(10));
}
