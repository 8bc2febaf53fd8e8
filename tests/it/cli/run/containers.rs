//! `latchgate run` in a container, with and without a first process that reaps orphans.

use super::fixture::Running;
use crate::cli::prelude::*;

/// Longer than any wait of these tests. A `run` that wrongly waits for a zombie to end waits for this time.
const KILL_AFTER: [&str; 4] = ["--ttl", "2m", "--kill-after", "1m"];

/// Runs a program as the first process of a PID namespace, as in a container: the kernel makes it the parent of all
/// orphans.
fn as_first_process(url: &str, program_and_arguments: &[&str]) -> Running {
    in_a_container(url, &["--mount-proc"], program_and_arguments)
}

/// Runs a program in a PID namespace. The program sees the processes of the namespace only with the option
/// `--mount-proc`.
fn in_a_container(url: &str, options: &[&str], program_and_arguments: &[&str]) -> Running {
    let mut command = program();
    let path = command.get_envs().find(|(name, _)| *name == "PATH");
    let path = path.and_then(|(_, value)| value).unwrap().to_owned();
    command = spawn::command("unshare");
    command.env_clear().env("PATH", path);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--pid", "--fork", "--kill-child"])
        .args(options)
        .args(program_and_arguments);
    start(url, command)
}

fn ends(mut running: Running) -> (Option<i32>, String, String) {
    let ran = running.wait();
    assert!(
        !ran.err.contains("unshare: "),
        "this test makes a namespace of processes, which needs root or user namespaces \
         (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns): {}",
        ran.err
    );
    (ran.code, ran.out, ran.err)
}

#[test]
fn as_the_first_process_it_collects_those_whose_parents_have_ended() {
    let (_gateway, url) = Gateway::start_and_url();
    let script = r#"
        echo "first=$(cat /proc/1/comm)"
        pid=$(sleep 0.1 >/dev/null & echo $!)
        while [ -e /proc/$pid ]; do sleep 0.05; done
        echo collected
        (sleep 60 &)
        exit 3"#;
    let program = [env!("CARGO_BIN_EXE_latchgate"), "run", "deploy"];
    let command = ["--", "sh", "-c", script];
    let running = as_first_process(&url, &[&program[..], &KILL_AFTER, &command].concat());
    let (code, out, err) = ends(running);
    assert_eq!(out, "first=latchgate\ncollected\n", "{err}");
    assert_eq!((code, err.as_str()), (Some(3), ""));
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

#[test]
fn as_the_first_process_it_collects_them_until_the_last_of_the_command_has_ended() {
    let gateway = Gateway::start();
    // The command has ended and is a zombie until it is reaped.
    let script = r#"
        trap "" TERM
        (
            while kill -0 $$ && ! grep -q '^State:.Z' /proc/$$/status; do sleep 0.05; done
            pid=$(sleep 0.1 >/dev/null & echo $!)
            while [ -e /proc/$pid ]; do sleep 0.05; done
            echo collected
        ) &
        exit 3"#;
    let program = [env!("CARGO_BIN_EXE_latchgate"), "run", "deploy"];
    let command = ["--", "sh", "-c", script];
    let arguments = [&program[..], &KILL_AFTER, &command].concat();
    let (code, out, err) = ends(as_first_process(&gateway.url(), &arguments));
    assert_eq!((code, out.as_str()), (Some(3), "collected\n"), "{err}");
}

#[test]
fn where_nobody_collects_the_dead_they_are_not_waited_for() {
    let (_gateway, url) = Gateway::start_and_url();
    // This first process waits for its own child only and reaps no orphans.
    let first = ["perl", "-e", "exit(system(@ARGV) >> 8)"];
    let program = [env!("CARGO_BIN_EXE_latchgate"), "run", "deploy"];
    let command = [
        "--",
        "sh",
        "-c",
        r#"(sleep 60 &); echo "first=$(cat /proc/1/comm)"; exit 3"#,
    ];
    let arguments = [&first[..], &program, &KILL_AFTER, &command].concat();
    let (code, out, err) = ends(as_first_process(&url, &arguments));
    assert_eq!((code, out.as_str()), (Some(3), "first=perl\n"), "{err}");
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

/// Runs a script in a namespace whose `/proc` shows the processes of another container.
fn unseen(url: &str, script: &str) -> (Option<i32>, String, String) {
    // Far longer than any wait of these tests.
    let patience = ["--ttl", "20m", "--kill-after", "10m"];
    let program = [env!("CARGO_BIN_EXE_latchgate"), "run", "deploy"];
    let command = ["--", "sh", "-c", script];
    let arguments = [&program[..], &patience, &command].concat();
    ends(in_a_container(url, &[], &arguments))
}

#[test]
fn where_processes_are_not_shown_a_group_that_is_empty_is_not_waited_for() {
    let (_gateway, url) = Gateway::start_and_url();
    let (code, _, err) = unseen(&url, "exit 3");
    assert_eq!((code, err.as_str()), (Some(3), ""));
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

#[test]
fn where_processes_are_not_shown_whoever_is_left_is_killed_before_the_lock_is_released() {
    let (_gateway, url) = Gateway::start_and_url();
    // The command waits until the process that it leaves behind ignores TERM.
    let script = r#"
        ready=$(
            {
                trap "" TERM
                echo ready
                exec >&2
                while :; do sleep 0.05; done
            } &
        )
        exit 3"#;
    let (code, out, err) = unseen(&url, script);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(3), "", ""));
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}
