//! The process group in which a command runs.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt, process::Child};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, waitid},
};
use tokio::time::Instant;

use super::{
    group::{Group, GroupState},
    guard::own_program,
    start_process::stopped,
    stopping::{Leftover, Stopping},
};

/// A command and everything that it started, as long as that stays in its process group.
pub(super) struct Job {
    child: Child,
    group: Group,
}

/// How the command itself stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Running,
    /// A signal stopped it: it may be continued.
    Stopped,
    Ended,
}

/// The variable of a token, which belongs to another lease if it is inherited.
const TOKEN: &str = "LATCHGATE_TOKEN";

// === impl Job ===

impl Job {
    /// Starts a command in a process group of its own, which is stopped before it has begun and begins
    /// with CONT.
    pub(super) fn start(
        command: &[OsString],
        variables: &[(&'static str, String)],
    ) -> io::Result<Self> {
        let child = stopped(own_program()?.as_os_str(), command)
            .env_remove(TOKEN)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.expect("the system gives positive numbers to processes");
        let job = Self {
            child,
            group: Group::new(group),
        };
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(group), stopped), Err(Errno::INTR)) {}
        // Heard of here, not by who watches over it.
        job.status();
        Ok(job)
    }

    pub(super) fn group(&self) -> Pid {
        self.group.id()
    }

    /// How the command itself stands now. One that has ended is left for [`Job::collect`]: until then its
    /// number goes to no other process group.
    pub(super) fn status(&self) -> Status {
        let now = |options| {
            let options = options | WaitIdOptions::NOHANG;
            matches!(waitid(WaitId::Pid(self.group.id()), options), Ok(Some(_)))
        };
        if now(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Status::Ended
        } else if now(WaitIdOptions::STOPPED) {
            Status::Stopped
        } else {
            Status::Running
        }
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        self.group.signal(signal);
    }

    /// Collects the command, which has ended, and says with which code. Its number, which is that of the
    /// group, may go to another from now on: the group is not to be signalled any more.
    pub(super) fn collect(&mut self) -> io::Result<u8> {
        let status = self.child.wait()?;
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        Ok(code
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX))
    }

    /// How what it has left running stands.
    pub(super) fn group_state(&mut self) -> GroupState {
        self.group.group_state()
    }

    /// Looks at what it has left running, which is to end.
    pub(super) fn look(&mut self, stopping: &mut Stopping, kill_at: Instant) -> Option<Leftover> {
        stopping.look(&mut self.group, kill_at)
    }
}
