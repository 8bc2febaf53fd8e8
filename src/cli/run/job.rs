//! The process group of a command: its start, its live processes, and its end.

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
    process::{self, Child, Command, ExitCode},
    time::Duration,
};

use rustix::{
    fs::{Access, AtFlags, CWD, OFlags, accessat},
    io::{Errno, FdFlags, fcntl_setfd},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, kill_process_group,
        test_kill_process_group, waitid,
    },
};
use tokio::time::{Instant, sleep};

use super::{
    super::terminal::{output, visible},
    args::OnLost,
    guard::own_program,
};

/// A command and all its descendants that stay in its process group.
#[derive(Debug)]
pub(super) struct Job {
    child: Child,
    group: Pid,
    /// A process of the group that was alive at the last check. The next check begins with this process.
    alive: Option<i32>,
    /// How far the start of the command has got, as its process reports it.
    progress: PipeReader,
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

/// The state of the process group of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupState {
    /// A process of the group is alive.
    Alive,
    /// The group has processes, but it is unknown whether one of them is alive: the system does not show any processes,
    /// or not those of other users.
    Unknown,
    /// All visible processes of the group are dead and wait to be collected by their parents. The command's own process
    /// waits until `latchgate run` collects it. A process may have been started during the check.
    Dead,
    /// The group has no processes.
    Gone,
}

/// The state of a process in `/proc`.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: i32,
    group: i32,
    dead: bool,
}

/// The directory in which Linux shows its processes.
const PROCESSES: &str = "/proc";
/// The process id of the first process of the system or container. It always exists, and often belongs to another
/// user.
const INIT: i32 = 1;

/// Whether processes of the command's group are left after the end of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftover {
    /// No live process of the group is visible.
    Nobody,
    /// A process of the group survived the KILL, or the system does not show whether one did. A process that waits for
    /// a disk or a remote file system dies only after its operation; a process that has changed its user cannot be
    /// killed.
    Somebody,
}

/// Collects processes whose parents have ended, if this process is the first of a container and so their new parent.
/// Without the collection, dead processes would stay in the process table for as long as the container runs.
///
/// Outside of a container, the first process of the system collects them. If this process became their parent as a
/// "subreaper", it would only get processes that have left the process group, which are not stopped anyway.
#[derive(Debug)]
pub(super) struct Orphans {
    is_first: bool,
    /// Children of this process that other code collects, such as the command and the guard.
    children: Vec<Pid>,
}

/// How long to wait for the end of a killed process group. The kernel needs a moment to end a process with much memory;
/// a process that is alive after this time waits for an operation that may never end.
const KILLED: Duration = Duration::from_secs(5);
/// How often the state of an ending process group is checked.
pub(super) const LOOK: Duration = Duration::from_millis(20);

// === impl Job ===

impl Job {
    fn from_child(child: Child, progress: PipeReader) -> Self {
        Self {
            group: Pid::from_child(&child),
            child,
            alive: None,
            progress,
        }
    }

