//! The process group in which a command runs.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt, process::Child, time::Duration};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, waitid},
};
use tokio::time::{Instant, sleep};

use super::{
    super::signals::Signals,
    group::{Group, Standing},
    guard::own_program,
    orphans::Orphans,
    start_process::stopped,
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
/// How often a group is looked at that is to end.
const LOOK: Duration = Duration::from_millis(20);
/// How long the end of a group is waited for that was killed: the kernel needs no longer, but where
/// it does not show who is dead, those whom nobody collects seem to live for ever.
const KILLED: Duration = Duration::from_secs(1);

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

    /// How the command itself stands now. One that has ended is left for [`Job::end`] to collect, so
    /// that its number goes to no other process group.
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

    /// Collects the command, stops what it has left running, with KILL from `kill_at` on, and says
    /// with which code the command has ended. Signals are passed on to what is left.
    pub(super) async fn end(
        mut self,
        kill_at: Instant,
        orphans: &Orphans,
        signals: &mut Signals,
    ) -> io::Result<u8> {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        let status = self.child.wait()?;
        let mut killed = None;
        loop {
            orphans.collect();
            let standing = self.group.standing();
            let now = Instant::now();
            match (standing, killed) {
                (Standing::Gone, _) | (Standing::Dead, Some(_)) => break,
                // Whom the look has missed does not live on after this.
                (Standing::Dead, None) => {
                    self.signal(Signal::KILL);
                    killed = Some(now);
                    continue;
                }
                (Standing::Alive, None) if now >= kill_at => {
                    self.signal(Signal::KILL);
                    killed = Some(now);
                }
                (Standing::Alive, Some(at)) if now >= at + KILLED => break,
                (Standing::Alive, _) => {}
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                signal = signals.ending() => self.signal(signal),
            }
        }
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        Ok(code
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX))
    }
}
