//! The process group in which a command runs.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt, process::Child, time::Duration};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, waitid},
};
use tokio::time::{Instant, sleep};

use super::{
    args::OnLost,
    group::{Group, GroupState},
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
pub(super) const TOKEN: &str = "LATCHGATE_TOKEN";
/// The variable of a slot, which likewise does.
pub(super) const SLOT: &str = "LATCHGATE_SLOT";
/// The variable of the slots in all locks.
pub(super) const SLOTS: &str = "LATCHGATE_SLOTS";

// === impl Job ===

impl Job {
    /// Starts a command in a process group of its own, which is stopped before it has begun and begins
    /// with CONT. To be called on the main thread: see [`stopped`].
    pub(super) fn start(
        command: &[OsString],
        variables: &[(&'static str, String)],
        on_lost: OnLost,
    ) -> io::Result<Self> {
        let child = stopped(own_program()?.as_os_str(), command, on_lost)
            .env_remove(TOKEN)
            .env_remove(SLOT)
            .env_remove(SLOTS)
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

// === Stopping ===
//
// The end of a process group: whoever is left in it is killed when it is time, and looked after until
// it is dead.

/// A process group that is to end.
pub(super) trait Stoppable {
    /// Sends a signal to everybody in it.
    fn signal(&self, signal: Signal);

    /// How it stands now.
    fn group_state(&mut self) -> GroupState;
}

/// How far a process group is on its way to its end.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    killed: Option<Instant>,
}

/// What has come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftover {
    /// No live process is visible.
    Nobody,
    /// Somebody lives on although it was killed, or it cannot be seen that nobody does. A process that
    /// waits for a disk, or for a file system that is elsewhere, dies only when it has done what it was
    /// about to do; one that has changed its user is not ours to kill.
    Somebody,
}

/// How long the end of a group is waited for that was killed. The kernel needs a moment for a process
/// with a lot of memory; who is alive after this waits for something that may never come.
const KILLED: Duration = Duration::from_secs(5);
/// How often a group is looked at that is to end.
pub(super) const LOOK: Duration = Duration::from_millis(20);

// === impl Group ===

impl Stoppable for Group {
    fn signal(&self, signal: Signal) {
        Self::signal(self, signal);
    }

    fn group_state(&mut self) -> GroupState {
        Self::group_state(self)
    }
}

// === impl Stopping ===

impl Stopping {
    /// Looks at a group that was asked to end, and kills it from `kill_at` on. Says what has come of it
    /// once there is nothing more to wait for.
    pub(super) fn look(
        &mut self,
        group: &mut impl Stoppable,
        kill_at: Instant,
    ) -> Option<Leftover> {
        let now = Instant::now();
        let mut group_state = group.group_state();
        // Kills processes that the look has missed. Hidden processes are given no time to end: until the
        // command is collected an empty group looks like one with hidden processes, and every command would
        // be waited for as if it had left something running.
        if matches!(group_state, GroupState::Dead | GroupState::Unknown) && self.killed.is_none() {
            self.kill(group, now);
            group_state = group.group_state();
        }
        match (group_state, self.killed) {
            // Hidden processes were killed, and are looked for once the command is collected.
            (GroupState::Gone | GroupState::Dead | GroupState::Unknown, _) => {
                Some(Leftover::Nobody)
            }
            (GroupState::Alive, None) => {
                if now >= kill_at {
                    self.kill(group, now);
                }
                None
            }
            (GroupState::Alive, Some(at)) => (now >= at + KILLED).then_some(Leftover::Somebody),
        }
    }

    fn kill(&mut self, group: &impl Stoppable, now: Instant) {
        group.signal(Signal::KILL);
        self.killed = Some(now);
    }
}

// === impl Leftover ===

impl Leftover {
    /// The same, when the command has been collected: until then signals reach it, and with it a group in
    /// which nobody else is seen. Should the number of the group have gone to another by now, that one is
    /// taken for what is left of it, and nothing is done to it.
    pub(super) async fn or_hidden(self, job: &mut Job, orphans: &Orphans) -> Self {
        if self == Self::Somebody {
            return self;
        }
        let until = Instant::now() + KILLED;
        loop {
            // Not collected, the dead are in the group.
            orphans.collect();
            match job.group_state() {
                GroupState::Gone | GroupState::Dead => return Self::Nobody,
                _ if Instant::now() >= until => return Self::Somebody,
                GroupState::Alive | GroupState::Unknown => sleep(LOOK).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::advance;

    use super::*;

    /// A group that stands before and after the KILL as a test says.
    struct Fake {
        before: GroupState,
        after: GroupState,
        killed: Cell<bool>,
    }

    impl Fake {
        fn new(before: GroupState, after: GroupState) -> Self {
            let killed = Cell::new(false);
            Self {
                before,
                after,
                killed,
            }
        }
    }

    impl Stoppable for Fake {
        fn signal(&self, signal: Signal) {
            assert_eq!(signal, Signal::KILL);
            self.killed.set(true);
        }

        fn group_state(&mut self) -> GroupState {
            if self.killed.get() {
                self.after
            } else {
                self.before
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_lives_is_killed_when_it_is_time() {
        let mut group = Fake::new(GroupState::Alive, GroupState::Dead);
        let mut stopping = Stopping::default();
        let kill_at = Instant::now() + Duration::from_secs(3);
        advance(Duration::from_secs(2)).await;
        assert_eq!(stopping.look(&mut group, kill_at), None);
        assert!(!group.killed.get());
        advance(Duration::from_secs(1)).await;
        assert_eq!(stopping.look(&mut group, kill_at), None);
        assert!(group.killed.get());
        assert_eq!(stopping.look(&mut group, kill_at), Some(Leftover::Nobody));
    }

    #[tokio::test(start_paused = true)]
    async fn who_lives_on_although_it_was_killed_is_not_taken_for_dead() {
        let mut group = Fake::new(GroupState::Alive, GroupState::Alive);
        let mut stopping = Stopping::default();
        let now = Instant::now();
        assert_eq!(stopping.look(&mut group, now), None);
        assert!(group.killed.get());
        assert_eq!(stopping.look(&mut group, now), None);
        advance(KILLED).await;
        assert_eq!(stopping.look(&mut group, now), Some(Leftover::Somebody));
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_be_seen_is_killed_at_once() {
        let mut group = Fake::new(GroupState::Unknown, GroupState::Unknown);
        let later = Instant::now() + Duration::from_hours(1);
        let nobody = Some(Leftover::Nobody);
        assert_eq!(Stopping::default().look(&mut group, later), nobody);
        assert!(group.killed.get());
    }

    #[tokio::test(start_paused = true)]
    async fn whom_the_look_has_missed_is_killed_and_looked_for_again() {
        let later = Instant::now() + Duration::from_hours(1);
        let mut dead = Fake::new(GroupState::Dead, GroupState::Dead);
        let nobody = Some(Leftover::Nobody);
        assert_eq!(Stopping::default().look(&mut dead, later), nobody);
        assert!(dead.killed.get());
        let mut missed = Fake::new(GroupState::Dead, GroupState::Alive);
        assert_eq!(Stopping::default().look(&mut missed, later), None);
        let mut gone = Fake::new(GroupState::Gone, GroupState::Gone);
        assert_eq!(Stopping::default().look(&mut gone, later), nobody);
        assert!(!gone.killed.get());
    }
}
