//! What a gateway does not start with.

use crate::support::{
    Authority,
    program::{Ran, latchgate},
};

/// What `serve` and `config check` say of some variables; both say the same.
fn refused(variables: &[(&str, &str)]) -> Ran {
    let run = |arguments: &[&str]| {
        let start = latchgate(arguments);
        let set =
            |run: crate::support::program::Run, (name, value): &(&str, &str)| run.env(name, value);
        variables.iter().fold(start, set).read()
    };
    let (served, checked) = (
        run(&["serve", "--listen", "127.0.0.1:0"]),
        run(&["config", "check"]),
    );
    assert_eq!(
        (served.code, checked.code),
        (Some(2), Some(2)),
        "{served:?} {checked:?}"
    );
    let last = |ran: &Ran| ran.err.lines().last().unwrap_or_default().to_owned();
    let core = last(&checked);
    let core = core.trim_start_matches("latchgate: ");
    assert!(last(&served).contains(core), "{served:?} {checked:?}");
    checked
}

const CERT: &str = "LATCHGATE_HTTP_TLS_CERT_FILE";
const KEY: &str = "LATCHGATE_HTTP_TLS_KEY_FILE";

#[test]
fn a_certificate_that_cannot_be_used_names_key_and_file() {
    let authority = Authority::new();
    let (files, other) = (
        authority.of_this_machine(),
        authority.files("other", &["a"]),
    );
    let (cert, key, ca) = (files.certificate(), files.key(), authority.file());
    for (variables, said) in [
        (
            vec![(CERT, "/nowhere.pem"), (KEY, &key)],
            vec!["http.tls.cert_file cannot be used: /nowhere.pem cannot be read"],
        ),
        (
            vec![(CERT, &cert), (KEY, "/nowhere.key")],
            vec!["http.tls.key_file cannot be used: /nowhere.key cannot be read"],
        ),
        (
            vec![(CERT, &key), (KEY, &key)],
            vec![
                "http.tls.cert_file cannot be used",
                "has no certificate in it",
            ],
        ),
        (
            vec![(CERT, &cert), (KEY, &cert)],
            vec![
                "http.tls.key_file cannot be used",
                "has no private key in it",
            ],
        ),
        (
            vec![(CERT, &cert), (KEY, &other.key())],
            vec![
                "http.tls.cert_file cannot be used",
                "with the key in",
                "(http.tls.key_file)",
            ],
        ),
        (
            vec![(CERT, &cert)],
            vec!["http.tls.cert_file is", "nothing without http.tls.key_file"],
        ),
        (
            vec![("LATCHGATE_HTTP_TLS_CLIENT_CA_FILE", &ca)],
            vec!["http.tls.client_ca_file is"],
        ),
        (
            vec![
                (CERT, &cert),
                (KEY, &key),
                ("LATCHGATE_HTTP_TLS_CLIENT_CA_FILE", &key),
            ],
            vec!["http.tls.client_ca_file cannot be used"],
        ),
        (
            vec![
                (CERT, &cert),
                (KEY, &key),
                ("LATCHGATE_HTTP_TLS_CLIENT_AUTH", "maybe"),
            ],
            vec!["http.tls.client_auth is \"maybe\"", "require or optional"],
        ),
    ] {
        let refused = refused(&variables);
        for said in said {
            assert!(refused.err.contains(said), "{said}: {refused:?}");
        }
    }
}

#[test]
fn what_is_to_be_secret_or_believed_of_redis_names_key_and_file() {
    for (variables, said) in [
        (
            vec![
                ("LATCHGATE_STORE", "redis://h"),
                ("LATCHGATE_REDIS_PASSWORD_FILE", "/nowhere"),
            ],
            "redis.password_file cannot be used: /nowhere cannot be read",
        ),
        (
            vec![
                ("LATCHGATE_STORE", "rediss://h"),
                ("LATCHGATE_REDIS_TLS_CA_FILE", "/nowhere"),
            ],
            "redis.tls.ca_file cannot be used: /nowhere cannot be read",
        ),
        (
            vec![
                ("LATCHGATE_STORE", "redis://h"),
                ("LATCHGATE_REDIS_TLS_CA_FILE", "/x"),
            ],
            "nothing, because the store is redis://",
        ),
        (
            vec![
                ("LATCHGATE_STORE", "redis://:s3cret@h"),
                ("LATCHGATE_REDIS_PASSWORD_FILE", "/x"),
            ],
            "nothing, because the URL of the store has a password",
        ),
        (
            vec![("LATCHGATE_REDIS_USERNAME", "al")],
            "nothing without redis.password_file",
        ),
        (
            vec![("LATCHGATE_REDIS_TLS_CERT_FILE", "/x")],
            "nothing without redis.tls.key_file",
        ),
    ] {
        let refused = refused(&variables);
        assert!(refused.err.contains(said), "{said}: {refused:?}");
        assert!(!refused.err.contains("s3cret"), "{refused:?}");
    }
}

#[test]
fn a_password_in_an_argument_is_refused() {
    for store in ["rediss://:s3cret@h", "redis+sentinel://:s3cret@h,i/m"] {
        let refused = latchgate(&["serve", "--store", store]).read();
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("can see an argument"), "{refused:?}");
        assert!(!refused.err.contains("s3cret"), "{refused:?}");
    }
}

#[test]
fn tls_alone_lets_nobody_reach_a_gateway_without_keys_from_elsewhere() {
    let authority = Authority::new();
    let files = authority.of_this_machine();
    let refused = latchgate(&["serve", "--listen", "0.0.0.0:0"])
        .env(CERT, &files.certificate())
        .env(KEY, &files.key())
        .env("LATCHGATE_HTTP_TLS_CLIENT_CA_FILE", &authority.file())
        .read();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("without API keys"), "{refused:?}");
}
