//! What a keys file may contain, and the error messages for what it may not.

use std::{sync::Arc, time::Duration};

use crate::auth::{ApiKey, KeyEntry, KeysFile, Permissions, Rate};

/// The `ID:sha256:HASH` of a new random API key, as a keys file has it.
fn secret() -> String {
    let key = ApiKey::random();
    format!("{}:sha256:{}", key.id(), key.hash())
}

fn keys(text: &str) -> Vec<Arc<KeyEntry>> {
    let ring = KeysFile::new("keys.toml").parse(text);
    ring.unwrap_or_else(|error| panic!("{error}"))
        .keys()
        .to_vec()
}

fn error(text: &str) -> String {
    let ring = KeysFile::new("keys.toml").parse(text);
    ring.unwrap_err().to_string()
}

/// The error message for a keys file whose key has these additional lines.
fn error_of(lines: &str) -> String {
    let secret = secret();
    let message = error(&format!(
        "[[key]]\nname = 'ci'\nsecrets = ['{secret}']\n{lines}\n"
    ));
    assert!(!message.contains(&secret), "{message}");
    message
}

#[test]
fn a_key_says_everything_about_itself() {
    let (a, b) = (secret(), secret());
    let text = format!(
        "[[key]]\nname = 'ci'\nsecrets = ['{a}', '{b}']\nacquire = ['ci:', 'deploy:']\n\
         view = ['*']\nbreak = ['ci:']\nmetrics = true\nexpires_at = 2027-01-31T00:00:00Z\n\
         max_ttl_ms = 60_000\nrequests_per_second = 5\nburst = 20\nmax_leases = 10\n\
         max_waiters = 0\nmax_streams = 3\n[[key]]\nname = 'b'\nsecrets = ['{}']\n",
        secret()
    );
    let keys = keys(&text);
    let key = &keys[0];
    assert_eq!(&*key.name, "ci");
    assert_eq!(key.secrets.len(), 2);
    assert_eq!(
        serde_json::to_string(&key.permissions).unwrap(),
        r#"{"acquire":["ci:","deploy:"],"view":["*"],"break":["ci:"],"reserve":[],"order":[],"check":[],"metrics":true}"#
    );
    let end = key.expires_at.unwrap();
    assert_eq!(
        humantime::format_rfc3339(end).to_string(),
        "2027-01-31T00:00:00Z"
    );
    assert!(key.is_expired(end) && !key.is_expired(end - Duration::from_secs(1)));
    let limits = key.limits;
    assert_eq!(limits.max_ttl.unwrap().as_millis(), 60_000);
    let (per_second, burst) = (5.0, 20.0);
    assert_eq!(limits.rate, Some(Rate { per_second, burst }));
    assert_eq!(limits.max_leases, Some(10));
    assert_eq!((limits.max_waiters, limits.max_streams), (Some(0), Some(3)));
    let bare = &keys[1];
    assert_eq!(bare.permissions, Permissions::default());
    assert!(bare.expires_at.is_none() && bare.limits.rate.is_none());
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_what_is_allowed() {
    assert_eq!(
        error_of("max_ttl_ms = 50"),
        "max_ttl_ms of the key \"ci\" is 50 (line 4 of keys.toml); allowed is a whole number from \
         100 to 86400000"
    );
    assert_eq!(
        error_of("expires_at = '31.1.2027'"),
        "expires_at of the key \"ci\" is \"31.1.2027\" (line 4 of keys.toml); allowed is a date \
         and time with its offset, such as 2027-01-31T00:00:00Z"
    );
    for (line, field) in [
        ("acquire = 'ci:'", "acquire"),
        ("acquire = ['ci:', '']", "acquire"),
        ("view = ['ci:*']", "view"),
        ("break = [1]", "break"),
        ("metrics = 1", "metrics"),
        ("requests_per_second = 0", "requests_per_second"),
        ("requests_per_second = 1.5", "requests_per_second"),
        ("burst = 5", "burst"),
        ("max_leases = 0", "max_leases"),
        ("max_waiters = -1", "max_waiters"),
        ("max_streams = 'x'", "max_streams"),
        ("expires_at = 2027-01-31", "expires_at"),
        ("expires_at = 5", "expires_at"),
    ] {
        let message = error_of(line);
        assert!(
            message.starts_with(&format!("{field} of the key \"ci\" is ")),
            "{message}"
        );
        assert!(
            message.contains("(line 4 of keys.toml); allowed is "),
            "{message}"
        );
    }
}

#[test]
fn a_misspelt_field_is_refused_with_a_hint() {
    assert_eq!(
        error_of("aquire = ['ci:']"),
        "there is no aquire of the key \"ci\" (line 4 of keys.toml); did you mean acquire?"
    );
    let message = error_of("[[keys]]");
    assert!(message.contains("allowed is [[key]]"), "{message}");
    assert!(error("key = 1").contains("allowed is [[key]]"));
}

#[test]
fn a_quoted_name_is_no_path_and_a_number_that_is_too_large_no_text() {
    let quoted = format!(
        "\"key[0].name\" = 'ops'\n\"key[0].secrets\" = ['{}']",
        secret()
    );
    assert!(error(&quoted).contains("allowed is [[key]]"));
    assert!(error_of("\".acquire\" = ['ci:']").starts_with("there is no \".acquire\" of the key"));
    let large = error(&format!("[[key]]\nname = {}\nsecrets = []", "9".repeat(20)));
    assert!(large.contains("allowed is 1 to 64 ASCII"), "{large}");
}

#[test]
fn names_and_ids_are_there_once() {
    let (a, b) = (secret(), secret());
    let two = |name: &str, secret: &str| {
        error(&format!(
            "[[key]]\nname = 'a'\nsecrets = ['{a}']\n[[key]]\nname = '{name}'\nsecrets = ['{secret}']"
        ))
    };
    assert!(two("a", &b).starts_with("name of the key \"a\" is \"a\" (line 5"));
    assert!(two("b", &a).starts_with("secrets of the key \"b\" is "));
    let twice = error(&format!("[[key]]\nname = 'a'\nsecrets = ['{a}', '{a}']"));
    assert!(twice.contains("no other secret has"), "{twice}");
}

#[test]
fn a_key_has_a_name_and_one_or_two_secrets() {
    let secrets = [(); 3].map(|()| secret());
    let [a, b, c] = secrets.each_ref().map(String::as_str);
    for (name, secrets, part) in [
        ("", vec![a], "name of [[key]] number 1 is missing"),
        ("name = 'a b'", vec![a], "is \"a b\" (line 3"),
        ("name = 'a'", vec![], "one or two texts"),
        ("name = 'a'", vec![a, b, c], "one or two texts"),
        ("name = 'a'", vec![&a[..70]], "one or two texts"),
    ] {
        let message = error(&format!("[[key]]\nsecrets = {secrets:?}\n{name}"));
        assert!(message.contains(part), "{message}");
    }
    let message = error("[[key]]\nname = 'a'");
    assert!(message.contains("secrets of the key \"a\" is missing"));
}

#[test]
fn an_empty_file_is_refused_because_it_would_shut_everybody_out() {
    for text in ["", "# nothing\n", "key = []"] {
        assert!(error(text).contains("there is no [[key]]"), "{text}");
    }
}

#[test]
fn no_message_repeats_a_key_that_was_put_in_the_wrong_place() {
    let key = ApiKey::random();
    let key = key.expose();
    for text in [
        format!("[[key]]\nname = '{key}'"),
        format!("[[key]]\nname = 'a'\nsecrets = ['{key}']"),
        format!("[[key]]\nname = 'a'\nsecrets = '{key}'"),
        format!("[[key]]\n{key} = 1\nname = 'a'\nsecrets = ['{}']", secret()),
        format!(
            "[[key]]\nname = 'a'\nsecrets = ['{}']\nacquire = ['{key}x*']",
            secret()
        ),
        format!("[[key]]\nname = '{key}\n"),
        key.to_owned(),
        format!("{key} = 1"),
    ] {
        let message = error(&text);
        assert!(!message.contains(&key[4..]), "{message}");
    }
}
