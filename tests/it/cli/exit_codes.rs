//! The exit code says what a script needs to know.

use std::net::TcpListener;

use crate::support::{
    fake_gateway::{FakeGateway, Reply},
    gateway::Gateway,
    program::{Ran, latchgate},
};

/// A token that never held anything.
const NO_TOKEN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn run(url: &str, arguments: &[&str]) -> Ran {
    latchgate(arguments)
        .env("LATCHGATE_URL", url)
        .env("LATCHGATE_TOKEN", NO_TOKEN)
        .read()
}

#[test]
fn a_lock_that_is_held_is_100_and_says_by_whom() {
    let gateway = Gateway::start();
    let url = gateway.url();
    assert_eq!(
        run(&url, &["acquire", "deploy", "--owner", "me@here"]).code,
        Some(0)
    );
    let held = run(&url, &["acquire", "deploy"]);
    assert_eq!((held.code, held.out.as_str()), (Some(100), ""));
    assert!(
        held.err
            .contains("the lock is held by me@here for another "),
        "{held:?}"
    );
}

#[test]
fn a_lost_lease_is_102() {
    let gateway = Gateway::start();
    for command in ["renew", "release"] {
        let lost = run(&gateway.url(), &[command, "deploy"]);
        assert_eq!((lost.code, lost.out.as_str()), (Some(102), ""), "{lost:?}");
    }
}

#[test]
fn no_gateway_is_103() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let unreachable = run(&url, &["acquire", "deploy"]);
    assert_eq!(unreachable.code, Some(103), "{unreachable:?}");
    assert!(unreachable.err.contains(&url), "{unreachable:?}");
}

#[test]
fn what_a_gateway_cannot_do_has_a_code_for_each_reason() {
    for (reply, code) in [
        (Reply::problem(503, "store-unavailable", ""), 104),
        (Reply::problem(503, "draining", ""), 104),
        (Reply::problem(429, "too-many-leases", ""), 104),
        (Reply::problem(504, "outcome-unknown", ""), 105),
        (Reply::Lost, 105),
        (Reply::problem(401, "unauthorized", ""), 106),
        (Reply::problem(409, "idempotency-mismatch", ""), 106),
        (Reply::Answer(201, "<html>".to_owned()), 105),
        (Reply::Answer(302, "<html>".to_owned()), 1),
    ] {
        let gateway = FakeGateway::new([reply.clone()]);
        // It asks for as long as a lease of unknown fate would last.
        let ran = run(
            &gateway.url,
            &["acquire", "deploy", "--ttl", "1s", "--json"],
        );
        assert_eq!(ran.code, Some(code), "{reply:?}: {ran:?}");
        // With --json a problem is on standard output as the gateway sent it.
        if let Reply::Answer(400.., body) = reply {
            assert_eq!(ran.out, body + "\n");
        }
    }
}

#[test]
fn a_wrong_command_line_is_2() {
    for arguments in [
        &["acquire"][..],
        &["acquire", "a/b"],
        &["acquire", "a", "--ttl", "30"],
        &["acquire", "a", "--owner", ""],
        &["acquire", "a", "--meta", "novalue"],
        &["acquire", "a", "--meta", "n=1", "--meta", "n=2"],
        &["acquire", "a", "--url", "nonsense"],
        &["acquire", "a", "--token", "x"],
        &["list", "--limit", "0"],
        &["renew", "a", "--token", "x"],
        &["renew", "a", "--token-file", "/does/not/exist"],
        &["serve", "--listen", "nowhere"],
        &["config", "check", "--config", "/does/not/exist"],
        &["--listen", "127.0.0.1:0", "acquire", "a"],
        &["nonsense"],
    ] {
        let ran = run("http://127.0.0.1:1", arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(
            ran.out.is_empty() && !ran.err.is_empty(),
            "{arguments:?}: {ran:?}"
        );
    }
}

#[test]
fn help_and_version_are_0() {
    for argument in ["--help", "--version", "-h"] {
        assert_eq!(run("", &[argument]).code, Some(0));
    }
}

#[test]
fn the_version_says_from_which_commit_it_was_built() {
    let ran = run("", &["--version"]);
    let expected = format!(
        "latchgate {} ({})\n",
        env!("CARGO_PKG_VERSION"),
        latchgate::release::COMMIT
    );
    assert_eq!(ran.out, expected);
}
