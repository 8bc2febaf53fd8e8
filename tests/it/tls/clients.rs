//! The commands over TLS: which certificates they accept, and which they send.

use std::fs;

use super::fixture::{Certified, Curled};
use crate::support::{
    Authority, Files, eventually,
    gateway::{Gateway, Setup},
    program::{latchgate, typed},
    spawn,
};

#[test]
fn a_gateway_of_a_private_authority_is_believed_if_the_authority_is_named() {
    let certified = Certified::start();
    let ca = certified.authority.file();
    for url in [certified.gateway.url(), certified.named_url()] {
        typed(&format!("list --url {url} --ca-file {ca}")).ends(0);
    }
}

#[test]
fn a_gateway_that_nobody_vouches_for_is_not_believed() {
    let certified = Certified::start();
    let other = Authority::new();
    let url = certified.named_url();
    for ca in [String::new(), format!("--ca-file {}", other.file())] {
        let refused = typed(&format!("list --url {url} {ca}")).ends(103);
        refused.says("its certificate is not trusted: ");
        refused.says("--ca-file");
    }
}

#[test]
fn a_certificate_for_another_host_is_not_believed() {
    let authority = Authority::new();
    let files = authority.files("other", &["locks.example.com"]);
    let certified = Certified::start_with_files(authority, files, Setup::default());
    let (url, ca) = (certified.gateway.url(), certified.authority.file());
    let refused = typed(&format!("list --url {url} --ca-file {ca}")).ends(103);
    refused.says("is not trusted: certificate not valid for name \"127.0.0.1\"");
}

#[test]
fn who_speaks_plain_http_to_it_is_told_what_the_url_lacks() {
    let certified = Certified::start();
    let plain = format!("http://{}", certified.gateway.address);
    let refused = typed(&format!("list --url {plain}")).ends(1);
    refused.says("this address speaks TLS: its URL begins with https://");
}

#[test]
fn who_speaks_tls_to_a_plain_port_is_told_what_the_url_has_too_much() {
    let certified = Certified::start();
    let ca = certified.authority.file();
    let plain = Gateway::start();
    let url = plain.url().replace("http:", "https:");
    let refused = typed(&format!("list --url {url} --ca-file {ca}")).ends(103);
    refused
        .says("its answer is not TLS; if this port speaks plain HTTP, its URL begins with http://");
}

#[test]
fn files_that_cannot_be_used_are_named_by_who_names_them() {
    let certified = Certified::start();
    let url = certified.gateway.url();
    let missing = typed(&format!("list --url {url} --ca-file /nowhere.pem")).ends(2);
    missing.says("--ca-file cannot be used: /nowhere.pem cannot be read");
    let empty = typed(&format!("list --url {url}"))
        .env("LATCHGATE_CA_FILE", "/dev/null")
        .ends(2);
    empty.says("LATCHGATE_CA_FILE cannot be used: /dev/null ");
    let alone = typed(&format!("list --url {url} --client-cert-file x")).ends(2);
    alone.says("--client-cert-file needs --client-key-file");
}

#[test]
fn the_health_check_asks_over_tls() {
    let certified = Certified::start();
    let listen = certified.gateway.address.to_string();
    let files = &certified.files;
    let healthy = typed(&format!("healthcheck --ready --listen {listen}"))
        .env("LATCHGATE_HTTP_TLS_CERT_FILE", &files.certificate())
        .env("LATCHGATE_HTTP_TLS_KEY_FILE", &files.key())
        .ends(0);
    let passing = r#"{"name":"certificate","status":"passing"}"#;
    assert!(healthy.out.contains(passing), "{healthy:?}");
}

/// A gateway with a certificate that openssl made in one command, with further extensions.
fn gateway(extensions: &[&str]) -> Certified {
    let authority = Authority::new();
    let files = authority.of_this_machine();
    let mut openssl = spawn::command("openssl");
    openssl
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=locks"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
        .args(["-keyout", &files.key(), "-out", &files.certificate()]);
    for extension in extensions {
        openssl.args(["-addext", extension]);
    }
    let made = openssl
        .output()
        .expect("this test needs openssl: apt-get install openssl");
    assert!(made.status.success(), "{made:?}");
    Certified::start_with_files(authority, files, Setup::default())
}

#[test]
fn one_that_calls_itself_no_authority_is_trusted_if_it_is_named() {
    let certified = gateway(&["basicConstraints=critical,CA:FALSE"]);
    let ca = certified.files.certificate();
    for url in [certified.gateway.url(), certified.named_url()] {
        typed(&format!("list --url {url} --ca-file {ca}")).ends(0);
    }
    // Other clients accept the certificate, too.
    let asked = certified.curl(&["--cacert", &ca], "/healthz");
    assert_eq!(asked.status, 200, "{asked:?}");
}

