//! The guard of `latchgate run`: a second process that kills the command at a deadline. `run` sends each deadline
//! through a pipe.

use std::{
    env,
    fmt::Display,
    io::{self, BufRead, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use nix::sys::signal::{
    SigSet,
    Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, kill_process_group},
};
use tokio::time::Instant;

use crate::clock::{Clock, SystemClock};

/// A second process that kills the command if `latchgate run` cannot, because `run` was killed or is suspended.
///
/// `run` sends the guard a new deadline after each renewal of the lease.
pub(super) struct Guard {
    child: Child,
}

/// The time limit for the start of the guard, which takes milliseconds. The command starts only after its guard.
const READY: Duration = Duration::from_secs(5);

// === impl Guard ===

impl Guard {
    /// Starts a guard, which does not know the process group of the command yet. When this function returns, the guard
    /// already ignores the signals that are meant for the command.
    pub(super) fn start() -> io::Result<Self> {
        let mut child = Command::new(own_program()?)
            .arg0(GUARD)
            .stdin(Stdio::piped())
            // The guard gets a pipe instead of the output of the command: a program that reads this output to its end
            // must not wait for the guard.
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // The guard is in a process group of its own, so that Ctrl-C on the terminal does not reach the guard.
            .process_group(0)
            .spawn()?;
        let ready = child.stdout.take().map_or(Ok(()), is_ready);
        if let Err(error) = ready {
            // The guard has not started in time, and may be suspended, so it is killed.
            drop(child.kill().and_then(|()| child.wait()));
            return Err(error);
        }
        Ok(Self { child })
    }

    /// Tells the guard which process group to kill. The deadlines follow.
    pub(super) fn watch(&mut self, group: Pid) {
        self.tell(group.as_raw_pid());
    }

    /// Sends the guard a new deadline, at which it kills the command.
    pub(super) fn kill_at(&mut self, at: Instant) {
        let left = at.saturating_duration_since(Instant::now());
        self.tell((SystemClock.since_boot() + left).as_millis());
    }

    fn tell(&mut self, number: impl Display) {
        if let Some(pipe) = &mut self.child.stdin {
            // A failed write is ignored: it means that the guard has ended, and the command continues without a guard.
            drop(writeln!(pipe, "{number}"));
        }
    }

    /// Whether the guard has ended unexpectedly. If so, its exit status is collected.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the guard, because the command has ended. The guard is killed before its pipe is closed: a guard whose pipe
    /// is closed would kill the process group.
    pub(super) fn dismiss(mut self) {
        let _: io::Result<_> = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Waits until the guard has written its ready signal to the pipe.
fn is_ready(mut says: ChildStdout) -> io::Result<()> {
    let until = Instant::now() + READY;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&says, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return says.read_exact(&mut [0; READY_WORD.len()]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The path of this program, which stays valid if the program's file was replaced since its start.
pub(super) fn own_program() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() {
        Ok(link.to_owned())
    } else {
        env::current_exe()
    }
}

// === Guard process ===
//
// The guard process, which kills a process group at its deadline, or when `latchgate run` has ended without
// dismissing it.

/// The program name (argument 0) that makes this program a guard.
pub(super) const GUARD: &str = "latchgate-run-guard";
/// The ready signal of the guard: from now on signals cannot end it.
pub(super) const READY_WORD: &[u8; 1] = b".";
/// How often the guard compares the clock with its deadline. A single long timer would be late, because timers stop
/// while the machine sleeps and this clock does not.
const LOOK: Duration = Duration::from_secs(1);

/// Whether this process was started as a guard.
pub(in crate::cli) fn is_guard() -> bool {
    env::args_os().next().is_some_and(|name| name == GUARD)
}

/// Runs the guard process until it is killed, or has killed the process group. The first line on standard input is the
/// process group; each later line is a new deadline, in milliseconds since boot.
pub(in crate::cli) fn guard() -> ExitCode {
    ignore_signals();
    // A failed write of the ready signal is ignored: `run` has ended, so the pipe of the deadlines is closed too.
    let mut out = io::stdout();
    drop(out.write_all(READY_WORD).and_then(|()| out.flush()));
    let mut group = String::new();
    // A failure leaves the text empty.
    let _: io::Result<_> = io::stdin().read_line(&mut group);
    let Some(group) = group.trim_end().parse().ok().and_then(Pid::from_raw) else {
        // `run` has ended before it started the command, or could not start it.
        return ExitCode::FAILURE;
    };
    let (sender, deadlines) = sync_channel(1);
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            // A line that is not a number counts as the end of the deadlines.
            let Some(ms) = line.ok().and_then(|line| line.parse().ok()) else {
                return;
            };
            if sender.send(Duration::from_millis(ms)).is_err() {
                return;
            }
        }
    });
    wait_until_due(&deadlines, &SystemClock);
    // The kill fails only if no process of the group is left.
    let _: Result<_, _> = kill_process_group(group, Signal::KILL);
    ExitCode::SUCCESS
}

/// Blocks the signals that end a process, in this thread and in threads that it starts later. A service manager that
/// ends a whole session means the command, not its guard.
fn ignore_signals() {
    let mut signals = SigSet::empty();
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2] {
        signals.add(signal);
    }
    // A failure to block the signals is ignored: a guard that signals can end is better than no guard.
    let _: Result<_, _> = signals.thread_block();
}

/// Waits until the guard's latest deadline has passed, or until the pipe is closed because `latchgate run` was killed.
fn wait_until_due(deadlines: &Receiver<Duration>, clock: &dyn Clock) {
    let mut kill_at = Duration::MAX;
    loop {
        let left = kill_at.saturating_sub(clock.since_boot());
        if left.is_zero() {
            return;
        }
        match deadlines.recv_timeout(left.min(LOOK)) {
            Ok(at) => kill_at = at,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use crate::clock::ManualClock;

    use super::*;

    #[test]
    fn is_due_when_no_more_deadlines_can_come_and_at_the_last_one_although_more_may() {
        let clock = ManualClock::at(SystemTime::UNIX_EPOCH);
        let (sender, deadlines) = sync_channel(2);
        let later = clock.since_boot() + Duration::from_hours(1);
        for deadline in [later, clock.since_boot()] {
            sender.send(deadline).unwrap();
        }
        wait_until_due(&deadlines, &clock);
        sender.send(later).unwrap();
        drop(sender);
        wait_until_due(&deadlines, &clock);
    }
}
