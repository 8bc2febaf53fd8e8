//! Who judges the certificate of a server; what is signed with it is verified for everybody alike.

use std::{fmt, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WantsClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{TlsError, provider};

/// Says whether a certificate is that of a server.
pub(crate) trait Judge: fmt::Debug + Send + Sync + 'static {
    /// Whether it is, by what the server shows with it.
    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error>;
}

/// Whoever it is must have the key of the certificate that a judge believes.
#[derive(Debug)]
struct Judged<J>(J);

/// The settings of whoever connects, and believes whom a judge believes.
pub(crate) fn judged_by(
    judge: impl Judge,
) -> Result<rustls::ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Judged(judge))))
}

/// How what is signed is verified.
pub(super) fn algorithms() -> WebPkiSupportedAlgorithms {
    provider().signature_verification_algorithms
}

// === impl Judged ===

impl<J: Judge> ServerCertVerifier for Judged<J> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.judge(certificate, others, name, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}
