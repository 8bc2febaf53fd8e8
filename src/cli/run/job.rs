//! The process group of a command: its start and its end.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, PipeReader, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::{
            ffi::OsStrExt as _,
            fs::OpenOptionsExt as _,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::Path,
    process::{Child, Command, ExitCode},
    time::Duration,
};

use rustix::{
    fs::{Access, AtFlags, CWD, OFlags, accessat},
    io::{Errno, FdFlags, fcntl_setfd},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, getppid, kill_process_group,
        test_kill_process_group, waitid, waitpgid,
    },
};
use tokio::time::{Instant, sleep};

use super::{
    super::{
        caller::environment,
        terminal::{output, visible},
    },
    args::OnLost,
    foreground::take_terminal_of,
    guard::own_program,
};

/// A command and all its descendants that stay in its process group.
#[derive(Debug)]
pub(super) struct Job {
    child: Child,
    group: Pid,
    /// The report of the command's process that the system refused to execute the command, if it did.
    refusal: PipeReader,
}

/// The state of the command's own process, without its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Running,
    /// The command is suspended by a signal, and may be continued.
    Stopped,
    Ended,
}

/// The variable with the token of the lease, for the command. An inherited value belongs to another lease.
pub(super) const TOKEN: &str = "LATCHGATE_TOKEN";
/// The variable with the slot of the lease, for the command. An inherited value belongs to another lease.
pub(super) const SLOT: &str = "LATCHGATE_SLOT";
/// The variable with the slots of the lease in all locks of a group, for the command.
pub(super) const SLOTS: &str = "LATCHGATE_SLOTS";

/// How long to wait for the end of a killed process group. The kernel needs a moment to end a process with much memory;
/// a process that is alive after this time waits for an operation that may never end.
const KILLED: Duration = Duration::from_secs(5);
/// How often an ending process group is looked for.
const LOOK: Duration = Duration::from_millis(20);

// === impl Job ===

impl Job {
    fn from_child(child: Child, refusal: PipeReader) -> Self {
        let group = Pid::from_child(&child);
        Self {
            child,
            group,
            refusal,
        }
    }

