//! `latchgate run` itself killed, or standing still.

use rustix::process::{Pid, Signal};

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
    assert!(running.has_ended());
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
