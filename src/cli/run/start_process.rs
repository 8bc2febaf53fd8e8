//! The command before it is one: a process that stops until it is guarded, and becomes the command then.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use super::super::terminal::{output, visible::visible};

/// The name under which the program becomes a command.
const START: &str = "latchgate-run-start";

/// Begins a command line that becomes `command`, once it is continued.
///
/// It is the first of its process group, and stops itself before anything of the command runs: whoever
/// started it has the time to have the group guarded.
pub(super) fn stopped(program: &OsStr, command: &[OsString]) -> Command {
    let mut start = Command::new(program);
    start
        .arg0(START)
        .arg(getpid().as_raw_pid().to_string())
        .args(command)
        .process_group(0);
    start
}

/// Whether this process is to become a command.
pub(in crate::cli) fn is_start() -> bool {
    env::args_os().next().is_some_and(|name| name == START)
}

/// Stops, and becomes the command when it is continued. Comes back only if that fails.
pub(in crate::cli) fn start() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let parent = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let Some(program) = arguments.next() else {
        return ExitCode::FAILURE;
    };
    kill_process(getpid(), Signal::STOP).expect("a process may send a signal to itself");
    // The system continues what was stopped by somebody who has died.
    if getppid().map(Pid::as_raw_pid) != parent {
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(arguments).exec();
    let text = format!("cannot start {}: {error}", program.to_string_lossy());
    output::note(&format!("latchgate: {}", visible(&text)));
    code_of(&error).into()
}

/// The exit code for a command that could not be started, as shells have it.
fn code_of(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    }
}
