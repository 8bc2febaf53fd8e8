//! `latchgate run` itself killed, or standing still.

use rustix::process::Signal;

use super::fixture::{inspect, is_alive, run_sh, until};
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
    let mut running = run_sh(&url, &["deploy", "--ttl", "2s"], FAMILY);
    let pids = [running.printed_pid("outer"), running.printed_pid("inner")];
    running.signal(Signal::STOP);
    for pid in pids {
        until("it is dead", || !is_alive(pid));
    }
    assert!(inspect(&url, "deploy").contains("deploy is held"));
    running.signal(Signal::CONT);
    let lost = running.wait();
    assert_eq!(lost.code, Some(102), "{lost:?}");
    assert!(lost.err.contains("did not run"), "{lost:?}");
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
