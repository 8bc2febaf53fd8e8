//! Why no traces can be sent.

use crate::{bounded_file::FileError, config::Invalid, tls::TlsError};

/// Why no traces can be sent, whether or not the collector is there.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The address of the collector is none.
    #[error(transparent)]
    Endpoint(#[from] Invalid),
    /// The headers cannot be read.
    #[error("cannot read trace.headers_file {path}: {error}")]
    HeadersFile {
        /// The file.
        path: String,
        /// Why.
        error: FileError,
    },
    /// A line of the headers is none. It is not repeated, because it may hold a secret.
    #[error("line {line} of trace.headers_file {path} is no header; expected Name: value")]
    Header {
        /// The file.
        path: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// No TLS: a file cannot be used, or the system has no root certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The HTTP client could not be built.
    #[error("cannot set up HTTP to the collector: {0}")]
    Http(#[from] reqwest::Error),
}