    /// Starts a command in a process group of its own. The command's process is suspended before it executes the
    /// command, and continues when it gets a CONT. Must be called on the main thread: see [`stopped`].
    pub(super) fn start(
        command: &[OsString],
        variables: &[(&'static str, String)],
        on_lost: OnLost,
    ) -> io::Result<Self> {
        let (progress, told) = io::pipe()?;
        // The process inherits this end of the pipe. No other process is started until the end is closed here.
        fcntl_setfd(&told, FdFlags::empty())?;
        let told_at = told.as_raw_fd();
        let child = stopped(own_program()?.as_os_str(), told_at, command, on_lost)
            .env_remove(TOKEN)
            .env_remove(SLOT)
            .env_remove(SLOTS)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .spawn()?;
        drop(told);
        let job = Self::from_child(child, progress);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(job.group), stopped), Err(Errno::INTR)) {}
        // The status of this first suspension is read here, so that the supervisor does not take it for a suspension by
        // the user.
        job.status();
        Ok(job)
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

    /// Whether the command was executed, after the end of its process. Where the process could not report its start (no
    /// `/proc`, no `/dev/fd`), the command counts as executed.
    pub(super) fn was_started(&mut self) -> bool {
        let mut told = Vec::new();
        // A failure is ignored, because the command then counts as executed.
        let _: io::Result<_> = self.progress.read_to_end(&mut told);
        !matches!(told.as_slice(), b"." | b".xf")
    }

    /// The current state of the group. A signal that can be sent does not show that a process is alive: dead processes
    /// get signals until their parent collects them, and the first process of a container, their new parent, may never
    /// do so.
    fn group_state(&mut self) -> GroupState {
        // If all processes of the group have changed their user, the error is another one: the group still exists.
        if test_kill_process_group(self.group) == Err(Errno::SRCH) {
            return GroupState::Gone;
        }
        let visible = self.alive.into_iter().chain(processes());
        let visible = visible.filter_map(|pid| Some((pid, ProcessStat::read(pid)?)));
        let shows_others = || ProcessStat::read(INIT).is_some();
        let (group_state, alive) = judge(self.group.as_raw_pid(), visible, shows_others);
        self.alive = alive.or(self.alive);
        group_state
    }

    /// Checks the processes that the ended command has left in its group, and kills them after `kill_at`. Sets `killed`
    /// to the time of the KILL. Returns `None` while there are processes to wait for.
    pub(super) fn look(
        &mut self,
        killed: &mut Option<Instant>,
        kill_at: Instant,
    ) -> Option<Leftover> {
        let now = Instant::now();
        let mut state = self.group_state();
        if killed.is_none() && is_to_be_killed(state, now >= kill_at) {
            self.signal(Signal::KILL);
            *killed = Some(now);
            // This second check of the group finds processes that the check before the KILL missed.
            state = self.group_state();
        }
        leftover(state, killed.map(|at| now - at))
    }

    /// Checks for hidden processes of the group after the KILL, when the command has been collected. Before the
    /// collection, the dead command would make an empty group look like a group with hidden processes. If the system
    /// has given the process id to another group by now, that group is taken for leftover processes, but gets no
    /// signal.
    pub(super) async fn look_for_hidden(&mut self, orphans: &Orphans) -> Leftover {
        let until = Instant::now() + KILLED;
        loop {
            // Dead processes that are not collected would count as members of the group.
            orphans.collect();
            match self.group_state() {
                GroupState::Gone | GroupState::Dead => return Leftover::Nobody,
                _ if Instant::now() >= until => return Leftover::Somebody,
                GroupState::Alive | GroupState::Unknown => sleep(LOOK).await,
            }
        }
    }
}

/// Whether a process group in this state is to be killed now. `is_due`: the time that the group has to end is over. A
/// group that may have hidden processes is killed at once: before the command is collected, an empty group looks the
/// same, and otherwise `run` would wait after every command as if processes were left.
fn is_to_be_killed(state: GroupState, is_due: bool) -> bool {
    match state {
        GroupState::Dead | GroupState::Unknown => true,
        GroupState::Alive => is_due,
        GroupState::Gone => false,
    }
}

/// What is left of a process group in this state, this long after its KILL. `None`: keep waiting for the group to end.
fn leftover(state: GroupState, since_kill: Option<Duration>) -> Option<Leftover> {
    match state {
        // `look_for_hidden` checks for hidden processes of the group later, after the command is collected.
        GroupState::Gone | GroupState::Dead | GroupState::Unknown => Some(Leftover::Nobody),
        GroupState::Alive => (since_kill >= Some(KILLED)).then_some(Leftover::Somebody),
    }
}

// === impl Orphans ===

impl Orphans {
    /// Makes a collector of this process's orphans, except `children`, which other code collects.
    pub(super) fn beside(children: impl IntoIterator<Item = Pid>) -> Self {
        Self {
            is_first: process::id() == 1,
            children: children.into_iter().collect(),
        }
    }

    /// Collects dead orphans, as far as the system shows them. Works without `/proc`, unless a dead child that other
    /// code collects hides the orphans.
    #[cfg(target_os = "linux")]
    pub(super) fn collect(&self) {
        use nix::{
            sys::wait::{Id, WaitPidFlag, waitid},
            unistd,
        };

        let now = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let id_of = |pid: Pid| Id::Pid(unistd::Pid::from_raw(pid.as_raw_pid()));
        while self.is_first
            && let Ok(status) = waitid(Id::All, now | WaitPidFlag::WNOWAIT)
            && let Some(dead) = status.pid()
            && let Some(dead) = Pid::from_raw(dead.as_raw())
        {
            if self.children.contains(&dead) {
                // The dead child stays until other code collects it, and until then `waitid` reports no orphan behind
                // it.
                for orphan in dead_children().filter(|pid| !self.children.contains(pid)) {
                    // If an orphan cannot be collected now, the next call tries again.
                    let _: Result<_, _> = waitid(id_of(orphan), now);
                }
                return;
            }
            if waitid(id_of(dead), now).is_err() {
                return;
            }
        }
    }

    /// Outside of Linux there is nothing to collect: this process is never the first of a container.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn collect(&self) {
        debug_assert!(!self.is_first, "{:?}", self.children);
    }
}

