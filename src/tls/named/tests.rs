//! Which certificates are believed that are named themselves, and when.

use std::time::Duration;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, KeyPair, date_time_ymd};

use super::*;

/// In the middle of 2001, the year for which all of them are valid.
const THEN: u64 = 993_945_600;
const YEAR: u64 = 366 * 86_400;

/// What `openssl req -x509` makes.
fn authority(names: &[&str]) -> Certificate {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap()
}

fn naming(certificates: &[&Certificate]) -> Named {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text: String = certificates.iter().map(|it| it.pem()).collect();
    std::fs::write(file.path(), text).unwrap();
    Named::read(&PemFile::new("the test", file.path())).unwrap()
}

fn verify(named: &Named, certificate: &Certificate, name: &str, at: u64) -> Result<(), Error> {
    let name = ServerName::try_from(name).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(at));
    let verified = named.verify_server_cert(certificate.der(), &[], &name, &[], now);
    verified.map(|_| ())
}

#[test]
fn a_certificate_that_is_named_is_believed_for_its_names_and_its_time() {
    let (other, certificate) = (authority(&["b"]), authority(&["a", "127.0.0.1"]));
    let named = naming(&[&other, &certificate]);
    for name in ["a", "127.0.0.1"] {
        verify(&named, &certificate, name, THEN).unwrap();
    }
    for name in ["b", "127.0.0.2"] {
        let error = verify(&named, &certificate, name, THEN).unwrap_err();
        let is_name = matches!(
            error,
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })
        );
        assert!(is_name, "{error:?}");
    }
    let late = verify(&named, &certificate, "a", THEN + YEAR).unwrap_err();
    assert!(late.to_string().contains("expired"), "{late}");
    let early = verify(&named, &certificate, "a", THEN - YEAR).unwrap_err();
    assert!(early.to_string().contains("not valid yet"), "{early}");
}

#[test]
fn a_certificate_is_valid_for_itself_in_its_first_and_last_second_only_from_and_to() {
    let certificate = authority(&["a"]);
    let name = ServerName::try_from("a").unwrap();
    let at = |seconds| {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verify_by_itself(certificate.der(), &name, now).map(|_| ())
    };
    let (first, last) = (978_307_200, 1_009_843_200);
    assert_eq!((at(first), at(last)), (Ok(()), Ok(())));
    let error = |error| Err(Error::InvalidCertificate(error));
    assert_eq!(at(first - 1), error(CertificateError::NotValidYet));
    assert_eq!(at(last + 1), error(CertificateError::Expired));
}

#[test]
fn the_certificate_of_an_authority_that_is_not_named_is_not_believed_as_that_of_a_server() {
    let (named, shown) = (authority(&["a"]), authority(&["a"]));
    let error = verify(&naming(&[&named]), &shown, "a", THEN).unwrap_err();
    assert!(is_authority(&error), "{error:?}");
}
