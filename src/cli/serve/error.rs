//! Why a gateway did not start, or did not end as it should.

use std::{io, net::SocketAddr};

use crate::{
    audit::AuditError,
    auth::{KeysFileError, SessionSecretError},
    lifecycle::TasksLeft,
    store::OpenError,
    telemetry::{LoggingError, trace::TraceError},
    tls::TlsError,
};

/// The failures of `latchgate serve` beyond its configuration.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ServeError {
    /// The address cannot be listened on.
    #[error("{key}: cannot listen on {address}: {error}{}", hint(error, key))]
    Listen {
        /// The key of the configuration that names it.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// It is not known who may use the gateway.
    #[error(transparent)]
    Keys(#[from] KeysFileError),
    /// Sessions of other gateways would not be known.
    #[error(transparent)]
    SessionSecret(#[from] SessionSecretError),
    /// Callers would not know the gateway.
    #[error(transparent)]
    Certificates(#[from] TlsError),
    /// There would be no audit log.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The store cannot be opened.
    #[error("cannot open the store: {0}")]
    Store(#[from] OpenError),
    /// Traces are to be sent, and cannot be.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// Nothing can be logged.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// The operating system tells of no signals, so that the gateway could only be killed.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// A second signal came while the first was being obeyed.
    #[error("ended by a second signal; requests under way may not have been answered")]
    SecondSignal,
    /// The grace period was over first.
    #[error(transparent)]
    TasksLeft(#[from] TasksLeft),
    /// The store did not finish within the grace period.
    #[error("the store had not finished when the grace period was over")]
    StoreLeft,
}

fn hint(error: &io::Error, key: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let by = if key == "listen" { "--listen" } else { key };
            format!("; another program, or another gateway, has it. Name another address with {by}")
        }
        io::ErrorKind::AddrNotAvailable => "; this machine does not have it".to_owned(),
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege".to_owned(),
        _ => String::new(),
    }
}