/// Judges a group that can be signalled by its visible processes: its state, and a process of the group that is alive.
///
/// A `/proc` that is mounted with `hidepid` shows no processes of other users. So a process that has changed its user
/// may be alive although only dead processes of the group are visible.
fn judge(
    group: i32,
    visible: impl Iterator<Item = (i32, ProcessStat)>,
    shows_others: impl FnOnce() -> bool,
) -> (GroupState, Option<i32>) {
    let mut has_dead = false;
    for (pid, stat) in visible.filter(|(_, stat)| stat.group == group) {
        if !stat.dead {
            return (GroupState::Alive, Some(pid));
        }
        has_dead = true;
    }
    if has_dead && shows_others() {
        (GroupState::Dead, None)
    } else {
        (GroupState::Unknown, None)
    }
}

/// The dead children of this process that are not collected yet, as far as the system shows them.
fn dead_children() -> impl Iterator<Item = Pid> {
    let is_ours = |it: &ProcessStat| u32::try_from(it.parent) == Ok(process::id());
    processes()
        .filter(move |&pid| ProcessStat::read(pid).is_some_and(|it| it.dead && is_ours(&it)))
        .filter_map(Pid::from_raw)
}

/// The ids of all processes that the system shows.
fn processes() -> impl Iterator<Item = i32> {
    // If `/proc` belongs to another container, its process ids are not valid in this container.
    let own = fs::read_link("/proc/self").ok();
    let own = own.and_then(|link| link.to_str()?.parse().ok());
    let entries = (own == Some(process::id()))
        .then(|| fs::read_dir(PROCESSES).ok())
        .flatten();
    let numbered = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.into_iter().flatten().flatten().filter_map(numbered)
}

// === impl ProcessStat ===

impl ProcessStat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("{PROCESSES}/{pid}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&stat))
    }

    /// Parses the text of `/proc/PID/stat`, see proc(5).
    fn parse(stat: &str) -> Option<Self> {
        // The fields begin after the last parenthesis: the program's name, in parentheses, may contain any text.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let threads: u32 = fields.nth(14)?.parse().ok()?;
        Some(Self {
            parent,
            group,
            // A process is dead only if no thread is left: its first thread may end before the others.
            dead: matches!(state, "Z" | "X") && threads <= 1,
        })
    }
}

// === Start ===
//
// The start of a command: a process that suspends itself until it is guarded, and then becomes the command.

/// The program name (argument 0) that makes this program become a command.
const START: &str = "latchgate-run-start";
/// The argument for a command that is to die with its parent.
const DIES_WITH_PARENT: &str = "dies-with-parent";
/// The argument for a command that is to outlive its parent.
const OUTLIVES_PARENT: &str = "outlives-parent";

/// Report of the process of a command: the process has the pipe for its reports.
const REACHED: &[u8] = b".";
/// Report of the process of a command: the process executes the command next. If that succeeds, no report follows, and
/// the system closes the pipe.
const EXECUTES: &[u8] = b"x";
/// Report of the process of a command: the system refused to execute the command.
const FAILED: &[u8] = b"f";

/// A command line that starts a suspended process. When the process is continued, it executes `command`.
///
/// The process is the first of its process group. It suspends itself before the command begins, so that its parent has
/// time to start a guard for the group.
///
/// A command that must not outlive its lease dies with the thread that started it. So that thread must live as long as
/// `latchgate run`.
///
/// `told_at`: the process reports its start to this file descriptor, which it inherits.
pub(super) fn stopped(
    program: &OsStr,
    told_at: RawFd,
    command: &[OsString],
    on_lost: OnLost,
) -> Command {
    let mut start = Command::new(program);
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
    start
}

/// Whether this process was started by `run` to become its command.
pub(in crate::cli) fn is_start() -> bool {
    env::args_os().next().is_some_and(|name| name == START)
}

