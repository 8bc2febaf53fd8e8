//! The client commands, and whom they believe.

use crate::support::{Authority, gateway::Setup, program::latchgate};

use super::certified::Certified;

#[test]
fn a_gateway_of_a_private_authority_is_believed_if_the_authority_is_named() {
    let certified = Certified::start();
    let ca = certified.authority.file();
    for url in [certified.gateway.url(), certified.named_url()] {
        let listed = latchgate(&["list", "--url", &url, "--ca-file", &ca]).read();
        assert_eq!(listed.code, Some(0), "{url}: {listed:?}");
    }
}

#[test]
fn a_gateway_that_nobody_vouches_for_is_not_believed() {
    let certified = Certified::start();
    let other = Authority::new();
    let url = certified.named_url();
    for arguments in [
        vec!["list", "--url", &url],
        vec!["list", "--url", &url, "--ca-file", &other.file()],
    ] {
        let refused = latchgate(&arguments).read();
        assert_eq!(refused.code, Some(103), "{refused:?}");
        let said = "its certificate is not believed: ";
        assert!(refused.err.contains(said), "{refused:?}");
        assert!(refused.err.contains("--ca-file"), "{refused:?}");
    }
}

#[test]
fn a_certificate_for_another_host_is_not_believed() {
    let authority = Authority::new();
    let files = authority.files("other", &["locks.example.com"]);
    let certified = Certified::of(authority, files, Setup::default());
    let (url, ca) = (certified.gateway.url(), certified.authority.file());
    let refused = latchgate(&["list", "--url", &url, "--ca-file", &ca]).read();
    assert_eq!(refused.code, Some(103), "{refused:?}");
    let said = "is not believed: certificate not valid for name \"127.0.0.1\"";
    assert!(refused.err.contains(said), "{refused:?}");
}

#[test]
fn who_speaks_plain_http_to_it_is_told_what_the_url_lacks() {
    let certified = Certified::start();
    let plain = format!("http://{}", certified.gateway.address);
    let refused = latchgate(&["list", "--url", &plain]).read();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let said = "this address speaks TLS: its URL begins with https://";
    assert!(refused.err.contains(said), "{refused:?}");
}

#[test]
fn files_that_cannot_be_used_are_named_by_who_names_them() {
    let certified = Certified::start();
    let url = certified.gateway.url();
    let missing = latchgate(&["list", "--url", &url, "--ca-file", "/nowhere.pem"]).read();
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(
        missing
            .err
            .contains("--ca-file cannot be used: /nowhere.pem cannot be read"),
        "{missing:?}"
    );
    let empty = latchgate(&["list", "--url", &url])
        .env("LATCHGATE_CA_FILE", "/dev/null")
        .read();
    assert_eq!(empty.code, Some(2), "{empty:?}");
    assert!(
        empty
            .err
            .contains("LATCHGATE_CA_FILE cannot be used: /dev/null ")
    );
    let alone = latchgate(&["list", "--url", &url, "--client-cert-file", "x"]).read();
    assert_eq!(alone.code, Some(2), "{alone:?}");
    assert!(
        alone
            .err
            .contains("--client-cert-file needs --client-key-file"),
        "{alone:?}"
    );
}

#[test]
fn the_health_check_asks_over_tls() {
    let certified = Certified::start();
    let listen = certified.gateway.address.to_string();
    let healthy = latchgate(&["healthcheck", "--ready", "--listen", &listen])
        .env(
            "LATCHGATE_HTTP_TLS_CERT_FILE",
            &certified.files.certificate(),
        )
        .env("LATCHGATE_HTTP_TLS_KEY_FILE", &certified.files.key())
        .read();
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    assert!(
        healthy
            .out
            .contains("{\"name\":\"certificate\",\"status\":\"passing\"}"),
        "{healthy:?}"
    );
}
