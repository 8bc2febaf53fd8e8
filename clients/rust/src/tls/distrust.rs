//! Why the certificate of the other end is not trusted, as rustls says it.

use std::{error::Error, io};

use rustls::CertificateError;

/// Why the certificate of the other end is not trusted, if that is behind an error. `setting` names the
/// file with the trusted authorities, so that a user knows what to change.
pub fn distrust(error: &(dyn Error + 'static), setting: &str) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
            return Some(match why {
                // The latter is what an authority of the same name and with another key comes to.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    format!("{why}; {setting} names the authorities that are trusted")
                }
                _ => why.to_string(),
            });
        }
        next = match error.downcast_ref::<io::Error>() {
            // The source of an `io::Error` is that of its inner error, and not the inner error itself.
            Some(error) => error.get_ref().map(|cause| cause as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
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
}
