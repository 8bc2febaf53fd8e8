//! A lost lease, and gateways that disappear while a command runs or while `run` waits for the lock.

use crate::cli::prelude::*;

fn on(redis: &RedisServer) -> Gateway {
    Gateway::start_with(Setup::on(redis))
}

fn break_lock(url: &str) {
    let arguments = ["break", "deploy", "--reason", "it hangs", "--yes"];
    latchgate(&arguments).env("LATCHGATE_URL", url).ends(0);
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
    ours.freeze();
    assert_eq!(winning.wait().out, "mine\n");
    let lost = losing.wait().ends(102);
    lost.says("stopping the command");
    ours.signal(Signal::CONT);
}

#[test]
fn a_command_has_time_to_end_well_before_its_lease_is_over() {
    let gateway = Gateway::start();
    let tidy = r#"trap "echo tidied; exit 0" TERM; echo up; while :; do sleep 0.05; done"#;
    let mut losing = begun(&gateway.url(), &["deploy", "--ttl", "12s"], tidy);
    gateway.freeze();
    let stopped = Instant::now();
    losing.printed("tidied");
    // The last renewal was before the freeze, so the lease ends earlier than its full TTL from now.
    assert!(stopped.elapsed() < Duration::from_secs(11));
    gateway.signal(Signal::CONT);
    let lost = losing.wait();
    // The command ended with success, but only because its lease was lost.
    assert_eq!(lost.code, Some(102), "{lost:?}");
    assert_eq!(inspect(&gateway.url(), "deploy"), "deploy is free\n");
}

