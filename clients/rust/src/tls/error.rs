//! Why there is no TLS.

use super::{PemError, PemFile};

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
