//! Why there is no TLS.

use std::path::PathBuf;

use super::PemError;

/// Why TLS cannot be set up. Shows nothing of what is in a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] PemError),
    /// A certificate and a key do not fit.
    #[error("{named_by} cannot be used: {} with the key in {}: {error}", certificate.display(), key.display())]
    Pair {
        /// The setting that names the certificate.
        named_by: String,
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        error: rustls::Error,
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
