//! Signals before and while the command runs; and a `latchgate run` that is killed or frozen.

use rustix::process::kill_process_group;

use crate::cli::prelude::*;

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
    let mut running = begun(&gateway.url(), &["deploy"], &script);
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
    let (_gateway, url) = Gateway::start_and_url();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut running = held(&url, &["deploy"]);
        running.signal(signal);
        assert_eq!(running.wait().code, Some(code));
        assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
    }
}

#[test]
fn the_lock_is_released_although_the_signal_comes_with_the_end_of_the_command() {
    let (_gateway, url) = Gateway::start_and_url();
    // A service manager or a terminal signals every process of the group, and may send several signals.
    for signals in [
        &[Signal::INT][..],
        &[Signal::TERM],
        &[Signal::TERM, Signal::HUP],
    ] {
        let mut running = run_sh(&url, &["deploy"], r#"echo "pid=$$"; exec sleep 60"#);
        let pid = running.printed_pid("pid");
        // While `run` is stopped the signals collect, so it gets all of them at once.
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
    let mut running = held(&gateway.url(), &["deploy"]);
    gateway.freeze();
    let begin = Instant::now();
    running.signal(Signal::TERM);
    running.said("no answer to the release of the lock yet");
    until("its end", || {
        running.signal(Signal::INT);
        running.has_ended()
    });
    let ran = running.wait().ends(143);
    let left = "could not release the lock, the lease ends by itself in";
    ran.says(left);
    // Without the signal, the wait would end after ten seconds anyway.
    assert!(begin.elapsed() < Duration::from_secs(8));
    gateway.signal(Signal::CONT);
}

#[test]
fn a_signal_during_the_wait_ends_it_at_once_and_runs_nothing() {
    let (_gateway, url) = Gateway::start_and_url();
    let _holder = held(&url, &["deploy"]);
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
            ran.gives(code, "");
            // The signal must end the wait long before its time is over.
            assert!(begin.elapsed() < Duration::from_secs(30));
            // The waiter leaves the queue at once, without a grace in which its position is kept.
            assert_eq!(waiters(&url, "deploy"), 0);
        }
    }
}

#[test]
fn what_was_granted_in_the_moment_of_the_signal_is_given_back() {
    let (_gateway, url) = Gateway::start_and_url();
    for _ in 0..5 {
        let mut holder = held(&url, &["deploy"]);
        let mut waiting = run_sh(&url, &["deploy"], "echo ran; exec sleep 60");
        until("it waits", || waiters(&url, "deploy") == 1);
        holder.signal(Signal::TERM);
        waiting.signal(Signal::TERM);
        holder.wait();
        assert_eq!(waiting.wait().code, Some(143));
        until_free(&url);
    }
}

#[test]
fn what_the_command_left_running_ends_before_the_lock_is_released() {
    let (_gateway, url) = Gateway::start_and_url();
    let script =
        r#"sh -c 'trap "" TERM; echo "left=$$"; while :; do sleep 0.05; done' & sleep 0.3; exit 6"#;
    let mut running = run_sh(&url, &["deploy"], script);
    let left = running.printed_pid("left");
    until_free(&url);
    assert!(!is_alive(left));
    assert_eq!(running.wait().code, Some(6));
}

#[test]
fn a_signal_that_was_to_be_ignored_is_ignored() {
    let gateway = Gateway::start();
    // The command is started as under `nohup`.
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

const FAMILY: &str =
    r#"trap "" TERM; sh -c 'echo "inner=$$"; exec sleep 60' & echo "outer=$$"; wait"#;

#[test]
fn whoever_kills_it_kills_the_command_too() {
    let gateway = Gateway::start();
    let mut running = run_sh(&gateway.url(), &["deploy"], FAMILY);
    let pids = [running.printed_pid("outer"), running.printed_pid("inner")];
    running.signal(Signal::KILL);
    until_dead(pids);
    until("it has ended", || running.has_ended());
}

/// The guard of a `latchgate run`: its child with this name.
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
    // The guard is killed first, so that it cannot act on the end of `run`.
    kill_process(guard, Signal::KILL).unwrap();
    running.said("the guard is gone: if this process is killed, the command is killed with it");
    assert!(is_alive(outer));
    running.signal(Signal::KILL);
    until("it has ended", || running.has_ended());
    until("it is dead", || !is_alive(outer));
    // Without the guard, the processes of the command stay, and the test must kill them.
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
    let mut running = begun(&gateway.url(), &["deploy", "--on-lost", "continue"], script);
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
    until_dead(pids);
}

#[test]
fn from_the_first_moment_of_the_command_no_signal_ends_the_guard() {
    let gateway = Gateway::start();
    // The only other child of `run` is the guard.
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
    let (_gateway, url) = Gateway::start_and_url();
    // With this TTL the guard has 0.3 s between its signal and the end of the lease.
    let mut running = run_sh(&url, &["deploy", "--ttl", "6s"], FAMILY);
    let pids = [running.printed_pid("outer"), running.printed_pid("inner")];
    // The next holder checks whether the processes of the first command still run.
    let [outer, inner] = pids.map(Pid::as_raw_pid);
    let look = format!(
        "for pid in {outer} {inner}; do grep -hs '^State:' /proc/$pid/status | grep -v 'Z (z'; done; \
         echo looked"
    );
    let mut next = run_sh(&url, &["deploy"], &look);
    until("it waits", || waiters(&url, "deploy") == 1);
    running.signal(Signal::STOP);
    assert_eq!(next.wait().out, "looked\n");
    until_dead(pids);
    running.signal(Signal::CONT);
    let lost = running.wait().ends(102);
    lost.says("was suspended for longer than");
    // The guard ended because it did its work, so no warning is printed.
    lost.says_not("the guard is gone");
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
