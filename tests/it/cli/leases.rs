//! The commands around a lease, against a real gateway.

use std::fs;

use serde_json::Value;

use crate::support::{
    gateway::Gateway,
    program::{Run, latchgate},
    spawn,
};

fn on(gateway: &Gateway, arguments: &[&str]) -> Run {
    latchgate(arguments).env("LATCHGATE_URL", &gateway.url())
}

#[test]
fn a_lease_from_acquire_to_release() {
    let gateway = Gateway::start();
    let acquired = on(
        &gateway,
        &["acquire", "deploy", "--ttl", "20s", "--owner", "me"],
    )
    .read();
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
    let token = acquired.out.trim_end();
    assert_eq!(acquired.out, format!("{token}\n"));
    assert_eq!(token.len(), 43);
    assert!(
        acquired.err.starts_with("acquired deploy: fencing token "),
        "{acquired:?}"
    );
    assert!(!acquired.err.contains(token));

    let inspected = on(&gateway, &["inspect", "deploy"]).read();
    assert!(
        inspected
            .out
            .starts_with("deploy is held\n  owner          me\n"),
        "{inspected:?}"
    );

    let renew = ["renew", "deploy", "--ttl", "1m", "--json"];
    let renewed = on(&gateway, &renew).env("LATCHGATE_TOKEN", token).read();
    let lease: Value = serde_json::from_str(&renewed.out).unwrap();
    assert_eq!(lease["ttl_ms"], 60_000);

    let released = on(&gateway, &["release", "deploy"])
        .env("LATCHGATE_TOKEN", token)
        .read();
    assert_eq!((released.code, released.out.as_str()), (Some(0), ""));
    assert_eq!(
        on(&gateway, &["inspect", "deploy"]).read().out,
        "deploy is free\n"
    );
}

#[test]
fn json_is_the_gateways_own_answer() {
    let gateway = Gateway::start();
    let arguments = [
        "acquire",
        "deploy",
        "--json",
        "--meta",
        "a=1",
        "--meta",
        "b=x=y",
        "--max-hold",
        "1h",
    ];
    let acquired = on(&gateway, &arguments).env("USER", "ci").read();
    let lease: Value = serde_json::from_str(&acquired.out).unwrap();
    assert_eq!(lease["metadata"], serde_json::json!({"a": "1", "b": "x=y"}));
    assert!(lease["hold_expires_in_ms"].as_u64() > Some(3_500_000));
    assert!(
        lease["owner"].as_str().unwrap().starts_with("ci@"),
        "{lease}"
    );
    assert_eq!(acquired.err, "");

    let held = on(&gateway, &["acquire", "deploy", "--json"]).read();
    let problem: Value = serde_json::from_str(&held.out).unwrap();
    assert_eq!(problem["code"], "locked");

    let inspected = on(&gateway, &["inspect", "deploy", "--json"]).read();
    let lock: Value = serde_json::from_str(&inspected.out).unwrap();
    assert_eq!(lock["holders"][0]["fencing_token"], lease["fencing_token"]);
}

#[test]
fn a_token_may_come_from_a_file_or_from_standard_input() {
    let gateway = Gateway::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let path = file.to_str().unwrap();
    let token = on(&gateway, &["acquire", "deploy"]).read().out;
    fs::write(&file, &token).unwrap();
    let renew = |arguments: &[&str]| on(&gateway, &[&["renew", "deploy"], arguments].concat());
    assert_eq!(renew(&["--token-file", path]).read().code, Some(0));
    assert_eq!(
        renew(&["--token-file", "-"]).input(&token).read().code,
        Some(0)
    );
    assert_eq!(
        renew(&[]).env("LATCHGATE_TOKEN_FILE", path).read().code,
        Some(0)
    );
    // The flag is stronger than the variable.
    let other = "A".repeat(43);
    let renewed = renew(&["--token-file", path])
        .env("LATCHGATE_TOKEN", &other)
        .read();
    assert_eq!(renewed.code, Some(0));
}

#[test]
fn the_same_idempotency_key_gives_the_same_token() {
    let gateway = Gateway::start();
    let key = "5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11";
    let from_variable = || {
        on(&gateway, &["acquire", "deploy"])
            .env("LATCHGATE_IDEMPOTENCY_KEY", key)
            .read()
    };
    let from_input = on(
        &gateway,
        &["acquire", "deploy", "--idempotency-key-file", "-"],
    )
    .input(key)
    .read();
    assert_eq!(from_input.code, Some(0), "{from_input:?}");
    assert_eq!(from_variable().out, from_input.out);
    assert_eq!(from_variable().out, from_input.out);
}

#[test]
fn a_release_that_is_repeated_is_done_again_if_the_lease_has_a_key() {
    let gateway = Gateway::start();
    let release = |token: &str| {
        let release = on(&gateway, &["release", "deploy"]);
        release.env("LATCHGATE_TOKEN", token).read()
    };
    // The program always sends one.
    let acquired = on(&gateway, &["acquire", "deploy"]).read();
    for _ in 0..2 {
        let released = release(acquired.out.trim_end());
        assert_eq!(released.code, Some(0), "{released:?}");
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
    let again = release(token);
    assert_eq!(again.code, Some(102), "{again:?}");
    assert!(
        again
            .err
            .contains("If this repeats a release whose answer was lost"),
        "{again:?}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_lease_whose_token_cannot_be_written_is_released() {
    let gateway = Gateway::start();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let acquired = on(&gateway, &["acquire", "deploy"]).out(full).run();
    assert_eq!(acquired.code, Some(1));
    assert!(
        acquired.err.contains("the lease was released"),
        "{acquired:?}"
    );
    assert_eq!(
        on(&gateway, &["inspect", "deploy"]).read().out,
        "deploy is free\n"
    );
}
