//! Callers that show a certificate, and callers that do not.

use std::fs;

use crate::support::{Authority, Files, eventually, gateway::Setup, program::latchgate};

use super::certified::{Certified, Curled};

/// A gateway that asks for certificates of an authority, which is not its own.
fn asking(client_auth: &'static str) -> (Certified, Authority) {
    let callers = Authority::new();
    let file = callers.file();
    let certified = Certified::start_with(|_| {
        Setup::default()
            .with("LATCHGATE_HTTP_TLS_CLIENT_CA_FILE", &file)
            .with("LATCHGATE_HTTP_TLS_CLIENT_AUTH", client_auth)
    });
    (certified, callers)
}

fn ask(certified: &Certified, files: Option<&Files>) -> Curled {
    let files = files.map(|files| (files.certificate(), files.key()));
    let shown = files.as_ref().map_or(vec![], |(certificate, key)| {
        vec!["--cert", certificate.as_str(), "--key", key.as_str()]
    });
    certified.curl(&shown, "/healthz")
}

#[test]
fn a_certificate_that_is_required_must_be_shown_and_be_of_the_authority() {
    let (certified, callers) = asking("require");
    let (ours, foreign) = (
        callers.files("ci", &["ci"]),
        certified.authority.files("ci", &["ci"]),
    );
    assert_eq!(ask(&certified, Some(&ours)).status, 200);
    for refused in [ask(&certified, None), ask(&certified, Some(&foreign))] {
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert_eq!((refused.status, refused.body.as_str()), (0, ""));
    }
    certified.gateway.logged("a connection did not come to TLS");
}

#[test]
fn a_certificate_that_is_optional_must_be_valid_if_it_is_shown() {
    let (certified, callers) = asking("optional");
    assert_eq!(ask(&certified, None).status, 200);
    let ours = callers.files("ci", &["ci"]);
    assert_eq!(ask(&certified, Some(&ours)).status, 200);
    let foreign = certified.authority.files("ci", &["ci"]);
    assert_eq!(ask(&certified, Some(&foreign)).status, 0);
}

#[test]
fn the_client_commands_show_a_certificate() {
    let (certified, callers) = asking("require");
    let (url, ca) = (certified.gateway.url(), certified.authority.file());
    let ours = callers.files("ci", &["ci"]);
    let base = ["--url", &url, "--ca-file", &ca];
    let flags = [
        "--client-cert-file",
        &ours.certificate(),
        "--client-key-file",
        &ours.key(),
    ];
    let ran = latchgate(&[&["run", "deploy"], &base[..], &flags, &["--", "true"]].concat()).read();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let by_environment = latchgate(&["acquire", "deploy"])
        .env("LATCHGATE_URL", &url)
        .env("LATCHGATE_CA_FILE", &ca)
        .env("LATCHGATE_CLIENT_CERT_FILE", &ours.certificate())
        .env("LATCHGATE_CLIENT_KEY_FILE", &ours.key())
        .read();
    assert_eq!(by_environment.code, Some(0), "{by_environment:?}");
    let without = latchgate(&[&["inspect", "deploy"], &base[..]].concat()).read();
    assert_eq!(without.code, Some(103), "{without:?}");

    let listen = certified.gateway.address.to_string();
    let check = |flags: &[&str]| {
        latchgate(&[&["healthcheck", "--listen", &listen], flags].concat())
            .env("LATCHGATE_HTTP_TLS_CERT_FILE", "/not/read")
            .env("LATCHGATE_HTTP_TLS_KEY_FILE", "/not/read")
            .read()
    };
    // A file may end without a new line.
    let certificate = fs::read_to_string(ours.certificate()).unwrap();
    fs::write(ours.certificate(), certificate.trim_end()).unwrap();
    let healthy = check(&flags);
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    let unknown = check(&[]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(
        unknown.err.contains("wants a client certificate"),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn a_command_without_the_certificate_is_told_at_once_that_nothing_happened() {
    let (certified, callers) = asking("require");
    let (url, ca) = (certified.gateway.url(), certified.authority.file());
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let tries = || {
        let log = certified.gateway.log();
        log.matches("a connection did not come to TLS").count()
    };
    for (command, arguments) in [
        ("acquire", &["deploy"][..]),
        ("acquire", &["deploy", "--wait", "1h"]),
        ("run", &["deploy"]),
        ("renew", &["deploy"]),
        ("release", &["deploy"]),
        ("inspect", &["deploy"]),
        ("list", &[]),
        ("events", &[]),
        ("break", &["deploy", "--reason", "test", "--any"]),
        ("backup", &[backup.to_str().unwrap()]),
    ] {
        let before = tries();
        let program: &[&str] = if command == "run" {
            &["--", "true"]
        } else {
            &[]
        };
        let base = ["--url", &url, "--ca-file", &ca];
        let ran = latchgate(&[&[command], arguments, &base[..], program].concat())
            .env(
                "LATCHGATE_TOKEN",
                "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU",
            )
            .read();
        assert_eq!(ran.code, Some(103), "{command}: {ran:?}");
        let said = "it wants a client certificate; --client-cert-file names one";
        assert!(ran.err.contains(said), "{command}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{command}: {ran:?}");
        eventually("it is logged", async || (tries() > before).then_some(())).await;
        assert_eq!(tries(), before + 1, "{command}: it is tried once");
    }
    // The certificate of an authority that the gateway does not know is no better than none.
    let foreign = certified.authority.files("ci", &["ci"]);
    let acquire = ["acquire", "deploy", "--url", &url, "--ca-file", &ca];
    let ran = latchgate(&acquire)
        .env("LATCHGATE_CLIENT_CERT_FILE", &foreign.certificate())
        .env("LATCHGATE_CLIENT_KEY_FILE", &foreign.key())
        .read();
    assert_eq!(ran.code, Some(103), "{ran:?}");
    let said = "it does not accept the client certificate (";
    assert!(ran.err.contains(said), "{ran:?}");
    drop(callers);
}
