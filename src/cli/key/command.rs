//! What can be done about API keys.

use clap::Subcommand;

use crate::cli::{caller::environment::Environment, error::CliError, terminal::output};

use super::{list::ListArgs, new::NewArgs, rotate::RotateArgs};

/// What to do.
#[derive(Subcommand)]
pub(in crate::cli) enum KeyCommand {
    New(NewArgs),
    List(ListArgs),
    Rotate(RotateArgs),
}

/// Does it. No gateway is asked.
pub(in crate::cli) fn key(command: &KeyCommand, environment: &Environment) -> Result<(), CliError> {
    match command {
        KeyCommand::New(args) => args.make(),
        KeyCommand::Rotate(args) => args.rotate(environment),
        KeyCommand::List(args) => {
            output::answer(&args.text(environment)?).map_err(CliError::Output)
        }
    }
}
