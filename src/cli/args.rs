//! The command line as clap reads it.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::{
    acquire::AcquireArgs, completions::CompletionsArgs, config::ConfigCommand, exit::Exit,
    inspect::InspectArgs, release::ReleaseArgs, renew::RenewArgs, run::RunArgs,
};

/// Distributed locks over plain HTTP and JSON.
#[derive(Debug, Parser)]
#[command(name = "latchgate", version, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Run(RunArgs),
    Acquire(AcquireArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    Inspect(InspectArgs),
    /// Print or check the configuration of a gateway
    #[command(subcommand)]
    Config(ConfigCommand),
    Completions(CompletionsArgs),
}

// === impl Args ===

impl Args {
    /// The whole command line, with the exit codes behind every `--help`.
    pub fn all() -> clap::Command {
        let with_codes = |command: clap::Command| command.after_help(Exit::list());
        with_codes(Self::command()).mut_subcommands(with_codes)
    }

    /// Reads the arguments of this process. Says what is wrong with them, or `--help`, and ends the
    /// process if there is nothing to do.
    pub(super) fn of_process() -> Self {
        let matches = Self::all().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}
