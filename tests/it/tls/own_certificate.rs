//! A gateway whose certificate has signed itself, and callers who trust that certificate.

use crate::support::{Authority, gateway::Setup, program::latchgate, spawn};

use super::certified::Certified;

/// A gateway with a certificate that openssl has made in one line, with further extensions.
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
    Certified::of(authority, files, Setup::default())
}

#[test]
fn one_that_calls_itself_no_authority_is_trusted_if_it_is_named() {
    let certified = gateway(&["basicConstraints=critical,CA:FALSE"]);
    let ca = certified.files.certificate();
    for url in [certified.gateway.url(), certified.named_url()] {
        let listed = latchgate(&["list", "--url", &url, "--ca-file", &ca]).read();
        assert_eq!(listed.code, Some(0), "{url}: {listed:?}");
    }
    // Other clients make the same of it.
    let asked = certified.curl(&["--cacert", &ca], "/healthz");
    assert_eq!(asked.status, 200, "{asked:?}");
}

#[test]
fn one_of_an_authority_is_not_accepted_as_that_of_a_server() {
    let certified = gateway(&[]);
    let (url, ca) = (certified.gateway.url(), certified.files.certificate());
    let refused = latchgate(&["list", "--url", &url, "--ca-file", &ca]).read();
    assert_eq!(refused.code, Some(103), "{refused:?}");
    assert!(refused.err.contains("CaUsedAsEndEntity"), "{refused:?}");
}
