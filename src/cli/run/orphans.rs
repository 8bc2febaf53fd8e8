//! Collects the dead that nobody else does, where this is the first process of a container.

use std::process;

use rustix::process::Pid;

#[cfg(target_os = "linux")]
use super::group::dead_children;

/// The processes whose parents have ended, and which the system leaves to the first process of a
/// container. Not collected, the dead would take room for as long as it runs.
///
/// Elsewhere they are left to whoever that is. To be made their parent by the system (a "subreaper")
/// would bring no more than those that have left the process group, which are on their own.
#[derive(Debug)]
pub(super) struct Orphans {
    is_first: bool,
    /// Children of this process, whose ends others wait for.
    children: Vec<Pid>,
}

// === impl Orphans ===

impl Orphans {
    /// Those of this process, beside its own children.
    pub(super) fn beside(children: impl IntoIterator<Item = Pid>) -> Self {
        Self {
            is_first: process::id() == 1,
            children: children.into_iter().collect(),
        }
    }

    /// Collects those that are dead.
    #[cfg(target_os = "linux")]
    pub(super) fn collect(&self) {
        use nix::{
            sys::wait::{Id, WaitPidFlag, waitid},
            unistd,
        };

        let now = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let of = |pid: Pid| Id::Pid(unistd::Pid::from_raw(pid.as_raw_pid()));
        while self.is_first
            && let Ok(status) = waitid(Id::All, now | WaitPidFlag::WNOWAIT)
            && let Some(dead) = status.pid()
            && let Some(dead) = Pid::from_raw(dead.as_raw())
        {
            if self.children.contains(&dead) {
                // It stays for a while, and in the way of those behind it.
                for orphan in dead_children().filter(|pid| !self.children.contains(pid)) {
                    // If it cannot be collected, the next look tries again.
                    let _: Result<_, _> = waitid(of(orphan), now);
                }
                return;
            }
            if waitid(of(dead), now).is_err() {
                return;
            }
        }
    }

    /// Elsewhere there are no containers.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn collect(&self) {
        debug_assert!(!self.is_first, "{:?}", self.children);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_the_first_process_collects_nobody() {
        let mut child = process::Command::new("true").spawn().unwrap();
        let orphans = Orphans::beside([]);
        for _ in 0..100 {
            orphans.collect();
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
    }
}
