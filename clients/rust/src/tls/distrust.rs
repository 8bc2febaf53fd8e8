//! Problems of a certificate: why the other end of a connection does not trust it, and its validity period.

use std::{error::Error, io, iter::successors};

use rustls::{
    AlertDescription as Alert, CertificateError, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    pki_types::{CertificateDer, UnixTime},
    server::ParsedCertificate,
};

use super::provider;

/// Why the certificate of the other end is not trusted, if that caused `error`. `setting` is the name of the setting
/// with the trusted authorities, for the text.
pub fn distrust(error: &(dyn Error + 'static), setting: &str) -> Option<String> {
    let rustls::Error::InvalidCertificate(why) = tls_error(error)? else {
        return None;
    };
    Some(match why {
        // A bad signature most often means that an authority has the expected name and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("{why}; {setting} names the authorities that are trusted")
        }
        _ => why.to_string(),
    })
}

/// The text of the error of a request, with its causes. `setting` is as in [`distrust`].
pub fn cause(error: &reqwest::Error, setting: &str) -> String {
    if let Some(why) = distrust(error, setting) {
        return format!("its certificate is not trusted: {why}");
    }
    let causes = successors(Some(error as &dyn Error), |&error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

/// Why the server does not trust this client's certificate, if that caused `error`. `setting` is the name of the
/// setting with the client certificate, for the text.
///
/// With such an alert, the server has not read the request, even if the client wrote it: in TLS 1.3 a client completes
/// its handshake first. A server sends the alert only instead of completing the handshake, because this client does not
/// take part in authentication after the handshake, and sends no early data.
pub fn refused_by_server(error: &(dyn Error + 'static), setting: &str) -> Option<String> {
    let rustls::Error::AlertReceived(alert) = tls_error(error)? else {
        return None;
    };
    match alert {
        Alert::CertificateRequired => Some(format!(
            "it wants a client certificate; {setting} names one"
        )),
        Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        // A signature of the handshake is wrong, for example because an authority has the expected name and another
        // key.
        | Alert::DecryptError => Some(format!(
            "it does not accept the client certificate ({alert:?}); {setting} names it"
        )),
        _ => None,
    }
}

/// Whether the server does not speak TLS on this port, if that caused `error`: its answer is no message of TLS.
pub fn speaks_no_tls(error: &(dyn Error + 'static)) -> bool {
    matches!(tls_error(error), Some(rustls::Error::InvalidMessage(_)))
}

/// The TLS error among an error and its causes, if there is one.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        next = match error.downcast_ref::<io::Error>() {
            // The `source` of an `io::Error` skips the inner error itself, so the inner error is read with `get_ref`.
            Some(error) => error.get_ref().map(|cause| cause as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

// === Validity ===

/// The validity period of a certificate, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second in which the certificate is valid.
    pub begins: u64,
    /// The last second in which the certificate is valid.
    pub ends: u64,
}

// === impl Validity ===

impl Validity {
    /// Reads the validity period of a certificate; `None` if the certificate is damaged, or ends before it begins.
    ///
    /// The certificate need not be trusted. The period comes from the verifier's errors: asked about times at which no
    /// certificate is valid, the verifier checks the dates first, and its errors contain them.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = ParsedCertificate::try_from(certificate).ok()?;
        let at = |seconds| {
            let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            let algorithms = provider().signature_verification_algorithms.all;
            let none = RootCertStore::empty();
            verify_server_cert_signed_by_trust_anchor(&certificate, &none, &[], time, algorithms)
        };
        let ends = match at(u64::MAX) {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
                not_after,
                ..
            })) => not_after.as_secs(),
            _ => return None,
        };
        let begins = match at(0) {
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
                not_before,
                ..
            })) => not_before.as_secs(),
            // The certificate was already valid in 1970.
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
    fn is_found_behind_other_errors_and_names_the_setting_if_that_would_help() {
        let said = |error: rustls::Error| {
            let wrapped = io::Error::other(io::Error::other(error));
            distrust(&wrapped, "--ca-file")
        };
        assert_eq!(
            said(CertificateError::UnknownIssuer.into()).as_deref(),
            Some("UnknownIssuer; --ca-file names the authorities that are trusted")
        );
        let revoked = CertificateError::Revoked;
        assert_eq!(said(revoked.clone().into()), Some(revoked.to_string()));
        assert_eq!(said(rustls::Error::DecryptError), None);
    }

    #[test]
    fn only_an_alert_about_a_certificate_says_that_no_request_was_read() {
        let said = |alert| {
            let error = io::Error::other(rustls::Error::AlertReceived(alert));
            refused_by_server(&error, "--client-cert-file")
        };
        assert_eq!(
            said(Alert::CertificateRequired).as_deref(),
            Some("it wants a client certificate; --client-cert-file names one")
        );
        for alert in [Alert::UnknownCA, Alert::DecryptError] {
            assert!(said(alert).unwrap().contains(&format!("({alert:?})")));
        }
        for after_a_request in [
            Alert::InternalError,
            Alert::BadRecordMac,
            Alert::UserCanceled,
        ] {
            assert_eq!(said(after_a_request), None);
        }
    }

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
            let validity = Validity::from_certificate(certificate.der());
            assert_eq!(validity, Some(Validity { begins, ends }));
        }
        assert_eq!(
            Validity::from_certificate(&CertificateDer::from(vec![1, 2, 3])),
            None
        );
    }
}
