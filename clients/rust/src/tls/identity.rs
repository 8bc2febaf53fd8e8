//! A certificate and its private key: by what one side of a connection is known to the other.

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};

use super::{PemFile, TlsError, provider};

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
