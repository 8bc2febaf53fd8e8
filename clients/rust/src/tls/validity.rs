//! From when until when a certificate is valid.

use rustls::{
    CertificateError, Error, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    pki_types::{CertificateDer, UnixTime},
    server::ParsedCertificate,
};

use super::provider;

/// From when until when a certificate is valid, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Its first second.
    pub begins: u64,
    /// Its last second.
    pub ends: u64,
}

// === impl Validity ===

impl Validity {
    /// That of a certificate; `None` if it is damaged, or ends before it begins.
    ///
    /// Nothing is believed here. The dates are what the verifier says of times at which no certificate is
    /// valid: they come before everything else that it looks at.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = ParsedCertificate::try_from(certificate).ok()?;
        let at = |seconds| {
            let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            let algorithms = provider().signature_verification_algorithms.all;
            let none = RootCertStore::empty();
            verify_server_cert_signed_by_trust_anchor(&certificate, &none, &[], time, algorithms)
        };
        let ends = match at(u64::MAX) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext {
                not_after, ..
            })) => not_after.as_secs(),
            _ => return None,
        };
        let begins = match at(0) {
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
                not_before,
                ..
            })) => not_before.as_secs(),
            // It was valid then.
            _ => 0,
        };
        Some(Self { begins, ends })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn is_what_the_certificate_says() {
        for (from, to, begins, ends) in [
            (2001, 2002, 978_307_200, 1_009_843_200),
            (1970, 2100, 0, 4_102_444_800),
        ] {
            let mut params = CertificateParams::new(["a".to_owned()]).unwrap();
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
            let key = KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            let validity = Validity::of(certificate.der());
            assert_eq!(validity, Some(Validity { begins, ends }));
        }
        assert_eq!(Validity::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
