//! `latchgate completions`.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use super::{error::CliError, terminal::output};

/// Print completions for a shell.
///
/// For bash: latchgate completions bash > ~/.local/share/bash-completion/completions/latchgate
#[derive(Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn completions(args: &CompletionsArgs, mut program: Command) -> Result<(), CliError> {
    // Into memory first: the generator panics where a pipe is closed.
    let mut script = Vec::new();
    generate(args.shell, &mut program, "latchgate", &mut script);
    output::answer(&String::from_utf8_lossy(&script)).map_err(CliError::Output)
}
