//! `latchgate run` itself killed, or standing still.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{is_alive, run_sh, until, waiters};
use crate::support::gateway::Gateway;

const FAMILY: &str =
    r#"trap "" TERM; sh -c 'echo "inner=$$"; exec sleep 60' & echo "outer=$$"; wait"#;

#[test]
fn whoever_kills_it_kills_the_command_too() {
    let gateway = Gateway::start();
    let mut running = run_sh(&gateway.url(), &["deploy"], FAMILY);
    let pids = [running.printed_pid("outer"), running.printed_pid("inner")];
    running.signal(Signal::KILL);
    for pid in pids {
        until("it is dead", || !is_alive(pid));
    }
    until("it has ended", || running.has_ended());
}

/// The guard of a `latchgate run`: its child of that name.
fn guard_of(run: Pid) -> Option<Pid> {
    let run = run.as_raw_pid();
    let children = fs::read_to_string(format!("/proc/{run}/task/{run}/children")).ok()?;
    let mut children = children.split_ascii_whitespace();
    let guard = children.find(|pid| {
        let name = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        name.starts_with(b"latchgate-run-guard")
    })?;
    Pid::from_raw(guard.parse().ok()?)
}

#[cfg(target_os = "linux")]
#[test]
fn whoever_kills_it_and_its_guard_kills_the_command_too() {
    let gateway = Gateway::start();
    let mut running = run_sh(&gateway.url(), &["deploy"], FAMILY);
    let [outer, inner] = [running.printed_pid("outer"), running.printed_pid("inner")];
    let guard = guard_of(running.pid()).expect("there is a guard");
    // The guard first: it has not the time to do anything when the other one ends.
    kill_process(guard, Signal::KILL).unwrap();
    running.said("the guard is gone: if this process is killed, the command is killed with it");
    assert!(is_alive(outer));
    running.signal(Signal::KILL);
    until("it has ended", || running.has_ended());
    until("it is dead", || !is_alive(outer));
    // What the command has started is beyond reach.
    kill_process(inner, Signal::KILL).unwrap();
    until("it is dead", || !is_alive(inner));
}

#[test]
fn a_command_that_is_to_go_on_without_the_lock_goes_on_without_it() {
    let gateway = Gateway::start();
    let script = r#"
        echo up
        while [ "$(cut -d ' ' -f 4 "/proc/$$/stat")" = "$PPID" ]; do sleep 0.02; done
        echo went on"#;
    let mut running = run_sh(&gateway.url(), &["deploy", "--on-lost", "continue"], script);
    running.printed("up");
    running.signal(Signal::KILL);
    until("it has ended", || running.has_ended());
    running.printed("went on");
}

#[test]
fn whoever_ends_the_whole_session_does_not_end_the_guard() {
    let gateway = Gateway::start();
    let running = run_sh(&gateway.url(), &["deploy"], FAMILY);
    let pids = [running.printed_pid("outer"), running.printed_pid("inner")];
    let guard = guard_of(running.pid()).expect("there is a guard");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        kill_process(guard, signal).unwrap();
    }
    running.signal(Signal::KILL);
    for pid in pids {
        until("it is dead", || !is_alive(pid));
    }
}

#[test]
fn from_the_first_moment_of_the_command_no_signal_ends_the_guard() {
    let gateway = Gateway::start();
    // Whoever else it finds among the children of `run` is the guard.
    let script = r#"
        echo "pid=$$"
        for child in $(cat /proc/$PPID/task/$PPID/children); do
            [ $child = $$ ] || kill -TERM $child
        done
        kill -KILL $PPID
        exec sleep 60"#;
    for lock in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let running = run_sh(&gateway.url(), &[lock], script);
        let command = running.printed_pid("pid");
        until("it is dead", || !is_alive(command));
    }
}

#[test]
fn while_it_stands_still_the_command_does_not_outlive_the_lease() {
    let gateway = Gateway::start();
    let url = gateway.url();
    // So long that the guard has 0.3 s from its time to the end of the lease.
    let mut running = run_sh(&url, &["deploy", "--ttl", "6s"], FAMILY);
    let pids = [running.printed_pid("outer"), running.printed_pid("inner")];
    // Whoever has the lock next sees who is alive then.
    let [outer, inner] = pids.map(Pid::as_raw_pid);
    let look = format!(
        "for pid in {outer} {inner}; do grep -hs '^State:' /proc/$pid/status | grep -v 'Z (z'; done; \
         echo looked"
    );
    let mut next = run_sh(&url, &["deploy"], &look);
    until("it waits", || waiters(&url, "deploy") == 1);
    running.signal(Signal::STOP);
    assert_eq!(next.wait().out, "looked\n");
    for pid in pids {
        until("it is dead", || !is_alive(pid));
    }
    running.signal(Signal::CONT);
    let lost = running.wait();
    assert_eq!(lost.code, Some(102), "{lost:?}");
    assert!(lost.err.contains("did not run"), "{lost:?}");
    // It has done what it is for.
    assert!(!lost.err.contains("the guard is gone"), "{lost:?}");
}

#[test]
fn a_command_is_guarded_from_its_first_moment() {
    let gateway = Gateway::start();
    for lock in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let script = r#"echo "pid=$$"; kill -KILL $PPID; exec sleep 60"#;
        let running = run_sh(&gateway.url(), &[lock], script);
        let command = running.printed_pid("pid");
        until("it is dead", || !is_alive(command));
    }
}

/// The state of a process, as long as it is not collected.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn the_number_of_the_group_goes_to_nobody_while_anybody_is_left_in_it() {
    let gateway = Gateway::start();
    let script = r#"trap "" TERM; sleep 60 & echo "left=$!"; echo "leader=$$"; exit 3"#;
    let mut running = run_sh(&gateway.url(), &["deploy", "--ttl", "6s"], script);
    let [left, leader] = [running.printed_pid("left"), running.printed_pid("leader")];
    until("the command has ended", || !is_alive(leader));
    loop {
        let state = state(leader);
        if !is_alive(left) {
            break;
        }
        assert_eq!(state, Some('Z'), "it is not collected");
    }
    let ran = running.wait();
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(state(leader), None);
}
