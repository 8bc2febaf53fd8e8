//! The commands for a lease at a real gateway: for one lock, for several, and with a wait.

use crate::cli::prelude::*;

#[test]
fn a_lease_from_acquire_to_release() {
    let gateway = Gateway::start();
    let acquired = gateway
        .typed("acquire acme/deploy --ttl 20s --owner me")
        .ends(0);
    let token = acquired.out.trim_end();
    assert_eq!(acquired.out, format!("{token}\n"));
    assert_eq!(token.len(), 43);
    acquired.begins("acquired acme/deploy: fencing token ");
    assert!(!acquired.err.contains(token));

    let inspected = gateway.typed("inspect acme/deploy").read();
    assert!(
        inspected
            .out
            .starts_with("acme/deploy is held\n  owner          me\n"),
        "{inspected:?}"
    );

    let renewed = gateway
        .typed("renew acme/deploy --ttl 1m --json")
        .token(token)
        .read();
    let lease = renewed.json();
    assert_eq!(lease["ttl_ms"], 60_000);

    let released = gateway.typed("release acme/deploy").token(token).read();
    released.gives(0, "");
    assert_eq!(
        gateway.typed("inspect acme/deploy").read().out,
        "acme/deploy is free\n"
    );
}

#[test]
fn json_is_the_gateways_own_answer() {
    let gateway = Gateway::start();
    let acquired = gateway
        .typed("acquire deploy --json --meta a=1 --meta b=x=y --max-hold 1h")
        .env("USER", "ci")
        .read();
    let lease = acquired.json();
    assert_eq!(lease["metadata"], serde_json::json!({"a": "1", "b": "x=y"}));
    assert!(lease["hold_expires_in_ms"].as_u64() > Some(3_500_000));
    assert!(
        lease["owner"].as_str().unwrap().starts_with("ci@"),
        "{lease}"
    );
    assert_eq!(acquired.err, "");

    let held = gateway.typed("acquire deploy --json").read();
    let problem = held.json();
    assert_eq!(problem["code"], "locked");

    let inspected = gateway.typed("inspect deploy --json").read();
    let lock = inspected.json();
    assert_eq!(lock["holders"][0]["fencing_token"], lease["fencing_token"]);
}

#[test]
fn a_token_may_come_from_a_file_or_from_standard_input() {
    let gateway = Gateway::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let path = file.to_str().unwrap();
    let token = gateway.typed("acquire deploy").read().out;
    fs::write(&file, &token).unwrap();
    let renew = |arguments: &[&str]| gateway.latchgate(&[&["renew", "deploy"], arguments].concat());
    assert_eq!(renew(&["--token-file", path]).read().code, Some(0));
    renew(&["--token-file", "-"]).input(&token).ends(0);
    renew(&[]).env("LATCHGATE_TOKEN_FILE", path).ends(0);
    // The flag wins over the environment variable.
    let other = "A".repeat(43);
    renew(&["--token-file", path]).token(&other).ends(0);
}

#[test]
fn the_same_idempotency_key_gives_the_same_token() {
    let gateway = Gateway::start();
    let key = "5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11";
    let from_variable = || {
        gateway
            .typed("acquire deploy")
            .env("LATCHGATE_IDEMPOTENCY_KEY", key)
            .read()
    };
    let from_input = gateway
        .typed("acquire deploy --idempotency-key-file -")
        .input(key)
        .ends(0);
    assert_eq!(from_variable().out, from_input.out);
    assert_eq!(from_variable().out, from_input.out);
}

#[test]
fn a_release_that_is_repeated_is_done_again_if_the_lease_has_a_key() {
    let gateway = Gateway::start();
    let release = |token: &str| {
        let release = gateway.typed("release deploy");
        release.token(token).read()
    };
    // The program always sends an idempotency key, so a release may be repeated.
    let acquired = gateway.typed("acquire deploy").read();
    for _ in 0..2 {
        let released = release(acquired.out.trim_end()).ends(0);
        assert_eq!(released.err, "released deploy\n");
    }
    let url = format!("{}/locks/deploy", gateway.url());
    let curl = spawn::command("curl")
        .args(["--silent", "-X", "POST", &url])
        .output()
        .unwrap();
    let lease: Value = serde_json::from_slice(&curl.stdout).unwrap();
    let token = lease["token"].as_str().unwrap();
    assert_eq!(release(token).code, Some(0));
    let again = release(token).ends(102);
    again.says("If this repeats a release whose answer was lost");
}

#[cfg(target_os = "linux")]
#[test]
fn a_lease_whose_token_cannot_be_written_is_released() {
    let gateway = Gateway::start();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let acquired = gateway.typed("acquire deploy").out(full).run().ends(1);
    acquired.says("the lease was released");
    assert_eq!(
        gateway.typed("inspect deploy").read().out,
        "deploy is free\n"
    );
}

fn state(gateway: &Gateway, name: &str) -> Value {
    let shown = gateway.typed(&format!("inspect {name} --json")).read();
    let lock = shown.json();
    lock["state"].clone()
}

#[test]
fn several_locks_are_acquired_renewed_and_released_with_one_token() {
    let gateway = Gateway::start();
    let acquired = gateway.typed("acquire b a --ttl 20s").ends(0);
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

    let renewed = gateway.typed("renew a b").token(token).ends(0);
    renewed.begins("renewed a: expires in ");

    gateway.typed("release a").token(token).ends(0);
    // A lost lease is reported, and the other leases are renewed and released.
    let renewed = gateway.typed("renew a b").token(token).ends(102);
    renewed.says("the lease of a is lost");
    let released = gateway.typed("release a b").token(token).ends(102);
    released.begins("released b\n");
    assert_eq!(state(&gateway, "b"), "free");
}

