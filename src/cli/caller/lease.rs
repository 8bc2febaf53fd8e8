//! Which lease a command is about.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::path::PathBuf;

use clap::Args;

use crate::lock::{LockName, Token};

use super::{
    super::error::CliError,
    environment::Environment,
    locks::Locks,
    secret::{self, SecretError},
};

/// The options of every command that needs the token of a lease.
#[derive(Args)]
pub(crate) struct LeaseArgs {
    /// The lock, or several that have one token
    #[arg(required = true, value_name = "NAME")]
    names: Vec<LockName>,
    /// A file with the token of the lease; - reads standard input
    /// [env: LATCHGATE_TOKEN, LATCHGATE_TOKEN_FILE]
    ///
    /// The token itself is never an argument: every process of the machine could see it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

// === impl LeaseArgs ===

impl LeaseArgs {
    pub(crate) fn locks(&self) -> Result<Locks, CliError> {
        Locks::of(&self.names)
    }

    pub(crate) fn token(&self, environment: &Environment) -> Result<Token, CliError> {
        let token = secret::TOKEN.read(self.token_file.as_deref(), environment, Token::parse)?;
        Ok(token.ok_or(SecretError::Missing(secret::TOKEN))?)
    }
}
