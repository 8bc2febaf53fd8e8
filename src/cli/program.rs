//! The program: reads the command line, does what it says, answers with an exit code.

use std::process::ExitCode;

use nix::sys::signal::SigSet;

use super::{
    acquire,
    args::{Args, Command},
    backup, break_lock,
    caller::environment::Environment,
    completions, config,
    error::CliError,
    events,
    exit::Exit,
    healthcheck, inspect, key, list, openapi, release, renew, run, serve,
    terminal::{output, visible},
};

/// Runs the program.
pub fn main() -> ExitCode {
    // Whoever started it may have blocked signals that it waits for: the end of a child, the request to stop.
    // Every thread, and every command that `run` starts, begins with the mask of this one.
    SigSet::empty()
        .thread_set_mask()
        .expect("a thread may unblock signals for itself");
    if run::is_guard() {
        return run::guard();
    }
    if run::is_start() {
        return run::start();
    }
    let (command, wants_json) = Args::of_process();
    let environment = Environment::of_process();
    match carry_out(&command, &environment) {
        Ok(code) => code.into(),
        Err(error) => {
            if let (true, Some(problem)) = (wants_json, error.problem_json()) {
                // The exit code and the line below say the same; a reader who has gone misses
                // nothing.
                drop(output::answer(problem));
            }
            let text = error.to_string();
            // A holder may call itself what it likes, and so may whoever listens where a gateway should.
            let text = match &error {
                CliError::Client(_) | CliError::Stopped(_) | CliError::Unhealthy { .. } => {
                    visible(&text)
                }
                _ => text.as_str().into(),
            };
            output::note(&format!("latchgate: {text}"));
            error.code().into()
        }
    }
}

/// Does what the command line says, and answers with an exit code.
fn carry_out(command: &Command, environment: &Environment) -> Result<u8, CliError> {
    let done = match command {
        Command::Serve(args) => serve::serve(args, environment),
        Command::Run(args) => return block_on(run::run(args, environment)),
        Command::Acquire(args) => block_on(acquire::acquire(args, environment)),
        Command::Renew(args) => block_on(renew::renew(args, environment)),
        Command::Release(args) => block_on(release::release(args, environment)),
        Command::Inspect(args) => block_on(inspect::inspect(args, environment)),
        Command::List(args) => block_on(list::list(args, environment)),
        Command::Break(args) => block_on(break_lock::break_lock(args, environment)),
        Command::Events(args) => block_on(events::events(args, environment)),
        Command::Backup(args) => block_on(backup::backup(args, environment)),
        Command::Key(command) => key::key(command, environment),
        Command::Config(command) => config::config(command, environment),
        Command::Healthcheck(args) => block_on(healthcheck::healthcheck(args, environment)),
        Command::Openapi => openapi::openapi(),
        Command::Completions(args) => completions::completions(args, Args::all()),
    };
    done.map(|()| Exit::Done.code())
}

/// One call needs one thread.
fn block_on<T>(call: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::Runtime)?;
    runtime.block_on(call)
}
