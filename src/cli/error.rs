//! Why a command did not do what it was asked to.

use std::io;

use crate::{
    client::{ClientError, SetupError},
    config::ConfigError,
};

use super::{exit::Exit, secret::SecretError};

/// The failures of all commands.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// What the gateway, or the way to it, had against the call.
    #[error(transparent)]
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
    /// A secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
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
    /// There are no threads, or nothing to wait on.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

// === impl CliError ===

impl CliError {
    /// The exit code for it.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => error.into(),
            Self::Setup(SetupError::Url(_))
            | Self::Argument { .. }
            | Self::Secret(_)
            | Self::Config(_) => Exit::Usage,
            Self::Setup(SetupError::Tls(_) | SetupError::Http(_))
            | Self::Output(_)
            | Self::TokenNotWritten { .. }
            | Self::Runtime(_) => Exit::Unexpected,
        }
    }

    /// The gateway's own words, if it said something.
    pub(super) fn problem_json(&self) -> Option<&str> {
        match self {
            Self::Client(error) => error.problem().map(crate::client::Problem::json),
            _ => None,
        }
    }
}
