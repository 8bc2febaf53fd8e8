//! Which certificates are believed that are named themselves, and when.

use std::time::Duration;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::*;

/// In the middle of 2001, the year for which all of them are valid.
const THEN: u64 = 993_945_600;
const YEAR: u64 = 366 * 86_400;

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    params
}

/// What `openssl req -x509` makes.
fn authority(names: &[&str]) -> Certificate {
    let mut params = params(names);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap()
}

/// Somebody with a key, whether or not it is an authority.
fn issuer(params: CertificateParams) -> CertifiedIssuer<'static, KeyPair> {
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn signed_by(
    issuer: &CertifiedIssuer<'static, KeyPair>,
    params: &CertificateParams,
) -> Certificate {
    params
        .signed_by(&KeyPair::generate().unwrap(), issuer)
        .unwrap()
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
    named.judge(certificate.der(), &[], &name, now)
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
    let shown = ParsedCertificate::try_from(certificate.der()).unwrap();
    let at = |seconds| {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verify_by_itself(certificate.der(), &shown, now)
    };
    let (first, last) = (978_307_200, 1_009_843_200);
    assert_eq!((at(first), at(last)), (Ok(()), Ok(())));
    for (wrong, said) in [(first - 1, "not valid yet"), (last + 1, "expired")] {
        let error = at(wrong).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn the_certificate_of_an_authority_that_is_not_named_is_not_believed_as_that_of_a_server() {
    let (named, shown) = (authority(&["a"]), authority(&["a"]));
    let error = verify(&naming(&[&named]), &shown, "a", THEN).unwrap_err();
    assert!(is_authority(&error), "{error:?}");
}

#[test]
fn one_that_somebody_else_has_signed_is_believed_alone_and_beside_its_authority() {
    let mut of_authority = params(&[]);
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = issuer(of_authority);
    let certificate = signed_by(&authority, &params(&["a"]));
    let other = signed_by(&authority, &params(&["b"]));
    let alone = naming(&[&certificate]);
    verify(&alone, &certificate, "a", THEN).unwrap();
    // What the same authority has signed is nothing to it.
    let error = verify(&alone, &other, "b", THEN).unwrap_err();
    assert_eq!(error, CertificateError::UnknownIssuer.into());
    let both = naming(&[&certificate, authority.as_ref()]);
    verify(&both, &certificate, "a", THEN).unwrap();
    verify(&both, &other, "b", THEN).unwrap();
}

#[test]
fn one_that_is_named_for_itself_vouches_for_nobody() {
    let mut called_authority = params(&["a"]);
    called_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    for named in [params(&["a"]), called_authority] {
        let server = issuer(named);
        let forged = signed_by(&server, &params(&["b"]));
        let error = verify(&naming(&[server.as_ref()]), &forged, "b", THEN).unwrap_err();
        assert_eq!(error, CertificateError::UnknownIssuer.into());
        verify(&naming(&[server.as_ref()]), server.as_ref(), "a", THEN).unwrap();
    }
    // One that says that its key signs certificates is an authority, whatever names it has.
    let mut of_authority = params(&["ca.example"]);
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    of_authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = issuer(of_authority);
    let signed = signed_by(&authority, &params(&["b"]));
    verify(&naming(&[authority.as_ref()]), &signed, "b", THEN).unwrap();
}

#[test]
fn one_that_is_not_for_a_server_is_not_believed() {
    for is_ca in [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
        for (purpose, is_believed) in [
            (ExtendedKeyUsagePurpose::ServerAuth, true),
            (ExtendedKeyUsagePurpose::ClientAuth, false),
        ] {
            let mut params = params(&["a"]);
            params.is_ca = is_ca;
            params.extended_key_usages = vec![purpose];
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let verified = verify(&naming(&[&certificate]), &certificate, "a", THEN);
            match verified {
                Ok(()) => assert!(is_believed),
                Err(error) => {
                    assert!(!is_believed, "{error}");
                    let said = super::super::distrust(&error, "--ca-file");
                    assert_eq!(said.as_deref(), Some("it is not for a server"));
                }
            }
        }
    }
}
