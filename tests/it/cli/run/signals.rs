//! Signals, before and while the command runs.

use std::time::Duration;

use rustix::process::{Signal, kill_process_group};
use tokio::time::Instant;

use super::fixture::{inspect, is_alive, run_sh, start, until, waiters};
use crate::support::{gateway::Gateway, program::program, spawn};

#[test]
fn the_command_gets_the_signals() {
    let gateway = Gateway::start();
    let names = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"];
    let signals = [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
    ];
    let traps: Vec<_> = names
        .iter()
        .map(|name| format!("trap 'echo got {name}' {name}; "))
        .collect();
    let script = traps.concat() + "trap 'exit 3' USR2; echo up; while :; do sleep 0.02; done";
    let mut running = run_sh(&gateway.url(), &["deploy"], &script);
    running.printed("up");
    for (name, signal) in names.iter().zip(signals).take(5) {
        running.signal(signal);
        running.printed(&format!("got {name}"));
    }
    running.signal(Signal::USR2);
    assert_eq!(running.wait().code, Some(3));
}

#[test]
fn what_the_command_started_gets_the_signals_too() {
    let gateway = Gateway::start();
    let script = r#"sh -c 'echo "inner=$$"; exec sleep 60'; echo "then"; exit 4"#;
    let mut running = run_sh(&gateway.url(), &["deploy"], script);
    let inner = running.printed_pid("inner");
    running.signal(Signal::INT);
    running.wait();
    assert!(!is_alive(inner));
}

#[test]
fn an_interrupted_command_leaves_no_lock_behind() {
    let gateway = Gateway::start();
    let url = gateway.url();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut running = run_sh(&url, &["deploy"], "echo up; exec sleep 60");
        running.printed("up");
        running.signal(signal);
        assert_eq!(running.wait().code, Some(code));
        assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
    }
}

#[test]
fn the_lock_is_released_although_the_signal_comes_with_the_end_of_the_command() {
    let gateway = Gateway::start();
    let url = gateway.url();
    // As a service manager or a terminal does it: to every process, and perhaps with more than one.
    for signals in [
        &[Signal::INT][..],
        &[Signal::TERM],
        &[Signal::TERM, Signal::HUP],
    ] {
        let mut running = run_sh(&url, &["deploy"], r#"echo "pid=$$"; exec sleep 60"#);
        let pid = running.printed_pid("pid");
        // It learns of all at once.
        running.signal(Signal::STOP);
        for &signal in signals {
            kill_process_group(pid, signal).unwrap();
            running.signal(signal);
        }
        until("the command is dead", || !is_alive(pid));
        running.signal(Signal::CONT);
        let ran = running.wait();
        assert!(matches!(ran.code, Some(130 | 143 | 129)), "{ran:?}");
        assert_eq!(ran.err, "");
        assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
    }
}

#[test]
fn who_asks_again_to_end_does_not_wait_for_a_gateway_that_does_not_answer() {
    let gateway = Gateway::start();
    let mut running = run_sh(&gateway.url(), &["deploy"], "echo up; exec sleep 60");
    running.printed("up");
    gateway.signal(Signal::STOP);
    gateway.stands_still();
    let begin = Instant::now();
    running.signal(Signal::TERM);
    running.said("no answer to the release of the lock yet");
    until("its end", || {
        running.signal(Signal::INT);
        running.has_ended()
    });
    let ran = running.wait();
    assert_eq!(ran.code, Some(143), "{ran:?}");
    let left = "could not release the lock, the lease ends by itself in";
    assert!(ran.err.contains(left), "{ran:?}");
    // Nobody would wait for longer than ten seconds anyway.
    assert!(begin.elapsed() < Duration::from_secs(8));
    gateway.signal(Signal::CONT);
}

#[test]
fn a_signal_during_the_wait_ends_it_at_once_and_runs_nothing() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let holder = run_sh(&url, &["deploy"], "echo up; exec sleep 60");
    holder.printed("up");
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::USR2, 140),
    ] {
        for arguments in [
            &["run", "deploy", "--", "echo", "ran"][..],
            &["acquire", "deploy", "--wait", "1m"],
        ] {
            let mut command = program();
            command.args(arguments);
            let mut waiting = start(&url, command);
            until("it waits", || waiters(&url, "deploy") == 1);
            let begin = Instant::now();
            waiting.signal(signal);
            let ran = waiting.wait();
            assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{ran:?}");
            // Not for as long as it would wait.
            assert!(begin.elapsed() < Duration::from_secs(30));
            // Its place is in nobody's way, not even for the grace in which it could come back.
            assert_eq!(waiters(&url, "deploy"), 0);
        }
    }
}

#[test]
fn what_was_granted_in_the_moment_of_the_signal_is_given_back() {
    let gateway = Gateway::start();
    let url = gateway.url();
    for _ in 0..5 {
        let mut holder = run_sh(&url, &["deploy"], "echo up; exec sleep 60");
        holder.printed("up");
        let mut waiting = run_sh(&url, &["deploy"], "echo ran; exec sleep 60");
        until("it waits", || waiters(&url, "deploy") == 1);
        holder.signal(Signal::TERM);
        waiting.signal(Signal::TERM);
        holder.wait();
        assert_eq!(waiting.wait().code, Some(143));
        until("it is free", || {
            inspect(&url, "deploy") == "deploy is free\n"
        });
    }
}

#[test]
fn what_the_command_left_running_ends_before_the_lock_is_released() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let script =
        r#"sh -c 'trap "" TERM; echo "left=$$"; while :; do sleep 0.05; done' & sleep 0.3; exit 6"#;
    let arguments = ["deploy", "--kill-after", "300ms"];
    let mut running = run_sh(&url, &arguments, script);
    let left = running.printed_pid("left");
    until("the lock is free", || {
        inspect(&url, "deploy") == "deploy is free\n"
    });
    assert!(!is_alive(left));
    assert_eq!(running.wait().code, Some(6));
}

#[test]
fn a_signal_that_was_to_be_ignored_is_ignored() {
    let gateway = Gateway::start();
    // As under nohup.
    let mut nohup = spawn::command("sh");
    nohup.args([
        "-c",
        r#"trap "" HUP; exec "$LATCHGATE" run deploy -- sh -c 'echo up; sleep 1; exit 8'"#,
    ]);
    let mut running = start(&gateway.url(), nohup);
    running.printed("up");
    running.signal(Signal::HUP);
    assert_eq!(running.wait().code, Some(8));
}

#[test]
fn the_end_of_the_command_is_heard_even_if_its_signal_was_to_be_ignored() {
    let gateway = Gateway::start();
    let mut deaf = spawn::command("sh");
    deaf.args([
        "-c",
        r#"trap "" CHLD; exec "$LATCHGATE" run deploy -- sh -c 'exit 8'"#,
    ]);
    assert_eq!(start(&gateway.url(), deaf).wait().code, Some(8));
}
