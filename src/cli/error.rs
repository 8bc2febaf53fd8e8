//! The errors of commands, and their exit codes.

use std::{error::Error, fmt::Display, io, net::SocketAddr, path::PathBuf};

use rustix::process::Signal;

use crate::{
    audit::AuditError,
    auth::{KeysFileError, SessionSecretError},
    client::{ClientError, SetupError},
    config::ConfigError,
    lifecycle::TasksLeft,
    store::{OpenError, embedded::BackupError, redis::CredentialsError},
    telemetry::{LoggingError, trace::TraceError},
    tls::TlsError,
};

use super::{
    caller::{environment::VariableError, secret::SecretError},
    exit::Exit,
    key::KeysChangeError,
    run,
};

/// The failures of all commands.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// The gateway refused the call, or no gateway answered it.
    #[error("{}", in_flags(_0))]
    Client(#[from] ClientError),
    /// The client cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// An argument, a variable, a file or the configuration cannot be used as it is.
    #[error("{0}")]
    Usage(String),
    /// A keys file was not changed.
    #[error(transparent)]
    KeysChange(#[from] KeysChangeError),
    /// A key was added to a keys file, but could not be printed, so that nobody can use it.
    #[error("cannot write the key: {error}; nobody knows it: {remedy}")]
    KeyNotWritten {
        /// Why.
        error: io::Error,
        /// How the key is removed from the keys file again.
        remedy: String,
    },
    /// No keys file was named.
    #[error("no keys file: name it with --keys, or with auth.keys_file in the configuration")]
    NoKeysFile,
    /// The gateway cannot listen on its address.
    #[error(
        "{key}: cannot listen on {address}: {error}{}",
        listen_hint(error, key)
    )]
    Listen {
        /// The key of the configuration that names it.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The store of the gateway cannot be opened.
    #[error("cannot open the store: {0}")]
    Store(#[from] OpenError),
    /// The gateway cannot log.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// A second signal came while the gateway stopped.
    #[error("ended by a second signal; requests under way may not have been answered")]
    SecondSignal,
    /// The grace period was over first.
    #[error(transparent)]
    TasksLeft(#[from] TasksLeft),
    /// The store did not finish within the grace period.
    #[error("the store had not finished when the grace period was over")]
    StoreLeft,
    /// The answer of the gateway is not a backup.
    #[error("{0}; nothing was written")]
    Backup(BackupError),
    /// The file of a backup cannot be written.
    #[error("cannot write {file:?}: {source}")]
    BackupNotWritten {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The answer cannot be written.
    #[error("cannot write the answer: {0}")]
    Output(io::Error),
    /// The lease was acquired, but its token could not be written.
    #[error("cannot write the token: {error}; {fate}")]
    TokenNotWritten {
        /// Why.
        error: io::Error,
        /// Whether the lease was released.
        fate: &'static str,
    },
    /// A signal came while the command waited for a lock. The lock was not acquired.
    #[error("gave up waiting")]
    Interrupted(Signal),
    /// The process of the command cannot be started.
    #[error("cannot start a process: {0}")]
    NotStarted(io::Error),
    /// The command was stopped because its lease was lost, or was about to be.
    #[error("the command was stopped because the lease was lost: {0}")]
    Stopped(String),
    /// The gateway does not answer a health check as it should.
    #[error("{url} {reason}")]
    Unhealthy {
        /// The URL of the health check.
        url: String,
        /// How the answer was wrong, or why there was none.
        reason: String,
    },
    /// The lock that `latchgate break` names is free.
    #[error("nobody holds the lock")]
    NotHeld,
    /// The user did not confirm the break.
    #[error("nothing was broken")]
    Declined,
    /// Threads, signal handlers or the event loop cannot be set up.
    #[error("the system does not let it work: {0}")]
    Runtime(io::Error),
}

/// An error whose remedy is to change a variable, a file or the configuration.
trait UsageError: Error {}

impl UsageError for AuditError {}
impl UsageError for ConfigError {}
impl UsageError for CredentialsError {}
impl UsageError for KeysFileError {}
impl UsageError for SecretError {}
impl UsageError for SessionSecretError {}
impl UsageError for TlsError {}
impl UsageError for TraceError {}
impl UsageError for VariableError {}

// === impl CliError ===

impl<E: UsageError> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::Usage(error.to_string())
    }
}

impl CliError {
    /// The value of a flag is not allowed.
    pub(super) fn argument(flag: &str, error: impl Display) -> Self {
        Self::Usage(format!("{flag} {error}"))
    }

    /// The number of the exit code for it.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => run::code_of_signal(*signal),
            error => error.exit().code(),
        }
    }

    /// The exit code for it.
    fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => error.into(),
            Self::Stopped(_) => Exit::Lost,
            Self::NotHeld => Exit::NotHeld,
            Self::Listen { .. } => Exit::CannotListen,
            Self::Store(OpenError::Embedded(_)) => Exit::NoStore,
            Self::SecondSignal | Self::TasksLeft(_) | Self::StoreLeft => Exit::CutShort,
            Self::Setup(
                SetupError::Url(_) | SetupError::Tls(TlsError::File(_) | TlsError::Pair { .. }),
            )
            | Self::Store(OpenError::Credentials(_))
            | Self::Usage(_)
            | Self::KeysChange(
                KeysChangeError::Keys(_)
                | KeysChangeError::Unreadable { .. }
                | KeysChangeError::Unfit { .. },
            )
            | Self::NoKeysFile => Exit::Usage,
            Self::Setup(SetupError::Tls(TlsError::Setup(_)) | SetupError::Http(_))
            | Self::Backup(_)
            | Self::BackupNotWritten { .. }
            | Self::Output(_)
            | Self::KeysChange(KeysChangeError::Unwritable { .. } | KeysChangeError::Changed(_))
            | Self::KeyNotWritten { .. }
            | Self::TokenNotWritten { .. }
            | Self::Interrupted(_)
            | Self::NotStarted(_)
            | Self::Unhealthy { .. }
            | Self::Declined
            | Self::Logging(_)
            | Self::Runtime(_) => Exit::Unexpected,
        }
    }

    /// The problem document of the gateway, if there is one.
    pub(super) fn problem_json(&self) -> Option<&str> {
        match self {
            // The problem of one lease of a group has no document of its own; it was printed with those of the others.
            Self::Client(error) => error
                .problem()
                .map(crate::client::Problem::json)
                .filter(|json| !json.is_empty()),
            _ => None,
        }
    }
}

