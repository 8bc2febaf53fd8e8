//! Where `latchgate run` tells its guard what to stop, and when.

use std::{
    env,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::Pid,
};
use tokio::time::Instant;

use crate::clock::{Clock, SystemClock};

use super::guard_process::{GUARD, Order, READY_WORD};

/// A second process that stops the command where this one cannot: it was killed, or it does not run.
///
/// The order to kill at a certain moment is given again whenever the lease has been renewed.
pub(super) struct Guard {
    child: Child,
}

/// How long it is waited for that the guard is there, which takes milliseconds. The command does not run
/// yet.
const READY: Duration = Duration::from_secs(5);

// === impl Guard ===

impl Guard {
    /// Starts a guard of a process group, with nothing to do yet. From now on no signal ends it that is
    /// meant for the command.
    pub(super) fn start(group: Pid) -> io::Result<Self> {
        let mut child = Command::new(own_program()?)
            .arg0(GUARD)
            .stdin(Stdio::piped())
            // Not those of the command: whoever reads what that writes does not wait for the guard.
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C is not meant for it.
            .process_group(0)
            .spawn()?;
        let ready = child.stdout.take().map_or(Ok(()), is_ready);
        if let Err(error) = ready {
            // It may stand still.
            drop(child.kill().and_then(|()| child.wait()));
            return Err(error);
        }
        let mut guard = Self { child };
        guard.order(&Order::Watch(group));
        Ok(guard)
    }

    /// The command must not run any more at that moment.
    pub(super) fn kill_at(&mut self, at: Instant) {
        let left = at.saturating_duration_since(Instant::now());
        self.order(&Order::KillAt(SystemClock.since_boot() + left));
    }

    /// Its number.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it has ended before its time. It is collected then.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The command has ended: there is nothing to stop any more.
    pub(super) fn dismiss(mut self) {
        self.order(&Order::Dismiss);
        // It ends with the pipe at the latest.
        drop(self.child.stdin.take());
        let _: io::Result<_> = self.child.wait();
    }

    fn order(&mut self, order: &Order) {
        if let Some(pipe) = &mut self.child.stdin {
            // A guard that has gone guards nothing; the command goes on without.
            drop(writeln!(pipe, "{order}"));
        }
    }
}

/// Waits until a guard has said that it is there.
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

/// This program, even if its file was replaced since it was started.
pub(super) fn own_program() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() {
        Ok(link.to_owned())
    } else {
        env::current_exe()
    }
}
