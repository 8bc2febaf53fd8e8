//! What the command line says about the configuration of a gateway.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::path::PathBuf;

use clap::Args;

use crate::config::Sources;

use super::caller::environment::Environment;

/// The options that configure a gateway. Everything else is set in a file or in the environment.
#[derive(Args, Default)]
pub(super) struct SourceArgs {
    /// The address to listen on; port 0 takes a free one [env: LATCHGATE_LISTEN]
    /// [default: 127.0.0.1:7420]
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,
    /// Where leases live: embedded:DIR or redis://HOST[:PORT][/DB] [env: LATCHGATE_STORE]
    /// [default: embedded:./latchgate-data]
    ///
    /// A URL with a password belongs in the environment or a file: every process of the machine
    /// can see an argument.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The configuration file; `latchgate config default` prints one [env: LATCHGATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve without authentication on an address that other machines can reach
    /// [env: LATCHGATE_INSECURE_NO_AUTH]
    #[arg(long)]
    insecure_no_auth: bool,
}

// === impl SourceArgs ===

impl SourceArgs {
    /// Nothing but a configuration file.
    pub(super) fn with_file(config: Option<PathBuf>) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// These, over the environment.
    pub(super) fn of(&self, environment: &Environment) -> Sources {
        let mut flags = Vec::new();
        if let Some(listen) = &self.listen {
            flags.push(("listen", "--listen", listen.clone()));
        }
        if let Some(store) = &self.store {
            flags.push(("store", "--store", store.clone()));
        }
        if self.insecure_no_auth {
            flags.push(("insecure_no_auth", "--insecure-no-auth", "true".to_owned()));
        }
        Sources {
            variables: environment.all().to_vec(),
            file: self.config.clone(),
            flags,
        }
    }
}
