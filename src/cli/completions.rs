//! `latchgate completions`.

use clap::Args;
use clap_complete::{Shell, generate};

use super::{args, error::CliError, output};

/// Print completions for a shell.
///
/// For bash: latchgate completions bash > ~/.local/share/bash-completion/completions/latchgate
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    // Into memory first: the generator panics where a pipe is closed.
    let mut script = Vec::new();
    generate(args.shell, &mut args::Args::all(), "latchgate", &mut script);
    output::answer(&String::from_utf8_lossy(&script)).map_err(CliError::Output)
}
