//! A lease that is lost: the command must not go on.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use super::fixture::{inspect, is_alive, run_sh, until, waiters};
use crate::support::{
    RedisServer,
    gateway::{Gateway, Setup},
    program::latchgate,
};

fn on(redis: &RedisServer) -> Gateway {
    let url = format!("redis://127.0.0.1:{}", redis.port());
    Gateway::start_with(Setup::default().with("LATCHGATE_STORE", &url))
}

fn break_lock(url: &str) {
    let arguments = ["break", "deploy", "--reason", "it hangs", "--yes"];
    let broken = latchgate(&arguments).env("LATCHGATE_URL", url).read();
    assert_eq!(broken.code, Some(0), "{broken:?}");
}

#[tokio::test]
async fn a_command_that_does_not_want_to_end_is_killed_before_somebody_else_has_the_lock() {
    let redis = RedisServer::start().await;
    let (ours, other) = (on(&redis), on(&redis));
    let stubborn = r#"trap "" TERM; echo "pid=$$"; while :; do sleep 0.05; done"#;
    let mut losing = run_sh(&ours.url(), &["deploy", "--ttl", "4s"], stubborn);
    let pid = losing.printed_pid("pid");
    let check = format!("kill -0 {} && echo both; echo mine", pid.as_raw_pid());
    let mut winning = run_sh(&other.url(), &["deploy"], &check);
    until("it waits", || waiters(&other.url(), "deploy") == 1);
    ours.signal(Signal::STOP);
    ours.stands_still();
    assert_eq!(winning.wait().out, "mine\n");
    let lost = losing.wait();
    assert_eq!(lost.code, Some(102), "{lost:?}");
    assert!(lost.err.contains("stopping the command"), "{lost:?}");
    ours.signal(Signal::CONT);
}

#[test]
fn a_command_has_time_to_end_well_before_its_lease_is_over() {
    let gateway = Gateway::start();
    let tidy = r#"trap "echo tidied; exit 0" TERM; echo up; while :; do sleep 0.05; done"#;
    let mut losing = run_sh(&gateway.url(), &["deploy", "--ttl", "12s"], tidy);
    losing.printed("up");
    gateway.signal(Signal::STOP);
    gateway.stands_still();
    let stopped = Instant::now();
    losing.printed("tidied");
    // It was last renewed before that.
    assert!(stopped.elapsed() < Duration::from_secs(11));
    gateway.signal(Signal::CONT);
    let lost = losing.wait();
    // Its own end was well, but it was not its own will.
    assert_eq!(lost.code, Some(102), "{lost:?}");
    assert_eq!(inspect(&gateway.url(), "deploy"), "deploy is free\n");
}

#[test]
fn grandchildren_end_with_the_command() {
    let gateway = Gateway::start();
    let script = r#"trap "" TERM; (trap "" TERM; sh -c 'echo "inner=$$"; while :; do sleep 0.05; done') & echo "outer=$$"; wait"#;
    let mut losing = run_sh(&gateway.url(), &["deploy", "--ttl", "3s"], script);
    let pids = [losing.printed_pid("outer"), losing.printed_pid("inner")];
    gateway.signal(Signal::STOP);
    gateway.stands_still();
    let lost = losing.wait();
    assert_eq!(lost.code, Some(102), "{lost:?}");
    for pid in pids {
        assert!(!is_alive(pid));
    }
    gateway.signal(Signal::CONT);
}