fn listen_hint(error: &io::Error, key: &str) -> String {
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

/// Names of fields and headers as the gateway says them, and the flags that set them.
const FLAGS: [(&str, &str); 15] = [
    (
        "Send it as `Authorization: Bearer KEY`",
        "Name a file with it by --key-file, or set LATCHGATE_KEY",
    ),
    ("`Idempotency-Key`", "--idempotency-key-file"),
    ("`Lock-Token`", "--token-file"),
    ("`ttl_ms`", "--ttl"),
    ("`max_hold_ms`", "--max-hold"),
    ("`wait_ms`", "--wait"),
    ("`grace_ms`", "--grace"),
    ("`limit`", "--limit"),
    ("`owner`", "--owner"),
    ("`metadata`", "--meta"),
    ("`reason`", "--reason"),
    ("`fencing_token`", "--fencing-token"),
    ("`all`", "--all"),
    // Without backticks, in texts that list several fields or recommend one.
    ("ttl_ms", "--ttl"),
    ("max_hold_ms", "--max-hold"),
];

/// The text of an error, with the flags of the command line in place of the gateway's names of fields and headers.
fn in_flags(error: &ClientError) -> String {
    let text = error.to_string();
    match error {
        ClientError::Refused(_) | ClientError::Unavailable(_) => FLAGS
            .iter()
            .fold(text, |text, (name, flag)| text.replace(name, flag)),
        // The texts of other errors contain words of other callers, such as the owner of a lease.
        _ => text,
    }
}