#[test]
fn one_of_an_authority_is_not_accepted_as_that_of_a_server() {
    let certified = gateway(&[]);
    let (url, ca) = (certified.gateway.url(), certified.files.certificate());
    let refused = typed(&format!("list --url {url} --ca-file {ca}")).ends(103);
    refused.says("CaUsedAsEndEntity");
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
    let (certified, callers) = Certified::asking("require");
    let [ours, foreign] = [&callers, &certified.authority].map(|it| it.files("ci", &["ci"]));
    assert_eq!(ask(&certified, Some(&ours)).status, 200);
    for refused in [ask(&certified, None), ask(&certified, Some(&foreign))] {
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert_eq!((refused.status, refused.body.as_str()), (0, ""));
    }
    certified
        .gateway
        .logged("a connection did not complete its TLS handshake");
}

#[test]
fn a_certificate_that_is_optional_must_be_valid_if_it_is_shown() {
    let (certified, callers) = Certified::asking("optional");
    assert_eq!(ask(&certified, None).status, 200);
    let ours = callers.files("ci", &["ci"]);
    assert_eq!(ask(&certified, Some(&ours)).status, 200);
    let foreign = certified.authority.files("ci", &["ci"]);
    assert_eq!(ask(&certified, Some(&foreign)).status, 0);
}

#[test]
fn the_client_commands_show_a_certificate() {
    let (certified, callers) = Certified::asking("require");
    let (url, ca) = (certified.gateway.url(), certified.authority.file());
    let ours = callers.files("ci", &["ci"]);
    let base = ["--url", &url, "--ca-file", &ca];
    let flags = [
        "--client-cert-file",
        &ours.certificate(),
        "--client-key-file",
        &ours.key(),
    ];
    latchgate(&[&["run", "deploy"], &base[..], &flags, &["--", "true"]].concat()).ends(0);
    typed("acquire deploy")
        .env("LATCHGATE_URL", &url)
        .env("LATCHGATE_CA_FILE", &ca)
        .env("LATCHGATE_CLIENT_CERT_FILE", &ours.certificate())
        .env("LATCHGATE_CLIENT_KEY_FILE", &ours.key())
        .ends(0);
    latchgate(&[&["inspect", "deploy"], &base[..]].concat()).ends(103);

    let listen = certified.gateway.address.to_string();
    let check = |flags: &[&str]| {
        latchgate(&[&["healthcheck", "--listen", &listen], flags].concat())
            .env("LATCHGATE_HTTP_TLS_CERT_FILE", "/not/read")
            .env("LATCHGATE_HTTP_TLS_KEY_FILE", "/not/read")
    };
    // The last line of a file may lack its line end.
    let certificate = fs::read_to_string(ours.certificate()).unwrap();
    fs::write(ours.certificate(), certificate.trim_end()).unwrap();
    check(&flags).ends(0);
    check(&[]).ends(1).says("wants a client certificate");
}

#[tokio::test]
async fn a_command_without_the_certificate_is_told_at_once_that_nothing_happened() {
    let (certified, callers) = Certified::asking("require");
    let (url, ca) = (certified.gateway.url(), certified.authority.file());
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    let tries = || {
        let log = certified.gateway.log();
        log.matches("a connection did not complete its TLS handshake")
            .count()
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
        let program = if command == "run" {
            &["--", "true"][..]
        } else {
            &[]
        };
        let base = ["--url", &url, "--ca-file", &ca];
        let ran = latchgate(&[&[command], arguments, &base[..], program].concat())
            .token("qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU")
            .ends(103);
        ran.says("it wants a client certificate; --client-cert-file names one");
        assert_eq!(ran.err.lines().count(), 1, "{command}: {ran:?}");
        eventually("it is logged", async || (tries() > before).then_some(())).await;
        assert_eq!(tries(), before + 1, "{command}: it is tried once");
    }
    // The certificate of another authority is refused like a missing one.
    let foreign = certified.authority.files("ci", &["ci"]);
    let ran = typed(&format!("acquire deploy --url {url} --ca-file {ca}"))
        .env("LATCHGATE_CLIENT_CERT_FILE", &foreign.certificate())
        .env("LATCHGATE_CLIENT_KEY_FILE", &foreign.key())
        .ends(103);
    ran.says("it does not accept the client certificate (");
    drop(callers);
}
