//! The entry of the program: parses the command line, runs the command, and returns its exit code.

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::{Shell, generate};
use nix::sys::signal::SigSet;

use crate::http;

use super::{
    backup::{self, BackupArgs},
    break_lock::{self, BreakArgs},
    caller::environment::Environment,
    config::{self, ConfigCommand},
    demo::{self, DemoArgs},
    error::{CliError, Exit},
    events::{self, EventsArgs},
    healthcheck::{self, HealthcheckArgs},
    history::{self, HistoryArgs},
    inspect::{self, CheckArgs, InspectArgs, ListArgs},
    key::{KeyListArgs, NewArgs, RevokeArgs, RotateArgs, TestArgs},
    lease::{self, AcquireArgs, ReleaseArgs, RenewArgs},
    order::{self, OrderArgs},
    reserve::{self, ReserveArgs, UnreserveArgs},
    run::{self, RunArgs},
    serve::{self, ServeArgs},
    terminal::output,
    where_is::{self, WhereArgs},
};

/// Distributed locks over plain HTTP and JSON.
#[derive(Parser)]
///
/// Without a command, the program serves, with the options below.
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

/// The command to run.
#[derive(Subcommand)]
pub(super) enum Command {
    Serve(ServeArgs),
    Demo(DemoArgs),
    Run(RunArgs),
    Acquire(AcquireArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    Reserve(ReserveArgs),
    Unreserve(UnreserveArgs),
    Order(OrderArgs),
    Inspect(InspectArgs),
    List(ListArgs),
    Where(WhereArgs),
    History(HistoryArgs),
    Check(CheckArgs),
    Break(BreakArgs),
    Events(EventsArgs),
    Backup(BackupArgs),
    /// Make an API key, replace its secret, or list the keys and their permissions
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

/// The subcommands of `latchgate key`.
#[derive(Subcommand)]
pub(super) enum KeyCommand {
    New(NewArgs),
    List(KeyListArgs),
    Rotate(RotateArgs),
    Revoke(RevokeArgs),
    Test(TestArgs),
}

/// Print completions for a shell.
///
/// For bash: latchgate completions bash > ~/.local/share/bash-completion/completions/latchgate
#[derive(clap::Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs the program.
pub fn main() -> ExitCode {
    // The parent process may have blocked signals that this program waits for, such as the end of a child or TERM. All
    // threads, and the commands that `run` starts, inherit the signal mask of this thread.
    SigSet::empty()
        .thread_set_mask()
        .expect("a thread may unblock signals for itself");
    if run::is_guard() {
        return run::guard();
    }
    if run::is_start() {
        return run::start();
    }
    let (command, wants_json, locks) = Args::of_process();
    let environment = Environment::of_process();
    match carry_out(&command, &environment) {
        Ok(code) => code.into(),
        Err(error) => {
            if let (true, Some(problem)) = (wants_json, error.problem_json()) {
                // If the problem document cannot be written, the exit code and the message on standard error still
                // report the error.
                drop(output::answer(problem));
            }
            output::failure(&error.of_locks(locks.as_deref()))
        }
    }
}

/// Runs a command of the command line, and returns its exit code.
fn carry_out(command: &Command, environment: &Environment) -> Result<u8, CliError> {
    let done = match command {
        Command::Serve(args) => serve::serve(args, environment),
        Command::Demo(args) => demo::demo(args, environment),
        Command::Run(args) => return block_on(run::run(args, environment)),
        Command::Acquire(args) => block_on(lease::acquire(args, environment)),
        Command::Renew(args) => block_on(lease::renew(args, environment)),
        Command::Release(args) => block_on(lease::release(args, environment)),
        Command::Reserve(args) => block_on(reserve::reserve(args, environment)),
        Command::Unreserve(args) => block_on(reserve::unreserve(args, environment)),
        Command::Order(args) => block_on(order::order(args, environment)),
        Command::Inspect(args) => block_on(inspect::inspect(args, environment)),
        Command::List(args) => block_on(inspect::list(args, environment)),
        Command::Where(args) => block_on(where_is::where_is(args, environment)),
        Command::History(args) => block_on(history::history(args, environment)),
        Command::Check(args) => block_on(inspect::check(args, environment)),
        Command::Break(args) => block_on(break_lock::break_lock(args, environment)),
        Command::Events(args) => block_on(events::events(args, environment)),
        Command::Backup(args) => block_on(backup::backup(args, environment)),
        Command::Key(KeyCommand::New(args)) => args.make(),
        Command::Key(KeyCommand::Rotate(args)) => args.rotate(environment),
        Command::Key(KeyCommand::Revoke(args)) => args.revoke(environment),
        Command::Key(KeyCommand::Test(args)) => args.test(environment),
        Command::Key(KeyCommand::List(args)) => args.list(environment),
        Command::Config(command) => config::config(command, environment),
        Command::Healthcheck(args) => block_on(healthcheck::healthcheck(args, environment)),
        Command::Openapi => openapi(),
        Command::Completions(args) => completions(args),
    };
    done.map(|()| Exit::Done.code())
}

/// Runs a command on a runtime with one thread.
fn block_on<T>(call: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::runtime)?;
    runtime.block_on(call)
}

/// Prints the OpenAPI document that a gateway with the default configuration serves.
fn openapi() -> Result<(), CliError> {
    let document = http::openapi().to_pretty_json();
    output::answer(&document.expect("an OpenAPI document is JSON"))
}

fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    // The completions are generated into memory, because the generator panics if standard output is a closed pipe.
    let mut script = Vec::new();
    generate(args.shell, &mut Args::all(), "latchgate", &mut script);
    output::answer(&String::from_utf8_lossy(&script))
}

/// Adds the exit codes to the end of the `--help` of a command and of its subcommands.
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
    /// The whole command line, with the exit codes of each command at the end of its `--help`.
    pub fn all() -> clap::Command {
        let own = format!(
            "{}\n\nThe --help of each command lists its own exit codes.",
            Exit::list("serve")
        );
        Self::command().after_help(own).mut_subcommands(with_codes)
    }

    /// Parses the arguments of this process. Returns the command (`serve` if none is given), whether the command prints
    /// its answer as JSON, and the names of its locks. Prints `--help` or the error and ends the process if there is no
    /// command to run.
    pub(super) fn of_process() -> (Command, bool, Option<String>) {
        let matches = Self::all().get_matches();
        let json = |inner: &ArgMatches| matches!(inner.try_get_one("json"), Ok(Some(true)));
        let wants_json = matches.subcommand().is_some_and(|(_, inner)| json(inner));
        let locks = matches.subcommand().and_then(|(_, inner)| names_of(inner));
        let args = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        (
            args.command.unwrap_or(Command::Serve(args.serve)),
            wants_json,
            locks,
        )
    }
}

/// The names of the locks on a command line, for error messages; `None` if the command is not about certain locks.
fn names_of(matches: &ArgMatches) -> Option<String> {
    let of = |id| matches.try_get_raw(id).ok().flatten();
    let names = of("names").or_else(|| of("name"))?;
    let names = names.map(|name| {
        let name = name.to_string_lossy();
        name.split('=').next().unwrap_or_default().to_owned()
    });
    Some(names.collect::<Vec<_>>().join(", "))
}
