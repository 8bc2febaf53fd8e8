//! Secrets come in by safe ways and do not come out.

use crate::support::{
    fake_gateway::{FakeGateway, Reply},
    program::latchgate,
};

use super::key_fixture::{File, Made};

#[test]
fn without_a_token_the_ways_to_give_one_are_named() {
    let ran = latchgate(&["release", "deploy"]).read();
    assert_eq!(ran.code, Some(2));
    assert_eq!(
        ran.err,
        "latchgate: no token: set LATCHGATE_TOKEN, or name a file with --token-file \
         (- reads standard input)\n"
    );
}

#[test]
fn a_secret_that_is_none_is_not_repeated() {
    for (variable, value, arguments) in [
        ("LATCHGATE_TOKEN", "s3cret s3cret", &["renew", "deploy"][..]),
        ("LATCHGATE_KEY", "s3cret s3cret", &["inspect", "deploy"]),
        (
            "LATCHGATE_IDEMPOTENCY_KEY",
            "s3cret s3cret",
            &["acquire", "deploy"],
        ),
        ("LATCHGATE_URL", "http://u:s3cret@h", &["inspect", "deploy"]),
    ] {
        let ran = latchgate(arguments).env(variable, value).read();
        assert_eq!(ran.code, Some(2), "{variable}: {ran:?}");
        assert!(!ran.err.contains("s3cret"), "{variable}: {ran:?}");
    }
}

#[test]
fn an_empty_variable_is_not_the_same_as_none() {
    // What `LATCHGATE_TOKEN=$(..)` leaves behind when the command in it failed.
    let ran = latchgate(&["release", "deploy"])
        .env("LATCHGATE_TOKEN", "")
        .read();
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err
            .contains("what LATCHGATE_TOKEN holds is not a token"),
        "{ran:?}"
    );
}

#[test]
fn no_variable_of_a_client_may_be_empty() {
    for (variable, command) in [
        ("LATCHGATE_URL", "inspect"),
        ("LATCHGATE_CA_FILE", "inspect"),
        ("LATCHGATE_CLIENT_CERT_FILE", "inspect"),
        ("LATCHGATE_CLIENT_KEY_FILE", "inspect"),
        ("LATCHGATE_KEY", "inspect"),
        ("LATCHGATE_KEY_FILE", "inspect"),
        ("LATCHGATE_TOKEN", "renew"),
        ("LATCHGATE_TOKEN_FILE", "renew"),
        ("LATCHGATE_IDEMPOTENCY_KEY", "acquire"),
        ("LATCHGATE_IDEMPOTENCY_KEY_FILE", "acquire"),
    ] {
        let ran = latchgate(&[command, "deploy"]).env(variable, "").read();
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.err.contains(variable), "{variable}: {ran:?}");
    }
    let gateway = FakeGateway::new([Reply::problem(401, "unauthorized", "")]);
    // A flag is stronger than its variable, whatever that holds.
    let ran = latchgate(&["inspect", "deploy", "--url", &gateway.url])
        .env("LATCHGATE_URL", "")
        .read();
    assert_eq!(ran.code, Some(106), "{ran:?}");
}

#[test]
fn the_api_key_travels_as_a_bearer() {
    let gateway = FakeGateway::new([Reply::problem(401, "unauthorized", "")]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "fr0m-file\n").unwrap();
    let inspect = ["inspect", "deploy", "--url", &gateway.url];
    let ran = latchgate(&inspect)
        .env("LATCHGATE_KEY", "fr0m-variable")
        .read();
    assert!(!ran.err.contains("fr0m"), "{ran:?}");
    let with_file = [&inspect[..], &["--key-file", file.to_str().unwrap()]].concat();
    latchgate(&with_file).read();
    let received = gateway.received();
    assert_eq!(
        received[0].header("authorization"),
        Some("Bearer fr0m-variable")
    );
    assert_eq!(
        received[1].header("authorization"),
        Some("Bearer fr0m-file")
    );
}

#[test]
fn what_a_gateway_lacks_is_named_as_the_command_line_has_it() {
    let key = Made::new("ci", &["--acquire", "*", "--max-ttl", "1m"]);
    let file = File::new(&key.toml);
    let gateway = file.gateway();
    let refused = |arguments: &[&str], key: Option<&str>| {
        let mut ran = latchgate(arguments).env("LATCHGATE_URL", &gateway.url());
        if let Some(key) = key {
            ran = ran.env("LATCHGATE_KEY", key);
        }
        let ran = ran.read();
        assert_eq!(ran.code, Some(106), "{ran:?}");
        ran.err
    };
    let missing = refused(&["acquire", "deploy"], None);
    let said =
        "has no API key. Name a file with it by --key-file, or set LATCHGATE_KEY (unauthorized";
    assert!(missing.contains(said), "{missing}");
    let long = refused(&["acquire", "deploy", "--ttl", "2m"], Some(&key.key));
    let said = "--ttl is 120000 ms; the API key may ask for at most 60000 ms";
    assert!(long.contains(said), "{long}");
    let arguments = ["acquire", "deploy", "--ttl", "1ms", "--max-hold", "1ms"];
    let several = refused(&arguments, Some(&key.key));
    assert!(several.contains("request: --ttl is 1 ms;"), "{several}");
    assert!(several.contains("; --max-hold "), "{several}");
}

#[test]
fn the_password_of_a_store_is_masked() {
    let ran = latchgate(&["config", "check"])
        .env("LATCHGATE_STORE", "redis://app:s3cret@cache:6380/3")
        .read();
    assert_eq!(ran.code, Some(0));
    assert_eq!(
        ran.out,
        "the configuration is valid; it sets\n  store = \"redis://app:***@cache:6380/3\"  \
         # the environment variable LATCHGATE_STORE\n"
    );
}
