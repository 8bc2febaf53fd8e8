//! Which gateway the client commands call, and as whom.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::path::PathBuf;

use clap::Args;

use crate::{
    client::{ApiKey, Client, ClientOptions},
    trace_context::TraceContext,
};

use super::{environment::Environment, error::CliError, secret};

/// The options of every command that calls a gateway.
#[derive(Args)]
#[command(next_help_heading = "Gateway")]
pub(super) struct ConnectionArgs {
    #[arg(
        long,
        value_name = "URL",
        help = "The address of the gateway; several on one store, separated by commas, are tried in \
                turn [env: LATCHGATE_URL] [default: http://127.0.0.1:7420]"
    )]
    url: Option<String>,
    /// A file with the API key; - reads standard input [env: LATCHGATE_KEY, LATCHGATE_KEY_FILE]
    ///
    /// The key itself is never an argument: every process of the machine could see it.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

// === impl ConnectionArgs ===

impl ConnectionArgs {
    /// A client for the gateway.
    pub(super) fn client(&self, environment: &Environment) -> Result<Client, CliError> {
        let mut options = ClientOptions::default();
        if let Some(url) = self
            .url
            .as_deref()
            .or_else(|| environment.text("LATCHGATE_URL"))
        {
            url.clone_into(&mut options.url);
        }
        options.key = secret::KEY.read(self.key_file.as_deref(), environment, ApiKey::new)?;
        options.trace = environment
            .text("TRACEPARENT")
            .and_then(|parent| TraceContext::parse(parent, environment.text("TRACESTATE")));
        Ok(Client::new(options)?)
    }
}
