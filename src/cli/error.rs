//! The errors of commands, and their exit codes.

use std::{io, path::PathBuf};

use rustix::process::Signal;

use crate::{
    auth::{KeysFileError, SessionSecretError},
    client::{ClientError, SetupError},
    config::ConfigError,
    store::{embedded::BackupError, redis::CredentialsError},
    telemetry::trace::TraceError,
    tls::TlsError,
};

use super::{
    caller::{environment::VariableError, secret::SecretError},
    exit::Exit,
    key::KeysChangeError,
    run,
    serve::ServeError,
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
    /// The value of a flag is not allowed.
    #[error("{flag} {error}")]
    Argument {
        /// The flag.
        flag: &'static str,
        /// What is wrong with its value.
        error: String,
    },
    /// The value of a variable is not allowed.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// A secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The keys file cannot be used.
    #[error(transparent)]
    Keys(#[from] KeysFileError),
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
    /// The secret of sessions cannot be used.
    #[error(transparent)]
    SessionSecret(#[from] SessionSecretError),
    /// The files of a certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The login or the certificate for Redis cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The exporter of traces cannot be set up.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// No keys file was named.
    #[error("no keys file: name it with --keys, or with auth.keys_file in the configuration")]
    NoKeysFile,
    /// The gateway did not start, or its shutdown was cut short.
    #[error(transparent)]
    Serve(#[from] ServeError),
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

// === impl CliError ===

impl CliError {
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
            Self::Serve(error) => error.into(),
            Self::Setup(
                SetupError::Url(_) | SetupError::Tls(TlsError::File(_) | TlsError::Pair { .. }),
            )
            | Self::Tls(_)
            | Self::Credentials(_)
            | Self::Traces(_)
            | Self::Argument { .. }
            | Self::Variable(_)
            | Self::Secret(_)
            | Self::Config(_)
            | Self::Keys(_)
            | Self::KeysChange(
                KeysChangeError::Keys(_)
                | KeysChangeError::Unreadable { .. }
                | KeysChangeError::Unfit { .. },
            )
            | Self::SessionSecret(_)
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
