//! What whoever connects knows of the other side, and shows of itself.

use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use super::{IdentityFiles, PemFile, TlsError, provider};

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