#[test]
fn a_lock_that_is_held_leaves_the_others_free() {
    let gateway = Gateway::start();
    gateway.typed("acquire b").read();
    let refused = gateway.typed("acquire a b c").ends(100);
    assert_eq!(refused.out, "");
    assert_eq!(state(&gateway, "c"), "free");
}

#[test]
fn names_that_are_no_group_are_refused() {
    let gateway = Gateway::start();
    let twice = gateway.typed("acquire a a").ends(2);
    twice.says("has a more than once");
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
    let run = gateway.latchgate(&run).ends(0);
    let lines: Vec<_> = run.out.lines().collect();
    let tokens: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(lines[0], format!("a {}", tokens["a"]));
    assert!(tokens["b"].is_u64(), "{tokens}");
    // Both leases outlive their TTL, because `run` renews them.
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
    gateway
        .typed(&format!("run a b --ttl 3s -- sh -c '{script}' {program}"))
        .ends(102);
    assert_eq!(state(&gateway, "a"), "free");
}

#[test]
fn a_command_is_killed_at_once_if_a_part_was_given_to_another() {
    let (gateway, url) = Gateway::start_and_url();
    let tidy = r#"trap "echo tidying" TERM; echo up; while :; do sleep 0.05; done"#;
    let arguments = ["a", "b", "--ttl", "9s", "--kill-after", "4500ms"];
    let mut losing = begun(&url, &arguments, tidy);
    let mut next = run_sh(&url, &["b"], "echo up; exec sleep 60");
    until("it waits", || waiters(&url, "b") == 1);
    gateway.typed("break b --reason 'it hangs' --yes").ends(0);
    next.printed("up");
    losing.said("the lease of b is lost: The lease of this token was broken by an operator");
    let lost = losing.wait();
    // The command is killed without a TERM before, because another command already works under `b`.
    lost.gives(102, "up\n");
    next.signal(Signal::TERM);
    next.wait();
}

#[test]
fn what_came_of_each_is_printed_as_one_line_of_json() {
    let gateway = Gateway::start();
    let acquired = gateway.typed("acquire a b").read();
    let token = acquired.out.trim_end();
    let ran = |arguments: &[&str]| {
        let run = gateway.latchgate(arguments).token(token);
        run.read()
    };
    assert_eq!(ran(&["release", "a"]).code, Some(0));
    for command in ["renew", "release"] {
        let ran = ran(&[command, "a", "b", "--json"]).ends(102);
        let printed = ran.json();
        assert_eq!(printed["results"][0]["code"], "lease-lost");
        assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn acquire_waits_its_turn_and_tells_a_pipe_how_that_goes() {
    let gateway = Gateway::start();
    let token = gateway.typed("acquire deploy --ttl 5m").read().out;
    let mut command = program();
    command.args(["acquire", "deploy", "--wait", "5m", "--owner", "next"]);
    let mut waiting = start(&gateway.url(), command);
    waiting.said("latchgate: waiting for deploy: ");
    waiting.said(", position 1 of 1, held by ");
    waiting.said(", expires in ");
    let released = gateway.typed("release deploy").token(token.trim_end());
    assert_eq!(released.read().code, Some(0));
    let acquired = waiting.wait();
    assert_eq!(
        (acquired.code, acquired.out.len()),
        (Some(0), 44),
        "{acquired:?}"
    );
    let last = acquired.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("acquired deploy: "), "{acquired:?}");
}

#[test]
fn a_wait_for_several_locks_tells_what_it_has_and_what_it_waits_for() {
    let gateway = Gateway::start();
    let held = ["acquire", "freeze", "--ttl", "5m", "--owner", "ann"];
    let token = gateway.latchgate(&held).ends(0).out;
    let mut command = program();
    command.args([
        "run", "freeze", "api", "deploy", "--owner", "ci-7", "--", "true",
    ]);
    let mut waiting = start(&gateway.url(), command);
    waiting.said("latchgate: have api and 1 more, waiting for freeze: ");
    waiting.said(", position 1 of 1, held by ann, expires in ");
    let shown = gateway.typed("inspect api").ends(0).out;
    assert!(shown.contains("waits for      freeze for "), "{shown}");
    assert!(shown.contains(": held by ann\n"), "{shown}");
    let list = gateway.typed("list").ends(0).out;
    assert_eq!(
        list.matches("ci-7 (waiting for another lock)").count(),
        2,
        "{list}"
    );
    let released = gateway.typed("release freeze").token(token.trim_end());
    assert_eq!(released.read().code, Some(0));
    assert_eq!(waiting.wait().code, Some(0));
}

#[test]
fn a_pipe_is_told_that_the_key_may_not_view_the_lock() {
    let key = Made::new("ci", &["--acquire", "*"]);
    let keys = File::new(&key.toml);
    let gateway = keys.gateway();
    let acquire = ["acquire", "deploy"];
    gateway.latchgate(&acquire).key(&key.key).ends(0);
    let mut command = program();
    command.args(["acquire", "deploy", "--wait", "5m"]);
    command.env("LATCHGATE_KEY", &key.key);
    let waiting = start(&gateway.url(), command);
    waiting.said("waiting for deploy: 1s, the key may not view the lock");
}

#[test]
fn a_wait_that_ran_out_is_101() {
    let gateway = Gateway::start();
    gateway.typed("acquire deploy").read();
    let waited = gateway.typed("acquire deploy --wait 300ms").read();
    waited.gives(101, "");
    assert!(
        gateway
            .typed("acquire deploy --wait 300ms --json")
            .read()
            .out
            .contains(r#""code":"locked""#)
    );
}