    /// Starts a command in a process group of its own, which has the terminal if this process has it. Must be called on
    /// the main thread: see [`command_line`].
    pub(super) fn start(
        command: &[OsString],
        variables: &[(&'static str, String)],
        on_lost: OnLost,
    ) -> io::Result<Self> {
        let (refusal, told) = io::pipe()?;
        // The process inherits this end of the pipe. No other process is started until the end is closed here.
        fcntl_setfd(&told, FdFlags::empty())?;
        let child = command_line(command, told.as_raw_fd(), on_lost)?
            .env_remove(TOKEN)
            .env_remove(environment::ID_TOKEN)
            .env_remove(environment::ID_TOKEN_FILE)
            .env_remove(SLOT)
            .env_remove(SLOTS)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .spawn()?;
        Ok(Self::from_child(child, refusal))
    }

    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// The current state of the command's process. If the process has ended, [`Job::collect`] collects it later: until
    /// then the system gives its process id to no other process group.
    pub(super) fn status(&self) -> Status {
        let now = |options| {
            let options = options | WaitIdOptions::NOHANG;
            matches!(waitid(WaitId::Pid(self.group), options), Ok(Some(_)))
        };
        if now(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Status::Ended
        } else if now(WaitIdOptions::STOPPED) {
            Status::Stopped
        } else {
            Status::Running
        }
    }

    /// Sends a signal to the whole process group of the command.
    pub(super) fn signal(&self, signal: Signal) {
        // The call fails only if no process of the group is left, or if all processes left have changed their user.
        let _: Result<_, _> = kill_process_group(self.group, signal);
    }

    /// Collects the ended command, and returns its exit code. After this call, the group must not get any more signals:
    /// the system may give its id, which is the process id of the command, to other processes.
    pub(super) fn collect(&mut self) -> io::Result<u8> {
        let status = self.child.wait()?;
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        Ok(code
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX))
    }

    /// Whether the command was executed, after the end of its process. Where the process could not report a failure (no
    /// `/proc`, no `/dev/fd`), the command counts as executed.
    pub(super) fn was_started(&mut self) -> bool {
        let mut told = Vec::new();
        // A failure is ignored, because the command then counts as executed.
        let _: io::Result<_> = self.refusal.read_to_end(&mut told);
        told != REFUSED
    }

    /// Waits until the group has no process left, after its KILL and the collection of the command. Returns whether it
    /// came to that: a process that waits for a disk or a remote file system dies only after its operation, a process
    /// that has changed its user cannot be killed, and a dead process counts until its parent collects it.
    pub(super) async fn is_gone(&self) -> bool {
        let until = Instant::now() + KILLED;
        loop {
            // The first process of a container is the parent of all processes that the command has left.
            while matches!(waitpgid(self.group, WaitOptions::NOHANG), Ok(Some(_))) {}
            // If all processes of the group have changed their user, the error is another one.
            if test_kill_process_group(self.group) == Err(Errno::SRCH) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(LOOK).await;
        }
    }
}

// === Start ===
//
// The start of a command: a process that makes the kernel kill it together with its parent, and then becomes the
// command.

/// The program name (argument 0) that makes this program become a command.
const START: &str = "latchgate-run-start";
/// The argument for a command that is to die with its parent.
const DIES_WITH_PARENT: &str = "dies-with-parent";
/// The argument for a command that is to outlive its parent.
const OUTLIVES_PARENT: &str = "outlives-parent";

/// Report of the process of a command: the system refused to execute the command.
const REFUSED: &[u8] = b"f";

/// The command line of a process that executes `command` as the first process of a group.
///
/// A command that must not outlive its lease dies with the thread that started it. So that thread must live as long as
/// `latchgate run`.
///
/// `told_at`: the process reports a failure to this file descriptor, which it inherits.
fn command_line(command: &[OsString], told_at: RawFd, on_lost: OnLost) -> io::Result<Command> {
    let mut start = Command::new(own_program()?);
    start
        .arg0(START)
        .arg(getpid().as_raw_pid().to_string())
        .arg(told_at.to_string())
        .arg(match on_lost {
            OnLost::Terminate => DIES_WITH_PARENT,
            OnLost::Continue => OUTLIVES_PARENT,
        })
        .args(command)
        .process_group(0);
    Ok(start)
}

/// Whether this process was started by `run` to become its command.
pub(in crate::cli) fn is_start() -> bool {
    env::args_os().next().is_some_and(|name| name == START)
}

/// Executes the command. Returns only after a failure.
pub(in crate::cli) fn start() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let mut number = || arguments.next()?.to_str()?.parse::<i32>().ok();
    let (parent, told_at) = (number().and_then(Pid::from_raw), number());
    let dies = arguments.next().is_some_and(|it| it == DIES_WITH_PARENT);
    let Some(program) = arguments.next() else {
        return ExitCode::FAILURE;
    };
    if dies {
        die_with_parent();
    }
    // If the parent died before that call, the kernel sends no KILL. The command must not start then, because no
    // process renews the lease.
    if getppid() != parent {
        return ExitCode::FAILURE;
    }
    take_terminal_of(parent);
    let told = told_at.and_then(take_pipe);
    let error = Command::new(&program).args(arguments).exec();
    if let Some(mut pipe) = told {
        // A failed write is ignored: `run` then takes the command for executed, or has ended.
        let _: io::Result<()> = pipe.write_all(REFUSED);
    }
    report(&program, &error).into()
}

/// Takes over an inherited pipe, so that the command does not inherit it. `None` where the system does not show the
/// files of a process.
fn take_pipe(inherited: RawFd) -> Option<File> {
    // If `run` has ended, no process reads the pipe, and an open without this flag would wait for a reader.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let open = |directory| {
        OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(format!("{directory}/{inherited}"))
    };
    let pipe = open("/proc/self/fd").or_else(|_| open("/dev/fd"));
    // A failure is ignored: then the descriptor was not open.
    let _: Result<_, _> = nix::unistd::close(inherited);
    pipe.ok()
}

