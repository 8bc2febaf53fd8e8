//! A search for those in a process group who are alive, where the system does not list its processes.

use rustix::process::Pid;

/// A search through all numbers that processes may have, a part of them at each look: millions at once
/// would keep a lease from being looked after.
///
/// Who lives in a group can be asked of the kernel for each number, in a container that shows the
/// processes of another one, and for processes of other users that are hidden.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The number after those that were asked for.
    next: i32,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// One that is alive.
    Alive(i32),
    /// Not all numbers have been asked for.
    NotYet,
    /// None of all numbers is that of one who is alive.
    Nobody,
}

/// How many numbers are asked for at one look, in a few milliseconds.
const PART: i32 = 1 << 16;
/// The highest number of a process, where the system does not say how high they are.
const HIGHEST: i32 = 1 << 22;
/// Where it says so, if it is Linux.
const LIMIT: &str = "/proc/sys/kernel/pid_max";

// === impl Search ===

impl Search {
    /// Asks for the next part of all numbers. After the last it begins anew.
    pub(super) fn go_on(&mut self, group: Pid) -> Found {
        // Elsewhere the living cannot be told from the dead.
        if cfg!(not(target_os = "linux")) {
            return Found::NotYet;
        }
        let highest = highest();
        let first = self.next.max(1);
        let behind = first.saturating_add(PART).min(highest.saturating_add(1));
        let mut numbers = first..behind;
        if let Some(alive) = numbers.find(|&number| lives_in(group, number)) {
            *self = Self::default();
            return Found::Alive(alive);
        }
        if behind > highest {
            *self = Self::default();
            return Found::Nobody;
        }
        self.next = behind;
        Found::NotYet
    }
}

fn highest() -> i32 {
    let said = std::fs::read_to_string(LIMIT).ok();
    let said = said.and_then(|limit| limit.trim().parse().ok());
    said.filter(|limit| (1..HIGHEST).contains(limit))
        .unwrap_or(HIGHEST)
}

/// Whether the process of this number is in a group, and alive: the dead keep both until they are
/// collected.
#[cfg(target_os = "linux")]
pub(super) fn lives_in(group: Pid, number: i32) -> bool {
    use nix::unistd;
    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        process::{PidfdFlags, pidfd_open},
    };

    const AT_ONCE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // A group of another container has no number here.
    let of = unistd::getpgid(Some(unistd::Pid::from_raw(number)));
    let is_in_it = of.is_ok_and(|of| of.as_raw() == group.as_raw_pid());
    let Some(pid) = Pid::from_raw(number).filter(|_| is_in_it) else {
        return false;
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // It can be read from when its process has ended.
        Ok(process) => {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            poll(&mut ended, Some(&AT_ONCE)) == Ok(0)
        }
        Err(rustix::io::Errno::SRCH) => false,
        // It cannot be told, and one that is there is taken for alive.
        Err(_) => true,
    }
}

/// Elsewhere it cannot be told.
#[cfg(not(target_os = "linux"))]
pub(super) fn lives_in(_group: Pid, _number: i32) -> bool {
    false
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt,
        process::{Child, Command},
    };

    use super::*;

    fn sleeping(group: i32) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").process_group(group).spawn().unwrap()
    }

    fn number(child: &Child) -> i32 {
        Pid::from_child(child).as_raw_pid()
    }

    fn found(group: Pid) -> Found {
        let mut search = Search::default();
        loop {
            match search.go_on(group) {
                Found::NotYet => {}
                found => return found,
            }
        }
    }

    #[test]
    fn one_that_lives_is_found_and_the_dead_are_not() {
        let mut first = sleeping(0);
        let group = Pid::from_child(&first);
        let mut second = sleeping(group.as_raw_pid());
        first.kill().unwrap();
        while lives_in(group, number(&first)) {
            std::thread::yield_now();
        }
        assert_eq!(found(group), Found::Alive(number(&second)));
        second.kill().unwrap();
        while lives_in(group, number(&second)) {
            std::thread::yield_now();
        }
        // Both are there, and nobody has collected them.
        assert_eq!(found(group), Found::Nobody);
        first.wait().unwrap();
        second.wait().unwrap();
    }

    #[test]
    fn all_numbers_are_asked_for_in_parts() {
        let mut search = Search::default();
        // A group that nobody has: the highest number is never given.
        let nobodys = Pid::from_raw(highest()).unwrap();
        let mut looks = 1;
        while search.go_on(nobodys) == Found::NotYet {
            looks += 1;
        }
        assert_eq!(looks, (highest() + PART - 1) / PART);
    }
}