#[test]
fn a_lease_that_somebody_ended_stops_the_command_at_the_next_renewal() {
    let gateway = Gateway::start();
    let script = r#""$LATCHGATE" release "$LATCHGATE_NAME"; echo released; exec sleep 60"#;
    let arguments = ["deploy", "--ttl", "4s", "--token-env"];
    let mut losing = run_sh(&gateway.url(), &arguments, script);
    losing.printed("released");
    let released = Instant::now();
    let lost = losing.wait();
    assert_eq!(lost.code, Some(102), "{lost:?}");
    assert!(
        lost.err.contains("the gateway says that it has ended"),
        "{lost:?}"
    );
    // Renewed more often than every two seconds.
    assert!(released.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_command_is_killed_at_once_if_its_lock_was_given_to_another() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let tidy = r#"trap "echo tidying" TERM; echo "pid=$$"; while :; do sleep 0.05; done"#;
    let arguments = ["deploy", "--ttl", "30s", "--kill-after", "15s"];
    let mut losing = run_sh(&url, &arguments, tidy);
    let pid = losing.printed_pid("pid");
    let mut next = run_sh(&url, &["deploy"], "echo up; exec sleep 60");
    until("it waits", || waiters(&url, "deploy") == 1);
    break_lock(&url);
    next.printed("up");
    losing.said("stopping the command");
    let told = Instant::now();
    until("it is dead", || !is_alive(pid));
    assert!(told.elapsed() < Duration::from_secs(10));
    let lost = losing.wait();
    assert_eq!(
        (lost.code, lost.out.lines().count()),
        (Some(102), 1),
        "{lost:?}"
    );
    next.signal(Signal::TERM);
    assert_eq!(next.wait().code, Some(143));
}

#[test]
fn a_command_has_but_a_moment_if_its_lease_was_ended_and_anybody_may_have_the_lock() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let tidy = r#"trap "echo tidying" TERM; echo up; while :; do sleep 0.05; done"#;
    let arguments = ["deploy", "--ttl", "30s", "--kill-after", "15s"];
    let mut losing = run_sh(&url, &arguments, tidy);
    losing.printed("up");
    break_lock(&url);
    losing.printed("tidying");
    let told = Instant::now();
    let lost = losing.wait();
    assert_eq!(lost.code, Some(102), "{lost:?}");
    assert!(told.elapsed() < Duration::from_secs(10), "{lost:?}");
}

#[test]
fn what_the_command_left_running_is_killed_when_the_lock_goes_to_another_meanwhile() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let script = r#"sh -c 'trap "" TERM; echo "left=$$"; while :; do sleep 0.05; done' & sleep 0.3; echo "ended"; exit 6"#;
    let arguments = ["deploy", "--ttl", "30s", "--kill-after", "15s"];
    let mut losing = run_sh(&url, &arguments, script);
    let left = losing.printed_pid("left");
    losing.printed("ended");
    let mut next = run_sh(&url, &["deploy"], "echo up; exec sleep 60");
    until("it waits", || waiters(&url, "deploy") == 1);
    break_lock(&url);
    next.printed("up");
    losing.said("the lease is lost before what the command has left running is stopped");
    let told = Instant::now();
    until("it is dead", || !is_alive(left));
    assert!(told.elapsed() < Duration::from_secs(10));
    // The command itself had ended in time.
    assert_eq!(losing.wait().code, Some(6));
    next.signal(Signal::TERM);
    assert_eq!(next.wait().code, Some(143));
}

#[test]
fn a_command_may_go_on_without_its_lease_if_that_is_wanted() {
    let mut gateway = Gateway::start();
    let directory = tempfile::tempdir().unwrap();
    let lost = directory.path().join("lost");
    let script = format!(
        "echo up; until [ -e {} ]; do sleep 0.05; done; echo done; exit 5",
        lost.display()
    );
    let arguments = ["deploy", "--ttl", "1500ms", "--on-lost", "continue"];
    let mut losing = run_sh(&gateway.url(), &arguments, &script);
    losing.printed("up");
    gateway.kill();
    losing.said("the lease is lost, the command goes on");
    std::fs::write(lost, "").unwrap();
    let ran = losing.wait();
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(5), "up\ndone\n"),
        "{ran:?}"
    );
}

#[test]
fn a_hold_limit_ends_the_command_like_any_other_loss() {
    let gateway = Gateway::start();
    let arguments = ["deploy", "--ttl", "2s", "--max-hold", "2s"];
    let mut losing = run_sh(&gateway.url(), &arguments, "exec sleep 60");
    let lost = losing.wait();
    assert_eq!(lost.code, Some(102), "{lost:?}");
    assert!(lost.err.contains("hold limit"), "{lost:?}");
}