/// Suspends this process, and executes the command when the process is continued. Returns only after a failure.
pub(in crate::cli) fn start() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let mut number = || arguments.next()?.to_str()?.parse::<i32>().ok();
    let (parent, told_at) = (number(), number());
    let dies = arguments.next().is_some_and(|it| it == DIES_WITH_PARENT);
    let Some(program) = arguments.next() else {
        return ExitCode::FAILURE;
    };
    // If the parent died before this call, the kernel sends no KILL, so the parent is checked below.
    if dies {
        die_with_parent();
    }
    if getppid().map(Pid::as_raw_pid) != parent {
        return ExitCode::FAILURE;
    }
    let mut progress = told_at.and_then(take_pipe);
    let mut tell = |report| {
        if let Some(pipe) = &mut progress {
            // A failed write is ignored: `run` then takes the command for executed, or has ended.
            let _: io::Result<()> = pipe.write_all(report);
        }
    };
    tell(REACHED);
    kill_process(getpid(), Signal::STOP).expect("a process may send a signal to itself");
    // The system also continues this process if its parent has died. The command must then not start, because no
    // process renews the lease.
    if getppid().map(Pid::as_raw_pid) != parent {
        return ExitCode::FAILURE;
    }
    tell(EXECUTES);
    let error = Command::new(&program).args(arguments).exec();
    tell(FAILED);
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
    use std::thread;

    use super::*;

    fn started() -> Job {
        let mut sleep = Command::new("sleep");
        let (progress, _) = io::pipe().unwrap();
        let child = sleep.arg("60").process_group(0).spawn();
        Job::from_child(child.unwrap(), progress)
    }

    #[test]
    fn the_dead_are_not_alive_although_signals_reach_them() {
        let mut job = started();
        assert_eq!(job.group_state(), GroupState::Alive);
        job.signal(Signal::KILL);
        for _ in 0..2_000 {
            if job.group_state() != GroupState::Alive {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The command's process is dead and not collected, so its group can still be signalled.
        assert!(test_kill_process_group(job.group()).is_ok());
        assert_eq!(job.group_state(), GroupState::Dead);
        job.child.wait().unwrap();
        assert_eq!(job.group_state(), GroupState::Gone);
    }

    #[test]
    fn one_that_lives_is_found_beside_one_that_is_dead() {
        let mut job = started();
        let mut living = Command::new("sleep")
            .arg("60")
            .process_group(job.group().as_raw_pid())
            .spawn()
            .unwrap();
        job.child.kill().unwrap();
        let dead_pid = job.group().as_raw_pid();
        while !ProcessStat::read(dead_pid).unwrap().dead {
            thread::yield_now();
        }
        assert_eq!(job.group_state(), GroupState::Alive);
        job.signal(Signal::KILL);
        living.wait().unwrap();
        assert_eq!(job.group_state(), GroupState::Dead);
        job.child.wait().unwrap();
    }

    #[test]
    fn a_group_is_dead_only_if_processes_of_other_users_are_visible() {
        let process = |pid, group, dead| {
            let parent = 1;
            (
                pid,
                ProcessStat {
                    parent,
                    group,
                    dead,
                },
            )
        };
        let state = |visible: Vec<_>, shows_others| judge(70, visible.into_iter(), || shows_others);
        let (dead, living, other) = (
            || process(70, 70, true),
            || process(71, 70, false),
            || process(80, 80, false),
        );
        assert_eq!(state(vec![other(), dead()], true), (GroupState::Dead, None));
        assert_eq!(
            state(vec![other(), dead()], false),
            (GroupState::Unknown, None)
        );
        for shows_others in [true, false] {
            assert_eq!(
                state(vec![dead(), living()], shows_others),
                (GroupState::Alive, Some(71))
            );
            assert_eq!(
                state(vec![other()], shows_others),
                (GroupState::Unknown, None)
            );
        }
    }

    #[test]
    fn a_process_may_have_any_name_and_outlive_its_first_thread() {
        let stat = |state, threads| {
            format!(
                "71 (a) Z 1 2 (b) {state} 70 69 68 0 -1 4 1 2 3 4 5 6 7 8 20 0 {threads} 0 9 10\n"
            )
        };
        let (parent, group) = (70, 69);
        let shown = |dead| {
            Some(ProcessStat {
                parent,
                group,
                dead,
            })
        };
        assert_eq!(ProcessStat::parse(&stat("S", 1)), shown(false));
        assert_eq!(ProcessStat::parse(&stat("Z", 1)), shown(true));
        assert_eq!(ProcessStat::parse(&stat("Z", 2)), shown(false));
        assert_eq!(ProcessStat::parse("71 (cut"), None);
    }

    #[test]
    fn who_lives_has_its_time_and_who_is_not_seen_has_none() {
        use GroupState::{Alive, Dead, Gone, Unknown};
        for (state, early, due) in [
            (Alive, false, true),
            (Dead, true, true),
            (Unknown, true, true),
            (Gone, false, false),
        ] {
            assert_eq!(is_to_be_killed(state, false), early, "{state:?}");
            assert_eq!(is_to_be_killed(state, true), due, "{state:?}");
        }
    }

    #[test]
    fn who_lives_on_although_it_was_killed_is_not_taken_for_dead() {
        let (nobody, somebody) = (Some(Leftover::Nobody), Some(Leftover::Somebody));
        for since_kill in [None, Some(Duration::ZERO), Some(KILLED)] {
            for state in [GroupState::Dead, GroupState::Unknown, GroupState::Gone] {
                assert_eq!(leftover(state, since_kill), nobody);
            }
        }
        assert_eq!(leftover(GroupState::Alive, None), None);
        assert_eq!(leftover(GroupState::Alive, Some(Duration::ZERO)), None);
        assert_eq!(leftover(GroupState::Alive, Some(KILLED)), somebody);
    }
}
