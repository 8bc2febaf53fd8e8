//! The command line as clap reads it.

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::{
    acquire::AcquireArgs, backup::BackupArgs, break_lock::BreakArgs, completions::CompletionsArgs,
    config::ConfigCommand, events::EventsArgs, exit::Exit, healthcheck::HealthcheckArgs,
    inspect::InspectArgs, key::KeyCommand, list::ListArgs, release::ReleaseArgs, renew::RenewArgs,
    run::RunArgs, serve::ServeArgs,
};

/// Distributed locks over plain HTTP and JSON.
#[derive(Parser)]
///
/// Without a command it serves, with the options below.
#[command(
    name = "latchgate",
    version = crate::release::DESCRIPTION,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

/// What to do.
#[derive(Subcommand)]
pub(super) enum Command {
    Serve(ServeArgs),
    Run(RunArgs),
    Acquire(AcquireArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    Inspect(InspectArgs),
    List(ListArgs),
    Break(BreakArgs),
    Events(EventsArgs),
    Backup(BackupArgs),
    /// Make an API key, give it another secret, or list who may do what
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print or check the configuration of a gateway
    #[command(subcommand)]
    Config(ConfigCommand),
    Healthcheck(HealthcheckArgs),
    #[command(about = "Print the OpenAPI document of the gateway")]
    Openapi,
    Completions(CompletionsArgs),
}

/// A command with its exit codes behind its `--help`, and so its own commands.
fn with_codes(command: clap::Command) -> clap::Command {
    let name = command.get_name().to_owned();
    let command = command.mut_subcommands(|inner| {
        let list = Exit::list(&format!("{name} {}", inner.get_name()));
        inner.after_help(list)
    });
    let list = Exit::list(&name);
    if list.is_empty() {
        command
    } else {
        command.after_help(list)
    }
}

// === impl Args ===

impl Args {
    /// The whole command line, with the exit codes of each command behind its `--help`.
    pub fn all() -> clap::Command {
        let own = format!(
            "{}\n\nThe --help of each command lists its own exit codes.",
            Exit::list("serve")
        );
        Self::command().after_help(own).mut_subcommands(with_codes)
    }

    /// Reads the arguments of this process: what to do, which is to serve if nothing else was said, and whether the
    /// answer is to be JSON. Says what is wrong with them, or `--help`, and ends the process if there is nothing to do.
    pub(super) fn of_process() -> (Command, bool) {
        let matches = Self::all().get_matches();
        let json = |inner: &ArgMatches| matches!(inner.try_get_one("json"), Ok(Some(true)));
        let wants_json = matches.subcommand().is_some_and(|(_, inner)| json(inner));
        let args = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        (
            args.command.unwrap_or(Command::Serve(args.serve)),
            wants_json,
        )
    }
}
