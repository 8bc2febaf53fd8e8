//! What a client needs for TLS: authorities, the certificate that it shows, and why they cannot be used.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};
use rustls_platform_verifier::BuilderVerifierExt;

use super::{PemError, PemFile};

/// What whoever connects knows of the other side, and shows of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities that are trusted instead of those of the system.
    pub ca: Option<PemFile>,
    /// The certificate that is shown to who asks for one.
    pub identity: Option<IdentityFiles>,
}

/// For connections without TLS, which would read every certificate of the system for nothing: it trusts no
/// certificate.
pub fn no_tls() -> Result<ClientConfig, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

// === impl ClientFiles ===

impl ClientFiles {
    /// Reads the files.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match &self.ca {
            Some(ca) => builder.with_root_certificates(ca.authorities()?),
            None => builder.with_platform_verifier()?,
        };
        Ok(match &self.identity {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let identity = files.read()?;
                builder.with_client_auth_cert(identity.chain, identity.key)?
            }
        })
    }

    /// All files, for who looks whether they have changed.
    pub fn all(&self) -> impl Iterator<Item = &PemFile> {
        let identity = self.identity.iter();
        let of_identity = identity.flat_map(|files| [&files.certificate, &files.key]);
        self.ca.iter().chain(of_identity)
    }
}

// === Identity ===

/// The files of a certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificate, and behind it those that lead to its authority.
    pub certificate: PemFile,
    /// The private key.
    pub key: PemFile,
}

/// A certificate and its private key. Without `Debug`, because a key is a secret.
pub struct Identity {
    /// The certificate first, and behind it those that lead to its authority.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key.
    pub key: PrivateKeyDer<'static>,
}

// === impl IdentityFiles ===

impl IdentityFiles {
    /// Reads both, which fit each other.
    pub fn read(&self) -> Result<Identity, TlsError> {
        let (chain, key) = (self.certificate.certificates()?, self.key.key()?);
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider()).map_err(|error| {
            TlsError::Pair {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
                error: Box::new(error),
            }
        })?;
        Ok(Identity { chain, key })
    }
}

// === TLS error ===

/// Why TLS cannot be set up. Shows nothing of what is in a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] PemError),
    /// A certificate and a key do not fit.
    #[error(
        "{} cannot be used: {} with the key in {} ({}): {error}",
        certificate.named_by(), certificate.path().display(), key.path().display(), key.named_by()
    )]
    Pair {
        /// The file of the certificate.
        certificate: PemFile,
        /// The file of the key.
        key: PemFile,
        /// Why.
        error: Box<rustls::Error>,
    },
    /// Neither this nor that file is at fault.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

// === impl TlsError ===

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Setup(error.to_string())
    }
}

// === Provider ===

/// ring, everywhere: a second provider would double the C code.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
