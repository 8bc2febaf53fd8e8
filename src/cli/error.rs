//! Why a command did not do what it was asked to.

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
    /// What the gateway, or the way to it, had against the call.
    #[error("{}", in_flags(_0))]
    Client(#[from] ClientError),
    /// There is no client to call with.
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
    /// A key was added to a keys file, but could not be written for whoever is to use it.
    #[error("cannot write the key: {error}; nobody knows it: remove {name} from {}", file.display())]
    KeyNotWritten {
        /// Why.
        error: io::Error,
        /// What of the keys file has to go: a key, or a secret of it.
        name: String,
        /// The keys file.
        file: PathBuf,
    },
    /// The secret of sessions cannot be used.
    #[error(transparent)]
    SessionSecret(#[from] SessionSecretError),
    /// The files of a certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is nothing to connect to Redis with.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// There is nothing to send traces with.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// No keys file was named.
    #[error("no keys file: name it with --keys, or with auth.keys_file in the configuration")]
    NoKeysFile,
    /// The gateway did not start, or did not end as it should.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// What came is no backup.
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
        /// What became of the lease.
        fate: &'static str,
    },
    /// A signal came while the command waited for a lock. The lock was not acquired.
    #[error("gave up waiting")]
    Interrupted(Signal),
    /// There is no process to become the command.
    #[error("cannot start a process: {0}")]
    NotStarted(io::Error),
    /// The command was stopped because its lease was lost, or was about to be.
    #[error("the command was stopped because the lease was lost: {0}")]
    Stopped(String),
    /// The gateway does not answer a health check as it should.
    #[error("{url} {reason}")]
    Unhealthy {
        /// What was asked.
        url: String,
        /// What came of it.
        reason: String,
    },
    /// The lock that is to be broken is free.
    #[error("nobody holds the lock")]
    NotHeld,
    /// Whoever was asked did not say yes.
    #[error("nothing was broken")]
    Declined,
    /// There are no threads, no signals, or nothing to wait on.
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

    /// The gateway's own words, if it said something.
    pub(super) fn problem_json(&self) -> Option<&str> {
        match self {
            // What came of one of several leases is no document, and was printed with the others.
            Self::Client(error) => error
                .problem()
                .map(crate::client::Problem::json)
                .filter(|json| !json.is_empty()),
            _ => None,
        }
    }
}

/// What the gateway calls fields and headers of a request, and how they are given here.
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
    // Where several are listed, or one is recommended.
    ("ttl_ms", "--ttl"),
    ("max_hold_ms", "--max-hold"),
];

/// What the gateway, or the way to it, has against a call, in words of the command line.
fn in_flags(error: &ClientError) -> String {
    let text = error.to_string();
    match error {
        ClientError::Refused(_) | ClientError::Unavailable(_) => FLAGS
            .iter()
            .fold(text, |text, (name, flag)| text.replace(name, flag)),
        // What others have said is in the rest, such as the owner of a lease.
        _ => text,
    }
}
