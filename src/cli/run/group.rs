//! A process group, and whether anybody in it is alive.

use std::{fs, process};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process_group, test_kill_process_group},
};

/// A process group.
#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    /// A process of it that was alive at the last look, and most likely still is.
    alive: Option<i32>,
}

/// How a group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupState {
    /// Somebody in it is alive.
    Alive,
    /// Somebody is in it, and it is not known whether anybody is alive: the system does not show its
    /// processes, or not those of other users.
    Unknown,
    /// All that was seen of it is dead and waits to be collected: its first process, at least, until we
    /// have done that. Somebody may have been started in the middle of the look.
    Dead,
    /// Nobody is in it.
    Gone,
}

/// What the system shows of a process.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: i32,
    group: i32,
    dead: bool,
}

/// Where the system shows its processes, if it is Linux.
const PROCESSES: &str = "/proc";
/// The first process of the system or container. It is always there, and often of another user.
const INIT: i32 = 1;

// === impl Group ===

impl Group {
    pub(super) fn new(id: Pid) -> Self {
        Self { id, alive: None }
    }

    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// Sends a signal to everybody in it.
    pub(super) fn signal(&self, signal: Signal) {
        // It fails only if no process is left, or if those that are left have changed their user.
        let _: Result<_, _> = kill_process_group(self.id, signal);
    }

    /// How it stands now. Signals reach the dead as well, until their parent has collected them; and
    /// the first process of a container, which inherits them, may never do so.
    pub(super) fn group_state(&mut self) -> GroupState {
        // A process that has changed its user cannot be signalled, but exists.
        if test_kill_process_group(self.id) == Err(Errno::SRCH) {
            return GroupState::Gone;
        }
        let visible = self.alive.into_iter().chain(processes());
        let visible = visible.filter_map(|pid| Some((pid, ProcessStat::of(pid)?)));
        let shows_others = || ProcessStat::of(INIT).is_some();
        let (group_state, alive) = judge(self.id.as_raw_pid(), visible, shows_others);
        self.alive = alive.or(self.alive);
        group_state
    }
}

/// How a group stands that signals still reach, given the processes that are visible; and who in it is alive.
///
/// A `/proc` that is mounted with `hidepid` shows nothing of the processes of other users. A process that has
/// changed its user may then be alive in a group of which only dead processes are visible.
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

/// The children of this process that are dead and wait to be collected, as far as the system shows them.
pub(super) fn dead_children() -> impl Iterator<Item = Pid> {
    let is_ours = |it: &ProcessStat| u32::try_from(it.parent) == Ok(process::id());
    processes()
        .filter(move |&pid| ProcessStat::of(pid).is_some_and(|it| it.dead && is_ours(&it)))
        .filter_map(Pid::from_raw)
}

/// The numbers of all processes that the system shows.
fn processes() -> impl Iterator<Item = i32> {
    // What belongs to another container has other numbers.
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
    fn of(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("{PROCESSES}/{pid}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&stat))
    }

    /// Reads what proc(5) calls `stat`.
    fn parse(stat: &str) -> Option<Self> {
        // The name before it may hold anything.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let threads: u32 = fields.nth(14)?.parse().ok()?;
        Some(Self {
            parent,
            group,
            // The first thread may have ended before the others.
            dead: matches!(state, "Z" | "X") && threads <= 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt,
        process::{Child, Command},
        thread,
        time::Duration,
    };

    use super::*;

    fn started() -> (Child, Group) {
        let child = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let group = Group::new(Pid::from_child(&child));
        (child, group)
    }

    #[test]
    fn the_dead_are_not_alive_although_signals_reach_them() {
        let (mut child, mut group) = started();
        assert_eq!(group.group_state(), GroupState::Alive);
        group.signal(Signal::KILL);
        for _ in 0..2_000 {
            if group.group_state() != GroupState::Alive {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // Nobody has collected it.
        assert!(test_kill_process_group(group.id()).is_ok());
        assert_eq!(group.group_state(), GroupState::Dead);
        child.wait().unwrap();
        assert_eq!(group.group_state(), GroupState::Gone);
    }

    #[test]
    fn one_that_lives_is_found_beside_one_that_is_dead() {
        let (mut dead, mut group) = started();
        let mut living = Command::new("sleep")
            .arg("60")
            .process_group(group.id().as_raw_pid())
            .spawn()
            .unwrap();
        dead.kill().unwrap();
        let dead_pid = group.id().as_raw_pid();
        while !ProcessStat::of(dead_pid).unwrap().dead {
            thread::yield_now();
        }
        assert_eq!(group.group_state(), GroupState::Alive);
        group.signal(Signal::KILL);
        living.wait().unwrap();
        assert_eq!(group.group_state(), GroupState::Dead);
        dead.wait().unwrap();
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
}
