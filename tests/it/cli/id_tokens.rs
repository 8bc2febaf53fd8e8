//! Commands that have no API key, and exchange the ID token of their job for one.

use crate::cli::prelude::*;

const ID_TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0IG9mIHRoZSBqb2I.c2lnbmF0dXJl";
const FREE: &str = r#"{"name":"deploy","state":"free","holders":[],"holder_count":0,"waiters":[],"waiter_count":0}"#;
const LEASE: &str = r#"{"name":"deploy","token":"qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU","fencing_token":7,"ttl_ms":60000,"expires_in_ms":60000,"renew_after_ms":20000}"#;

fn exchanged() -> Reply {
    let body = r#"{"key":"lgx_of_the_job","expires_in_ms":3600000,"name":"ci"}"#;
    Reply::Answer(201, body.to_owned())
}

#[test]
fn a_command_without_an_api_key_exchanges_its_id_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    fs::write(&path, format!("{ID_TOKEN}\n")).unwrap();
    for (variable, value) in [
        ("LATCHGATE_ID_TOKEN", ID_TOKEN),
        ("LATCHGATE_ID_TOKEN_FILE", path.to_str().unwrap()),
    ] {
        let gateway = FakeGateway::new([exchanged(), Reply::Answer(200, FREE.to_owned())]);
        let ran = gateway.typed("inspect deploy").env(variable, value).read();
        ran.gives(0, "deploy is free\n");
        let [exchange, inspect] = gateway.received().try_into().unwrap();
        assert!(
            exchange.line.starts_with("POST /session/token "),
            "{exchange:?}"
        );
        assert_eq!(exchange.header("authorization"), None);
        let body: Value = serde_json::from_str(&exchange.body).unwrap();
        assert_eq!(body, json!({"id_token": ID_TOKEN}));
        assert_eq!(
            inspect.header("authorization"),
            Some("Bearer lgx_of_the_job")
        );
    }
}

#[test]
fn an_api_key_counts_before_an_id_token() {
    let gateway = FakeGateway::new([Reply::Answer(200, FREE.to_owned())]);
    let run = gateway.typed("inspect deploy").key("lgk_a");
    run.env("LATCHGATE_ID_TOKEN", ID_TOKEN).read().ends(0);
    let received = gateway.received();
    assert_eq!(received[0].header("authorization"), Some("Bearer lgk_a"));
}

#[test]
fn the_command_of_run_has_no_id_token() {
    let gateway = FakeGateway::new([
        exchanged(),
        Reply::Answer(201, LEASE.to_owned()),
        Reply::Answer(204, String::new()),
    ]);
    let run = gateway.latchgate(&["run", "deploy", "--", "env"]);
    let ran = run.env("LATCHGATE_ID_TOKEN", ID_TOKEN);
    let ran = ran
        .env("LATCHGATE_ID_TOKEN_FILE", "/run/token")
        .read()
        .ends(0);
    assert!(ran.out.contains("LATCHGATE_FENCING_TOKEN=7\n"), "{ran:?}");
    for secret in ["ID_TOKEN", ID_TOKEN, "lgx_"] {
        assert!(!format!("{ran:?}").contains(secret), "{secret}: {ran:?}");
    }
}

#[test]
fn a_refused_id_token_says_why_and_what_to_do() {
    let detail = r#","detail":"The ID token is refused (time): it has expired.""#;
    let gateway = FakeGateway::new([Reply::problem(401, "unauthorized", detail)]);
    let run = gateway.typed("acquire deploy --wait 1m");
    let refused = run.env("LATCHGATE_ID_TOKEN", ID_TOKEN).read().ends(106);
    refused.says("The ID token is refused (time): it has expired.");
    refused.says("LATCHGATE_ID_TOKEN_FILE");
    refused.says_not(ID_TOKEN);
}

#[test]
fn without_an_id_token_in_its_variable_or_file_nothing_is_sent() {
    for (variable, value, text) in [
        (
            "LATCHGATE_ID_TOKEN",
            "",
            "LATCHGATE_ID_TOKEN is set and empty",
        ),
        (
            "LATCHGATE_ID_TOKEN",
            " ",
            "LATCHGATE_ID_TOKEN: the ID token is empty",
        ),
        (
            "LATCHGATE_ID_TOKEN_FILE",
            "/nowhere/token",
            "LATCHGATE_ID_TOKEN_FILE: cannot read the ID token from /nowhere/token: ",
        ),
    ] {
        let gateway = FakeGateway::new([Reply::Lost]);
        let ran = gateway.typed("inspect deploy").env(variable, value).read();
        ran.ends(2).says(text);
        assert!(gateway.received().is_empty());
    }
}
