//! Configuration of a gateway on the command line: the flags that set it, and `latchgate config`.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{fmt::Write, path::PathBuf};

use clap::{Args, Subcommand};

use crate::{
    auth::{KeysFile, SessionSeal},
    config::{DeclaredLocks, Sources, reference},
    http::CertificatesWatch,
    store::redis::check_credentials,
    telemetry::trace::check_trace,
};

use super::{caller::environment::Environment, error::CliError, terminal::output};

/// The options that configure a gateway. All other settings come from a file or the environment.
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

/// The subcommands of `latchgate config`.
#[derive(Subcommand)]
pub(super) enum ConfigCommand {
    /// Print a configuration file with every key, its default and what it is for
    Default,
    /// Check the configuration without starting, and show where each value is set
    ///
    /// Reads every file that it names: keys, certificates, passwords. Makes no connections.
    Check(CheckArgs),
}

/// The arguments of `latchgate config check`.
#[derive(Args)]
pub(super) struct CheckArgs {
    /// The configuration file, as with --config
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    sources: SourceArgs,
}

pub(super) fn config(command: &ConfigCommand, environment: &Environment) -> Result<(), CliError> {
    let text = match command {
        ConfigCommand::Default => reference::file(),
        ConfigCommand::Check(args) => check(args, environment)?,
    };
    output::answer(&text)
}

fn check(args: &CheckArgs, environment: &Environment) -> Result<String, CliError> {
    let mut sources = args.sources.with_environment(environment);
    if let Some(file) = &args.file {
        sources.file = Some(file.clone());
    }
    let loaded = sources.load()?;
    if loaded.config.auth.has_keys() {
        let (auth, store) = (&loaded.config.auth, &loaded.config.store);
        KeysFile::configured(auth, store).read()?;
        SessionSeal::open_configured(auth)?;
    }
    if let Some(file) = loaded.config.locks.path() {
        DeclaredLocks::read(file, &loaded.config.limits, &loaded.config.store)?;
    }
    if loaded.config.http.tls.is_on() {
        CertificatesWatch::open(loaded.config.http.tls.clone())?;
    }
    check_credentials(&loaded.config.store, &loaded.config.redis)?;
    check_trace(&loaded.config.trace)?;
    if loaded.set.is_empty() {
        return Ok("the configuration is valid; every key has its default\n".to_owned());
    }
    let mut text = "the configuration is valid; it sets\n".to_owned();
    for (key, value, source) in loaded.set {
        writeln!(text, "  {key} = {value}  # {source}").expect("writing to a String never fails");
    }
    Ok(text)
}

// === impl SourceArgs ===

impl SourceArgs {
    /// Makes source options that name this configuration file, and have no other flags.
    pub(super) fn with_file(config: Option<PathBuf>) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// The sources of the configuration: these flags, which have precedence over the environment and the file.
    pub(super) fn with_environment(&self, environment: &Environment) -> Sources {
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
