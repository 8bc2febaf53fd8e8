//! Believes the authorities of a file, and the certificates in it themselves.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{PemFile, TlsError, Validity, provider};

/// Believes what the authorities in a file vouch for, and a certificate that is in the file itself.
///
/// `openssl req -x509` makes certificates of authorities, and whoever names such a file means the
/// gateway that shows it. A verifier takes no authority for a server, for fear of a certificate that
/// would be good for everything; one that is named, byte for byte, is good for its own names.
#[derive(Debug)]
pub(super) struct Named {
    authorities: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

// === impl Named ===

impl Named {
    /// Reads the file.
    pub(super) fn read(file: &PemFile) -> Result<Self, TlsError> {
        let certificates = file.certificates()?;
        let authorities = Arc::new(file.authorities_among(&certificates)?);
        let authorities = WebPkiServerVerifier::builder_with_provider(authorities, provider());
        let authorities = authorities.build();
        Ok(Self {
            authorities: authorities.map_err(|error| TlsError::Setup(error.to_string()))?,
            certificates,
        })
    }

    fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut certificates = self.certificates.iter();
        certificates.any(|named| named.as_ref() == certificate.as_ref())
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = (self.authorities).verify_server_cert(certificate, others, name, ocsp, now);
        match verified {
            Err(error) if is_authority(&error) && self.has(certificate) => {
                verify_by_itself(certificate, name, now)
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        (self.authorities).verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        (self.authorities).verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Whether the one thing that is wrong is that an authority shows its own certificate.
pub(super) fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error else {
        return false;
    };
    let cause = cause.downcast_ref::<webpki::Error>();
    cause.is_some_and(|cause| *cause == webpki::Error::CaUsedAsEndEntity)
}

/// Verifies a certificate that is believed, if it is valid now and for this name.
fn verify_by_itself(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let validity = Validity::of(certificate).ok_or(CertificateError::BadEncoding)?;
    if now.as_secs() < validity.begins {
        return Err(CertificateError::NotValidYet.into());
    }
    if now.as_secs() > validity.ends {
        return Err(CertificateError::Expired.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    Ok(ServerCertVerified::assertion())
}

#[cfg(test)]
mod tests;
