//! `latchgate config`.

use std::{fmt::Write, path::PathBuf};

use clap::{Args, Subcommand};

use crate::{
    auth::{KeysFile, SessionSeal},
    config::{StoreUrl, reference},
    http::CertificatesWatch,
    store::redis::{RedisServers, check_credentials, check_quorum_credentials},
    telemetry::trace::check_trace,
};

use super::{
    caller::environment::Environment, error::CliError, sources::SourceArgs, terminal::output,
};

/// What to do with the configuration.
#[derive(Subcommand)]
pub(super) enum ConfigCommand {
    /// Print a configuration file with every key, its default and what it is for
    Default,
    /// Check the configuration without starting, and show who sets what
    ///
    /// Reads every file that it names: keys, certificates, passwords. Connects to nothing.
    Check(CheckArgs),
}

/// Which configuration is checked.
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
    output::answer(&text).map_err(CliError::Output)
}

fn check(args: &CheckArgs, environment: &Environment) -> Result<String, CliError> {
    let mut sources = args.sources.of(environment);
    if let Some(file) = &args.file {
        sources.file = Some(file.clone());
    }
    let loaded = sources.load()?;
    if loaded.config.auth.has_keys() {
        KeysFile::new(&loaded.config.auth.keys_file).read()?;
        SessionSeal::open_configured(&loaded.config.auth)?;
    }
    if loaded.config.http.tls.is_on() {
        CertificatesWatch::open(loaded.config.http.tls.clone())?;
    }
    let servers: Option<RedisServers> = match &loaded.config.store {
        StoreUrl::Embedded(_) => None,
        StoreUrl::Redis(url) => Some(url.into()),
        StoreUrl::Sentinel(url) => Some(url.into()),
        StoreUrl::Cluster(url) => Some(url.into()),
        StoreUrl::Redlock(url) => {
            check_quorum_credentials(url, &loaded.config.redis)?;
            None
        }
    };
    if let Some(servers) = servers {
        check_credentials(&servers, &loaded.config.redis)?;
    }
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
