//! Believes the authorities of a file, and the certificates in it themselves.

use rustls::{
    CertificateError, Error, OtherError, RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{
    PemFile, TlsError,
    judged::{Judge, algorithms},
    purpose::Purpose,
};

/// Believes what the authorities in a file vouch for, and a certificate that is in the file itself.
///
/// Whoever names the very certificate of a gateway means the gateway that shows it, whoever has signed it.
/// It is good for its own names, in its time and as that of a server, and vouches for nobody else: its key
/// lies where the gateway is.
#[derive(Debug)]
pub(super) struct Named {
    authorities: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
}

// === impl Named ===

impl Named {
    /// Reads the file.
    pub(super) fn read(file: &PemFile) -> Result<Self, TlsError> {
        let certificates = file.certificates()?;
        // All of them must be certificates, also those that vouch for nobody.
        file.authorities_among(&certificates)?;
        let vouches = |it: &&CertificateDer<'_>| Purpose::of(it).is_some_and(|it| it.vouches);
        let vouching: Vec<_> = certificates.iter().filter(vouches).cloned().collect();
        Ok(Self {
            authorities: file.authorities_among(&vouching)?,
            certificates,
        })
    }

    fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut certificates = self.certificates.iter();
        certificates.any(|named| named.as_ref() == certificate.as_ref())
    }
}

impl Judge for Named {
    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let shown = ParsedCertificate::try_from(certificate)?;
        if self.has(certificate) {
            verify_by_itself(certificate, &shown, now)?;
        } else {
            let algorithms = algorithms().all;
            let authorities = &self.authorities;
            verify_server_cert_signed_by_trust_anchor(
                &shown,
                authorities,
                others,
                now,
                algorithms,
            )?;
        }
        verify_server_name(&shown, name)
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

/// Verifies a certificate that is believed, if it is valid now and that of a server. It may call itself
/// an authority, as everything does that `openssl req -x509` makes: it is good for its own names only.
fn verify_by_itself(
    certificate: &CertificateDer<'_>,
    shown: &ParsedCertificate<'_>,
    now: UnixTime,
) -> Result<(), Error> {
    let nobody = RootCertStore::empty();
    let algorithms = algorithms().all;
    // Who has signed it is looked at last.
    match verify_server_cert_signed_by_trust_anchor(shown, &nobody, &[], now, algorithms) {
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => Ok(()),
        // What else an authority is for was not looked at.
        Err(error) if is_authority(&error) => {
            let purpose = Purpose::of(certificate).ok_or(CertificateError::BadEncoding)?;
            if purpose.serves {
                Ok(())
            } else {
                Err(CertificateError::InvalidPurpose.into())
            }
        }
        verified => verified,
    }
}

#[cfg(test)]
mod tests;
