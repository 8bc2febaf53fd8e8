//! `latchgate run` in a container whose first process it is, and whose `/proc` shows the processes of another container.

use super::fixture::Running;
use crate::cli::prelude::*;

/// Starts a script under `latchgate run` in a PID namespace.
fn in_a_container(url: &str, script: &str) -> Running {
    let mut command = program();
    let path = command.get_envs().find(|(name, _)| *name == "PATH");
    let path = path.and_then(|(_, value)| value).unwrap().to_owned();
    command = spawn::command("unshare");
    command.env_clear().env("PATH", path);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let program = [env!("CARGO_BIN_EXE_latchgate"), "run", "deploy"];
    command
        .args(["--pid", "--fork", "--kill-child"])
        .args(program)
        .args(["--", "sh", "-c", script]);
    start(url, command)
}

#[test]
fn whatever_the_command_leaves_is_killed_before_the_lock_is_released() {
    let (_gateway, url) = Gateway::start_and_url();
    // The command waits until the process that it leaves behind ignores TERM.
    let leaves = r#"
        ready=$(
            {
                trap "" TERM
                echo ready
                exec >&2
                while :; do sleep 0.05; done
            } &
        )
        exit 3"#;
    for script in ["exit 3", leaves] {
        let ran = in_a_container(&url, script).wait();
        assert!(
            !ran.err.contains("unshare: "),
            "this test makes a namespace of processes, which needs root or user namespaces \
             (sysctl kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns): {}",
            ran.err
        );
        ran.gives(3, "");
        assert_eq!(ran.err, "");
        assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
    }
}
