//! A gateway whose certificate has signed itself, and callers who name that very certificate.

use crate::support::{Authority, Files, gateway::Setup, program::latchgate, spawn};

use super::certified::Certified;

/// A gateway with a certificate that has signed itself.
fn gateway(make: impl FnOnce(&Authority) -> Files) -> Certified {
    let authority = Authority::new();
    let files = make(&authority);
    Certified::of(authority, files, Setup::default())
}

/// What a command says that believes the certificate in a file.
fn refused(certified: &Certified, believed: &Files) -> String {
    let (url, ca) = (certified.gateway.url(), believed.certificate());
    let refused = latchgate(&["list", "--url", &url, "--ca-file", &ca]).read();
    assert_eq!(refused.code, Some(103), "{refused:?}");
    let said = "its certificate is not believed: ";
    let (_, why) = refused
        .err
        .split_once(said)
        .unwrap_or_else(|| panic!("{refused:?}"));
    assert!(!why.contains("Error(") && !why.contains("Context"), "{why}");
    why.trim().to_owned()
}

const YEARS: (i32, i32) = (2020, 2120);

#[test]
fn what_openssl_makes_in_one_line_works_when_it_is_named() {
    let certified = gateway(|authority| {
        let files = authority.of_this_machine();
        let made = spawn::command("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args([
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=locks",
            ])
            .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
            .args(["-keyout", &files.key(), "-out", &files.certificate()])
            .output()
            .expect("this test needs openssl: apt-get install openssl");
        assert!(made.status.success(), "{made:?}");
        files
    });
    let ca = certified.files.certificate();
    for url in [certified.gateway.url(), certified.named_url()] {
        let listed = latchgate(&["list", "--url", &url, "--ca-file", &ca]).read();
        assert_eq!(listed.code, Some(0), "{url}: {listed:?}");
    }
    // The same that others make of it.
    let asked = certified.curl(&["--cacert", &ca], "/healthz");
    assert_eq!(asked.status, 200, "{asked:?}");
}

#[test]
fn one_that_an_authority_has_signed_works_when_it_alone_is_named() {
    let certified = gateway(Authority::of_this_machine);
    let url = certified.named_url();
    let ca = certified.files.certificate();
    let listed = latchgate(&["list", "--url", &url, "--ca-file", &ca]).read();
    assert_eq!(listed.code, Some(0), "{listed:?}");
}

#[test]
fn it_is_believed_for_its_names_and_in_its_time_only() {
    let made = |names: &'static [&'static str], years| {
        gateway(move |authority| authority.files_of_itself("own", names, years))
    };
    let ended = made(&["127.0.0.1"], (2001, 2002));
    let why = refused(&ended, &ended.files);
    assert!(
        why.starts_with("it expired ") && why.ends_with(" days ago"),
        "{why}"
    );

    let early = made(&["127.0.0.1"], (2110, 2120));
    let why = refused(&early, &early.files);
    assert!(why.starts_with("it is not valid for another "), "{why}");

    let elsewhere = made(&["locks.example.com", "::1"], YEARS);
    let why = refused(&elsewhere, &elsewhere.files);
    assert_eq!(
        why,
        "it is not for 127.0.0.1, but for locks.example.com, ::1"
    );
}

#[test]
fn another_one_of_the_same_names_is_not_believed() {
    let certified = gateway(|authority| authority.files_of_itself("own", &["127.0.0.1"], YEARS));
    let named = certified
        .authority
        .files_of_itself("named", &["127.0.0.1"], YEARS);
    let why = refused(&certified, &named);
    assert_eq!(
        why,
        "it is that of an authority, and --ca-file does not name it"
    );

    let signed = gateway(Authority::of_this_machine);
    let why = refused(&signed, &named);
    assert_eq!(
        why,
        "nobody who is believed vouches for it; --ca-file names who is"
    );
}