/// Prints why a command cannot be started, and returns the exit code for this failure.
pub(super) fn report(program: &OsStr, error: &io::Error) -> u8 {
    let text = format!("cannot start {}: {error}", program.to_string_lossy());
    output::note(&format!("latchgate: {}", visible(&text)));
    code_of(error)
}

/// Checks whether the system would find a command, and the interpreter of a script, and may execute it. `path` is the
/// list of directories for a name without a slash.
pub(super) fn look_for(program: &OsStr, path: Option<&OsStr>) -> io::Result<()> {
    if program.as_bytes().contains(&b'/') {
        look_at(Path::new(program))?;
        return look_for_interpreter(Path::new(program), path);
    }
    let Some(path) = path else {
        // Without a PATH, the system searches default directories, which this program does not know: no check.
        return Ok(());
    };
    let mut refusal = io::Error::from(Errno::NOENT);
    for directory in env::split_paths(path) {
        let file = directory.join(program);
        match look_at(&file) {
            Ok(()) => return look_for_interpreter(&file, Some(path)),
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
        // Any other error, such as a system without this check, is ignored here: the start of the command reports it.
        _ => Ok(()),
    }
}

/// Checks whether the interpreter exists that the first line of a script names. Without it, the system reports only that
/// "no such file" exists. `env` as the interpreter searches the rest of the line in the directories of `path`.
fn look_for_interpreter(script: &Path, path: Option<&OsStr>) -> io::Result<()> {
    let mut start = Vec::new();
    if script.is_file() {
        // A failure is ignored: the start of the command reports a file that cannot be read.
        let _: io::Result<_> = File::open(script)
            .and_then(|file| file.take(LONGEST_FIRST_LINE).read_to_end(&mut start));
    }
    let Some(line) = start.strip_prefix(b"#!") else {
        return Ok(());
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes);
    let Some(interpreter) = words.next() else {
        return Ok(());
    };
    let searched = words.next().filter(|word| {
        interpreter.as_bytes().ends_with(b"/env")
            && !word.as_bytes().starts_with(b"-")
            && !word.as_bytes().contains(&b'=')
    });
    for name in [Some(interpreter), searched].into_iter().flatten() {
        let found = if name == interpreter {
            look_at(Path::new(name))
        } else {
            look_for(name, path)
        };
        if found.is_err_and(|error| code_of(&error) == NOT_FOUND) {
            let hint = if name.as_bytes().ends_with(b"\r") {
                ": save the script with line ends of Unix"
            } else {
                ""
            };
            let name = name.to_string_lossy();
            let text = format!("its first line names {name:?}, which does not exist{hint}");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
    }
    Ok(())
}

/// Makes the kernel kill this process when the thread that started it ends for any reason. This is the third line of
/// defence, after `latchgate run` and its guard: if both are gone, no process renews the lease, and none could follow a
/// TERM with a KILL in time.
///
/// The setting survives `exec`. Children of the command do not inherit it, and it is cleared if the command becomes
/// another user (`sudo`).
#[cfg(target_os = "linux")]
fn die_with_parent() {
    // A failure is ignored: on a kernel without this feature, `latchgate run` and the guard still protect the lease.
    let _: Result<_, _> = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Only Linux can kill a process when its parent ends.
#[cfg(not(target_os = "linux"))]
fn die_with_parent() {}

/// How much of the first line of a script Linux reads.
const LONGEST_FIRST_LINE: u64 = 256;
/// The exit code for a command that is not found, as in shells.
const NOT_FOUND: u8 = 127;

/// The exit code for a command that could not be started, as in shells.
fn code_of(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => NOT_FOUND,
        _ => 126,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_group_is_gone_only_when_its_last_process_is() {
        let mut first = Command::new("true");
        let (refusal, _) = io::pipe().unwrap();
        let child = first.process_group(0).spawn().unwrap();
        let mut job = Job::from_child(child, refusal);
        let mut left = Command::new("sleep");
        let group = job.group().as_raw_pid();
        let mut left = left.arg("60").process_group(group).spawn().unwrap();
        assert_eq!(job.collect().unwrap(), 0);
        assert!(!job.is_gone().await);
        left.kill().unwrap();
        left.wait().unwrap();
        assert!(job.is_gone().await);
    }
}