#[test]
fn grandchildren_end_with_the_command() {
    let gateway = Gateway::start();
    let script = r#"trap "" TERM; (trap "" TERM; sh -c 'echo "inner=$$"; while :; do sleep 0.05; done') & echo "outer=$$"; wait"#;
    let mut losing = run_sh(&gateway.url(), &["deploy", "--ttl", "3s"], script);
    let pids = [losing.printed_pid("outer"), losing.printed_pid("inner")];
    gateway.freeze();
    losing.wait().ends(102);
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
    let lost = losing.wait().ends(102);
    lost.says("the gateway says that the lease has ended");
    // `run` renews more often than every two seconds, so it notices the release long before this bound.
    assert!(released.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_command_is_killed_at_once_if_its_lock_was_given_to_another() {
    let (_gateway, url) = Gateway::start_and_url();
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
    let (_gateway, url) = Gateway::start_and_url();
    let tidy = r#"trap "echo tidying" TERM; echo up; while :; do sleep 0.05; done"#;
    let arguments = ["deploy", "--ttl", "30s", "--kill-after", "15s"];
    let mut losing = begun(&url, &arguments, tidy);
    break_lock(&url);
    losing.printed("tidying");
    let told = Instant::now();
    let lost = losing.wait().ends(102);
    assert!(told.elapsed() < Duration::from_secs(10), "{lost:?}");
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
    let mut losing = begun(&gateway.url(), &arguments, &script);
    gateway.kill();
    losing.said("the lease is lost, the command goes on");
    fs::write(lost, "").unwrap();
    let ran = losing.wait();
    ran.gives(102, "up\ndone\n");
    ran.says("deploy: the command ended with exit code 5, but the lease was lost before: ");
}

#[test]
fn a_command_whose_lock_is_broken_before_the_next_renewal_has_not_succeeded() {
    let (_gateway, url) = Gateway::start_and_url();
    for (arguments, code) in [
        (&["deploy"][..], 0),
        (&["deploy", "--min-hold", "1s"], 0),
        (&["deploy", "--limit", "2"], 7),
        (&["deploy", "other"], 0),
        (&["deploy", "--on-lost", "continue"], 0),
    ] {
        let script = format!(
            r#""$LATCHGATE" break deploy --reason "it hangs" --yes && "$LATCHGATE" acquire deploy --ttl 1s; exit {code}"#
        );
        let lost = run_sh(&url, arguments, &script).wait().ends(102);
        let text = format!(
            "deploy: the command ended with exit code {code}, but the lease was lost before: "
        );
        lost.says(&text);
        until_free(&url);
    }
}

#[test]
fn a_lease_that_is_gone_after_an_unanswered_release_may_have_lasted() {
    let lost = || Reply::problem(410, "lease-lost", r#","held":false"#);
    let of_two = r#"{"results":[{"name":"a","code":"lease-lost"},{"name":"b","code":null}]}"#;
    let leases = r#"{"leases":[{"name":"a","fencing_token":1},{"name":"b","fencing_token":2}],"#;
    for (names, lease, over) in [
        (
            &["deploy"][..],
            r#"{"name":"deploy","fencing_token":1,"#,
            lost(),
        ),
        (&["a", "b"], leases, Reply::Answer(200, of_two.to_owned())),
    ] {
        let granted = format!(
            r#"{lease}"token":"{}","ttl_ms":60000,"expires_in_ms":60000,"renew_after_ms":20000}}"#,
            "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU"
        );
        let replies = [Reply::Answer(201, granted), Reply::Lost, over];
        let gateway = FakeGateway::new(replies);
        let ran = run_sh(&gateway.url, names, "exit 0").wait().ends(105);
        let text = format!(
            "{}: the command ended with exit code 0, but it is unknown whether the lease lasted until then: ",
            names[0]
        );
        ran.says(&text);
        assert_eq!(gateway.received().len(), 3);
    }
}

#[test]
fn a_hold_limit_ends_the_command_like_any_other_loss() {
    let gateway = Gateway::start();
    let arguments = ["deploy", "--ttl", "2s", "--max-hold", "2s"];
    let mut losing = run_sh(&gateway.url(), &arguments, "exec sleep 60");
    let lost = losing.wait().ends(102);
    lost.says("hold limit");
}

fn both(first: &Gateway, second: &Gateway) -> String {
    format!("{},{}", first.url(), second.url())
}

#[test]
fn the_command_ends_as_it_ends_although_nobody_takes_the_release() {
    let mut gateway = Gateway::start();
    let mut running = run_sh(
        &gateway.url(),
        &["deploy", "--ttl", "4s"],
        "echo up; sleep 1; exit 9",
    );
    running.printed("up");
    gateway.kill();
    let begin = Instant::now();
    let ran = running.wait().ends(9);
    ran.says("could not release the lock");
    assert!(begin.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_release_is_tried_until_somebody_takes_it() {
    let (gateway, url) = Gateway::start_and_url();
    let mut running = run_sh(
        &url,
        &["deploy", "--ttl", "30s"],
        "echo up; sleep 0.2; echo done",
    );
    running.printed("up");
    gateway.freeze();
    running.printed("done");
    gateway.signal(Signal::CONT);
    assert_eq!(running.wait().code, Some(0));
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

/// Whether a process has a handler for a signal.
fn hears(pid: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn an_acquire_that_is_given_up_while_nobody_answers_leaves_no_lock_behind() {
    // Longer than the client tries a gateway that does not answer.
    const NOT_THERE: Duration = Duration::from_secs(4);
    let (gateway, url) = Gateway::start_and_url();
    gateway.freeze();
    let mut running = run_sh(&url, &["deploy"], "echo ran");
    until("it hears signals", || hears(running.pid(), Signal::TERM));
    running.signal(Signal::TERM);
    running.said("the gateway has not answered the withdrawal yet");
    let begin = Instant::now();
    until("nobody would be asked any more", || {
        assert!(!running.has_ended(), "{}", running.err());
        begin.elapsed() > NOT_THERE
    });
    // When the gateway runs again, it carries out all requests that it got.
    gateway.signal(Signal::CONT);
    let ran = running.wait();
    ran.gives(143, "");
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

/// A gateway on a fixed port, so that it can start again at the same address.
fn one_that_can_come_back() -> Gateway {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    Gateway::start_with(Setup {
        listen: Some(address.leak()),
        ..Setup::default()
    })
}

#[test]
fn a_wait_that_nobody_answers_is_told_once_and_so_is_its_end() {
    for arguments in [
        &["run", "deploy", "--", "echo", "ran"][..],
        &["acquire", "deploy", "--wait", "5m"],
    ] {
        let mut gateway = one_that_can_come_back();
        let url = gateway.url();
        let on = |arguments: &[&str]| latchgate(arguments).env("LATCHGATE_URL", &url);
        let token = on(&["acquire", "deploy", "--ttl", "1h"]).read().out;
        let mut command = program();
        command.args(arguments);
        let mut waiting = start(&url, command);
        until("it waits", || waiters(&url, "deploy") == 1);
        gateway.kill();
        waiting.said("latchgate: deploy: the gateway cannot be asked, trying again: ");
        gateway.restart();
        until("it waits again", || waiters(&url, "deploy") == 1);
        let released = on(&["release", "deploy"]).token(token.trim_end());
        assert_eq!(released.read().code, Some(0));
        let ran = waiting.wait().ends(0);
        let again = "latchgate: deploy: the gateway answers again\n";
        assert_eq!(ran.err.matches(again).count(), 1, "{ran:?}");
        let cannot = "the gateway cannot be asked, trying again: ";
        assert_eq!(ran.err.matches(cannot).count(), 1, "{ran:?}");
    }
}

#[test]
fn an_outage_shorter_than_the_lease_is_survived() {
    let mut gateway = one_that_can_come_back();
    let url = gateway.url();
    // The gateway may be away for eight seconds: from the first failed renewal until the command is stopped.
    let mut running = run_sh(
        &url,
        &["deploy", "--ttl", "15s", "--kill-after", "1s"],
        "trap 'exit 3' USR1; echo up; while :; do sleep 0.1; done",
    );
    running.printed("up");
    gateway.kill();
    running.said("could not be renewed, trying again");
    gateway.restart();
    running.said("is renewed again");
    running.signal(Signal::USR1);
    assert_eq!(running.wait().code, Some(3));
    assert_eq!(inspect(&url, "deploy"), "deploy is free\n");
}

#[tokio::test]
async fn the_lease_is_kept_at_the_next_address_when_a_gateway_drains() {
    is_kept_at_the_next_address_after(Signal::TERM).await;
}

#[tokio::test]
async fn the_lease_is_kept_at_the_next_address_when_a_gateway_dies() {
    is_kept_at_the_next_address_after(Signal::KILL).await;
}

async fn is_kept_at_the_next_address_after(signal: Signal) {
    let redis = RedisServer::start().await;
    let (mut first, second) = (on(&redis), on(&redis));
    // Longer than the TTL, which leaves three seconds for the renewal that finds the other address.
    let script = r#"echo up; sleep 7; "$LATCHGATE" inspect deploy | grep -q "token  $LATCHGATE_FENCING_TOKEN" && exit 3"#;
    let arguments = ["deploy", "--ttl", "5s", "--kill-after", "300ms"];
    let mut running = begun(&both(&first, &second), &arguments, script);
    first.signal(signal);
    first.wait();
    running.wait().ends(3);
    assert_eq!(inspect(&second.url(), "deploy"), "deploy is free\n");
}

#[tokio::test]
async fn a_wait_goes_on_at_another_gateway_when_its_own_drains_or_dies() {
    for signal in [Signal::TERM, Signal::KILL] {
        let redis = RedisServer::start().await;
        let (mut first, second) = (on(&redis), on(&redis));
        let mut holder = held(&second.url(), &["deploy"]);
        let mut early = run_sh(
            &both(&first, &second),
            &["deploy", "--ttl", "20s"],
            "date +%s%N",
        );
        until("it waits", || waiters(&second.url(), "deploy") == 1);
        let mut late = run_sh(&second.url(), &["deploy", "--ttl", "21s"], "date +%s%N");
        until("both wait", || waiters(&second.url(), "deploy") == 2);
        first.signal(signal);
        first.wait();
        holder.signal(Signal::TERM);
        holder.wait();
        let (early, late) = (early.wait(), late.wait());
        assert_eq!(
            (early.code, late.code),
            (Some(0), Some(0)),
            "{early:?} {late:?}"
        );
        let at = |out: &str| out.trim_end().parse::<u64>().unwrap();
        assert!(
            at(&early.out) < at(&late.out),
            "{signal:?}: the place was lost"
        );
    }
}
