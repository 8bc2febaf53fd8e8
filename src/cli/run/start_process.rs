//! The command before it is one: a process that stops until it is guarded, and becomes the command then.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
};

use super::{
    super::terminal::{output, visible},
    args::OnLost,
};

/// The name under which the program becomes a command.
const START: &str = "latchgate-run-start";
/// What follows the number of the parent, if the command is to die with it.
const DIES_WITH_PARENT: &str = "dies-with-parent";
/// The same, if it goes on.
const OUTLIVES_PARENT: &str = "outlives-parent";

/// Begins a command line that becomes `command`, once it is continued.
///
/// It is the first of its process group, and stops itself before anything of the command runs: whoever
/// started it has the time to have the group guarded.
///
/// A command that must not outlive its lease dies with the thread that starts it: that must be one that lives
/// as long as the process.
pub(super) fn stopped(program: &OsStr, command: &[OsString], on_lost: OnLost) -> Command {
    let mut start = Command::new(program);
    start
        .arg0(START)
        .arg(getpid().as_raw_pid().to_string())
        .arg(match on_lost {
            OnLost::Terminate => DIES_WITH_PARENT,
            OnLost::Continue => OUTLIVES_PARENT,
        })
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
    let dies = arguments.next().is_some_and(|it| it == DIES_WITH_PARENT);
    let Some(program) = arguments.next() else {
        return ExitCode::FAILURE;
    };
    // A parent that has died before this was asked for is not told of any more.
    if dies {
        die_with_parent();
    }
    if getppid().map(Pid::as_raw_pid) != parent {
        return ExitCode::FAILURE;
    }
    kill_process(getpid(), Signal::STOP).expect("a process may send a signal to itself");
    // The system continues what was stopped by somebody who has died.
    if getppid().map(Pid::as_raw_pid) != parent {
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(arguments).exec();
    report(&program, &error).into()
}

/// Says why a command cannot be started, and answers with the exit code for that.
pub(super) fn report(program: &OsStr, error: &io::Error) -> u8 {
    let text = format!("cannot start {}: {error}", program.to_string_lossy());
    output::note(&format!("latchgate: {}", visible(&text)));
    code_of(error)
}

/// Looks whether the system would find a command and may execute it. `path` is where it looks for a name without a
/// slash.
pub(super) fn look_for(program: &OsStr, path: Option<&OsStr>) -> io::Result<()> {
    if program.as_encoded_bytes().contains(&b'/') {
        return look_at(Path::new(program));
    }
    let Some(path) = path else {
        // Without a PATH, the system searches default directories, which are not known here.
        return Ok(());
    };
    let mut refusal = io::Error::from(Errno::NOENT);
    for directory in env::split_paths(path) {
        match look_at(&directory.join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if code_of(&error) == NOT_FOUND => {}
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

fn look_at(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        return Err(Errno::ACCESS.into());
    }
    match accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS) => Err(Errno::ACCESS.into()),
        // Any other error, such as a system without this check, is left to the start of the command.
        _ => Ok(()),
    }
}

/// Makes the kernel send this process a KILL when the thread that started it ends for any reason. This is the third line
/// of defence, after `latchgate run` and its guard: without both, no process renews the lease or could follow a TERM
/// with a KILL in time.
///
/// The setting survives `exec`. Children of the command do not inherit it, and it is cleared if the command becomes
/// another user (`sudo`).
#[cfg(target_os = "linux")]
fn die_with_parent() {
    // A kernel that does not know it leaves the other two lines.
    let _: Result<_, _> = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Elsewhere there is no such thing.
#[cfg(not(target_os = "linux"))]
fn die_with_parent() {}

/// The exit code for a command that is not found, as shells have it.
const NOT_FOUND: u8 = 127;

/// The exit code for a command that could not be started, as shells have it.
fn code_of(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => NOT_FOUND,
        _ => 126,
    }
}
