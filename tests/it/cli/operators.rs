//! The commands of operators: `list`, `break` and `events`.

use std::process::ChildStdout;

use crate::cli::prelude::*;

fn acquire(gateway: &Gateway, lock: &str, owner: &str) {
    gateway
        .typed(&format!("acquire {lock} --ttl 1h --owner '{owner}'"))
        .ends(0);
}

/// Runs `break deploy` at a gateway.
fn run(gateway: &FakeGateway, arguments: &[&str]) -> Ran {
    let arguments = [&["break", "deploy", "--reason", "x"], arguments].concat();
    gateway.latchgate(&arguments).read()
}

fn fence(gateway: &Gateway, lock: &str) -> String {
    let inspected = gateway.typed(&format!("inspect {lock} --json")).read();
    let lock = inspected.json();
    lock["holders"][0]["fencing_token"].to_string()
}

#[test]
fn a_list_walks_through_all_pages() {
    let gateway = Gateway::start();
    let nothing = gateway.typed("list").read();
    assert_eq!(
        (nothing.code, nothing.out.as_str(), nothing.err.as_str()),
        (Some(0), "", "no held lock matches\n")
    );
    for (lock, owner) in [("b:1", "ci"), ("a:1", "o\u{202e}ps"), ("a:2", "ci")] {
        acquire(&gateway, lock, owner);
    }
    let listed = gateway.typed("list").read();
    let lines: Vec<&str> = listed.out.lines().collect();
    assert!(lines[0].starts_with("LOCK  MODE       HELD FOR  EXPIRES IN  WAITERS  FENCING TOKEN "));
    assert_eq!(lines[0].find("OWNER"), lines[2].find("ci"));
    assert!(lines[1].starts_with("a:1   exclusive  "), "{listed:?}");
    let cells: Vec<_> = lines[1].split_whitespace().collect();
    assert!(cells[2].ends_with('s') && cells[3] == "59m", "{listed:?}");
    assert!(lines[1].ends_with(r"  o\u{202e}ps"), "{listed:?}");
    assert!(lines[2].starts_with("a:2 ") && lines[3].starts_with("b:1 "));

    let json = |arguments: &[&str]| {
        let listed = gateway
            .latchgate(&[&["list", "--json"], arguments].concat())
            .read();
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let name = |line: &str| {
            let lock: Value = serde_json::from_str(line).unwrap();
            lock["name"].as_str().unwrap().to_owned()
        };
        let mut names: Vec<_> = listed.out.lines().map(name).collect();
        names.sort();
        names
    };
    assert_eq!(json(&[]), ["a:1", "a:2", "b:1"]);
    assert_eq!(json(&["--prefix", "a:"]), ["a:1", "a:2"]);
    assert_eq!(json(&["--owner", "ci"]), ["a:2", "b:1"]);
    assert_eq!(json(&["--prefix", "a:", "--owner", "ci"]), ["a:2"]);
    assert_eq!(json(&["--limit", "2"]).len(), 2);
    assert!(json(&["--prefix", "c"]).is_empty());
}

#[test]
fn a_lock_that_comes_twice_is_shown_once() {
    let page = |names: &[&str], next: &str| {
        let locks = names.iter().map(|name| {
            format!(r#"{{"name":"{name}","holders":[{{"foreign":true,"expires_in_ms":null}}]}}"#)
        });
        let locks = locks.collect::<Vec<_>>().join(",");
        Reply::Answer(
            200,
            format!(r#"{{"locks":[{locks}],"next_cursor":{next}}}"#),
        )
    };
    let gateway = FakeGateway::new([
        page(&["a"], "\"x\""),
        page(&[], "\"y\""),
        page(&["a", "b"], "null"),
    ]);
    let listed = gateway.typed("list").read();
    assert_eq!(
        listed.out,
        "LOCK  MODE  HELD FOR  EXPIRES IN  WAITERS  FENCING TOKEN  OWNER\n\
         a     -     -         never       -        -              (a client that uses no gateway)\n\
         b     -     -         never       -        -              (a client that uses no gateway)\n"
    );
    let received = gateway.received();
    let target = |at: usize| received[at].line.clone();
    assert!(
        target(0).contains("/locks?prefix=&limit=500 "),
        "{}",
        target(0)
    );
    assert!(target(2).contains("&cursor=y "), "{}", target(2));
}

/// A page of two locks: `a` is held for an hour, and `b` for a minute with two waiters.
fn two_locks() -> Reply {
    let lock = |name: &str, since: &str, waiters: u64| {
        format!(
            r#"{{"name":"{name}","holders":[{{"owner":"ci","fencing_token":7,"acquired_at":"2026-11-20T{since}Z",
                "expires_at":"2026-11-20T12:01:00Z","expires_in_ms":30000}}],"waiter_count":{waiters}}}"#
        )
    };
    let locks = [lock("a", "11:00:30", 0), lock("b", "11:59:30", 2)].join(",");
    Reply::Answer(200, format!(r#"{{"locks":[{locks}],"next_cursor":null}}"#))
}

#[test]
fn a_list_is_sorted_and_filtered_by_what_waits_and_what_is_held_for_long() {
    let names = |arguments: &str| {
        let gateway = FakeGateway::new([two_locks()]);
        let listed = gateway.typed(&format!("list {arguments}")).read();
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let lines = listed.out.lines().skip(1);
        let name = |line: &str| line.split_whitespace().next().unwrap().to_owned();
        lines.map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["a", "b"]);
    assert_eq!(names("--sort waiters"), ["b", "a"]);
    assert_eq!(names("--sort held"), ["a", "b"]);
    assert_eq!(names("--sort waiters --limit 1"), ["b"]);
    assert_eq!(names("--waiting"), ["b"]);
    assert_eq!(names("--held-longer 59m"), ["a"]);
    assert!(names("--held-longer 1h").is_empty());
    let gateway = FakeGateway::new([two_locks()]);
    let listed = gateway.typed("list").read();
    assert_has(&listed.out, "a     -     1h        30s         -        7");
    assert_has(&listed.out, "b     -     1m        30s         2        7");
    let gateway = FakeGateway::new([two_locks()]);
    let listed = gateway.typed("list --sort waiters --json").read();
    let first: Value = serde_json::from_str(listed.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["name"], "b");
    typed("list --held-longer abc")
        .ends(2)
        .says("'--held-longer <TIME>': expected a time such as 30s");
    let gateway = FakeGateway::new([two_locks()]);
    let none = gateway.typed("list --held-longer 2h").read();
    none.gives(0, "");
    none.says("no held lock matches");
    let gateway = FakeGateway::new([Reply::Answer(
        200,
        r#"{"locks":[],"next_cursor":null}"#.to_owned(),
    )]);
    let none = gateway.typed("list --prefix x").read();
    none.says("no held lock matches");
}

#[test]
fn what_went_wrong_before_is_shown_from_the_figures_of_the_gateway() {
    let figures = r#"{"uptime_ms":300000,"store_changes":[{"at":"2020-11-20T12:00:00.000Z","kind":"failed-over","text":"moved"}],
        "incidents":[
            {"at":"2020-11-20T12:00:02.000Z","kind":"lost","name":"team:a","owner":"ci","by":null,"reason":"ended"},
            {"at":"2020-11-20T12:00:01.000Z","kind":"broken","name":"deploy","owner":"ci","by":"ops","reason":"stuck"}
        ]}"#;
    let asked = |arguments: &str| {
        let gateway = FakeGateway::new([Reply::Answer(200, figures.to_owned())]);
        let shown = gateway.typed(&format!("events {arguments}")).ends(0);
        assert!(gateway.received()[0].line.starts_with("GET /stats "));
        shown
    };
    assert_eq!(
        asked("--since 100y").out,
        "2020-11-20T12:00:00.000Z  store-changed  failed-over: moved\n\
         2020-11-20T12:00:01.000Z  broken    deploy  held by ci  broken by ops  (stuck)\n\
         2020-11-20T12:00:02.000Z  lost      team:a  by ci  (ended)\n"
    );
    let team = asked("--since 100y --prefix team: --json").out;
    assert_eq!(team.lines().count(), 2, "the store is everybody's: {team}");
    let nothing = asked("--since 1h");
    nothing.gives(0, "");
    nothing
        .says("the gateway, which has run for 5m, remembers nothing that went wrong in this time");
}

#[test]
fn what_a_job_holds_and_waits_for_is_shown_with_who_is_before_it() {
    let gateway = Gateway::start();
    let waits = |owner: &str, lock: &str| {
        let meta = format!("job=J-{owner}");
        let arguments = [
            "acquire", lock, "--wait", "50s", "--owner", owner, "--meta", &meta,
        ];
        let mut command = program();
        command.args(arguments).env("LATCHGATE_URL", gateway.url());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    };
    gateway
        .typed("acquire db --ttl 1h --owner runner-8 --meta job=4711")
        .ends(0);
    acquire(&gateway, "freeze", "ann");
    let mut children = Vec::new();
    for (owner, waiting) in [("runner-7", 1), ("runner-8", 2)] {
        children.push(waits(owner, "freeze"));
        until("it waits", || {
            let inspected = gateway.typed("inspect freeze --json").read();
            inspected.json()["waiter_count"] == waiting
        });
    }
    let dry = gateway
        .typed("break --owner runner-8 --reason x --dry-run")
        .read();
    dry.says("would break 1 lease; latchgate where \"runner-8\" --exact shows what it waits for\n");
    let found = gateway.typed("where RUNNER-8").read();
    let lines: Vec<_> = found.out.lines().collect();
    assert_eq!(lines.len(), 2, "{found:?}");
    assert!(lines[0].starts_with("holds      db for "), "{found:?}");
    assert_has(lines[0], ": runner-8 job=4711, expires in 59m ");
    assert!(lines[1].starts_with("waits for  freeze for "), "{found:?}");
    let behind = ": runner-8 job=J-runner-8, 2 of 2, behind runner-7 job=J-runner-7; held by ann";
    assert!(lines[1].ends_with(behind), "{found:?}");
    assert_has(&gateway.typed("where J-runner-7").read().out, "freeze");
    for (exact, lines) in [("runner-8", 2), ("RUNNER-8", 0), ("unner-8", 0)] {
        let found = gateway.typed(&format!("where {exact} --exact")).read();
        assert_eq!(found.out.lines().count(), lines, "{found:?}");
    }
    let nothing = gateway.typed("where nobody").read();
    nothing.gives(0, "");
    nothing.says("nothing with the text nobody holds or waits for a lock");
    let listed = gateway.typed("list --search J-runner-7").read();
    assert_has(&listed.out, "ann (a waiter has the job J-runner-7)");
    let inspected = gateway.typed("inspect freeze").read();
    assert_has(&inspected.out, "  2              runner-8 for ");
    assert_has(&inspected.out, " job=J-runner-8\n");
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn all_leases_of_an_owner_are_shown_and_broken() {
    let gateway = Gateway::start();
    for (lock, owner) in [
        ("a", "runner-8"),
        ("b", "runner-8"),
        ("c", "runner-81"),
        ("d", "Runner-8"),
    ] {
        acquire(&gateway, lock, owner);
    }
    gateway
        .typed("acquire s --shared --ttl 1h --owner runner-8")
        .ends(0);
    gateway
        .typed("acquire s --shared --ttl 1h --owner runner-9")
        .ends(0);
    let owner = "break --owner runner-8 --reason 'machine is gone'";
    let dry = gateway.typed(&format!("{owner} --dry-run")).read();
    dry.gives(0, "");
    for said in [
        "a: runner-8, fencing token ",
        "b: runner-8",
        "s: runner-8",
        "would break 3 leases",
    ] {
        dry.says(said);
    }
    assert!(
        !dry.err.contains("c:") && !dry.err.contains("runner-9"),
        "{dry:?}"
    );
    gateway.typed(owner).ends(2).says("--yes");
    let held = || {
        let listed = gateway.typed("list --json").read();
        listed.out.lines().count()
    };
    assert_eq!(held(), 5);
    let asked = gateway.typed(&format!("{owner} --grace 5m --yes")).read();
    asked.says("requested the release of a within 5m: runner-8");
    assert_eq!(held(), 5);
    let broken = gateway.typed(&format!("{owner} --yes")).read();
    broken.gives(0, "");
    broken.says("broke b: runner-8, fencing token ");
    assert_eq!(held(), 3);
    let shared = gateway.typed("inspect s --json").read().json();
    assert_eq!(shared["holders"][0]["owner"], "runner-9");
    gateway
        .typed(&format!("{owner} --yes"))
        .ends(107)
        .says("\"runner-8\" holds nothing");
    gateway.typed(&format!("{owner} a")).ends(2);
    gateway.typed("break --reason x --dry-run").ends(2);
    for more in [
        "a",
        "a --yes",
        "a --all --yes",
        "a --any",
        "a --fencing-token 1",
    ] {
        gateway
            .typed(&format!("break --reason x --dry-run {more}"))
            .ends(2)
            .says("--dry-run");
    }
}

#[test]
fn a_break_hits_the_lease_that_was_shown() {
    let gateway = Gateway::start();
    gateway.typed("break deploy --reason x --yes").ends(107);

    acquire(&gateway, "deploy", "me@here");
    let fence = fence(&gateway, "deploy");
    let asked = gateway.typed("break deploy --reason hangs").ends(2);
    asked.says("is held by me@here");
    gateway
        .typed("break deploy --reason x --fencing-token 7")
        .ends(108);

    let broken = gateway.typed("break deploy --reason hangs --yes").read();
    broken.gives(0, "");
    let whom = format!("broke deploy: me@here, fencing token {fence}, ");
    broken.says(&whom);
    gateway.logged("reason=\"hangs\"");
    gateway
        .typed(&format!("break deploy --reason x --fencing-token {fence}"))
        .ends(107);

    acquire(&gateway, "deploy", "me again");
    let any = gateway.typed("break deploy --reason x --any --json").read();
    let lock = any.json();
    assert_eq!(lock["holders"][0]["owner"], "me again");
}

#[test]
fn a_break_sends_what_it_saw_and_repeats_itself_only_where_nobody_else_is_hit() {
    let lock =
        r#"{"state":"held","holders":[{"owner":"a","fencing_token":42,"expires_in_ms":9000}]}"#;
    let shown = Reply::Answer(200, lock.to_owned());
    let gone = Reply::problem(409, "not-held", "");
    let gateway = FakeGateway::new([shown, Reply::Lost, gone]);
    run(&gateway, &["--yes"]).ends(105);
    let received = gateway.received();
    assert_eq!(received.len(), 3);
    for copy in &received[1..] {
        assert_eq!(copy.body, r#"{"fencing_token":42,"reason":"x"}"#);
    }

    let shown = Reply::Answer(200, lock.to_owned());
    let broken =
        r#"{"name":"deploy","holders":[{"owner":"a","fencing_token":42,"expires_in_ms":9}]}"#;
    let gateway = FakeGateway::new([shown, Reply::Lost, Reply::Answer(200, broken.to_owned())]);
    let any = run(&gateway, &["--any"]).ends(0);
    any.begins("broke deploy: a, fencing token 42, with 9ms left");
    for copy in &gateway.received()[1..] {
        assert_eq!(copy.body, r#"{"fencing_token":42,"reason":"x"}"#);
    }

    let odd = r#"{"state":"held","holders":[{"foreign":true,"expires_in_ms":null}]}"#;
    let odd = Reply::Answer(200, odd.to_owned());
    let unseen = Reply::problem(403, "forbidden", "");
    for nothing_to_tell_it_by in [odd, unseen] {
        let gateway = FakeGateway::new([nothing_to_tell_it_by, Reply::Lost]);
        run(&gateway, &["--any"]).ends(105);
        let received = gateway.received();
        assert_eq!(received.len(), 2, "a copy would hit the next one");
        assert_eq!(received[1].body, r#"{"reason":"x"}"#);
    }
}

#[test]
fn of_a_client_without_a_gateway_it_breaks_what_it_saw_and_does_not_repeat_itself() {
    let mark = "8034c43d15bb7ef42e2cc24255217acfc5f4b2f4";
    let holder = format!(r#"{{"foreign":true,"foreign_mark":"{mark}","expires_in_ms":null}}"#);
    let shown = || Reply::Answer(200, format!(r#"{{"state":"held","holders":[{holder}]}}"#));
    let sent = format!(r#"{{"foreign_mark":"{mark}","reason":"x"}}"#);
    for flag in ["--yes", "--any"] {
        let broken = Reply::Answer(200, format!(r#"{{"name":"deploy","holders":[{holder}]}}"#));
        let gateway = FakeGateway::new([shown(), broken]);
        let ran = run(&gateway, &[flag]).ends(0);
        ran.says("broke deploy: a client that uses no gateway");
        assert_eq!(gateway.received()[1].body, sent);
    }
    // The foreign lock may have come back meanwhile with the same mark, so the request is not repeated.
    let gateway = FakeGateway::new([Reply::Lost]);
    run(&gateway, &["--foreign-mark", mark]).ends(105);
    let received = gateway.received();
    assert_eq!(received.len(), 1, "a copy could hit the next one");
    assert_eq!(received[0].body, sent);
}

#[test]
fn where_nothing_is_seen_only_any_breaks() {
    let free = Reply::Answer(200, r#"{"state":"free"}"#.to_owned());
    let gateway = FakeGateway::new([free]);
    let run = |gateway: &FakeGateway, flag: &str| {
        gateway
            .typed(&format!("break deploy --reason x {flag}"))
            .read()
    };
    run(&gateway, "--any").ends(107);
    assert_eq!(gateway.received().len(), 1);

    let gateway = FakeGateway::new([Reply::problem(403, "forbidden", "")]);
    let unseen = run(&gateway, "--yes").ends(2);
    unseen.says("--any is needed");
    assert_eq!(gateway.received().len(), 1);
}

#[test]
fn a_wrong_command_line_breaks_nothing() {
    for line in [
        "break a",
        "break --reason x",
        "break a --reason ''",
        "break a --reason x --fencing-token 0",
        "break a --reason x --fencing-token 1 --any",
        "break a --reason x --foreign-mark theirs",
        "list --prefix a*",
        "list --owner ''",
    ] {
        let unasked = typed(line).env("LATCHGATE_URL", "http://127.0.0.1:1");
        unasked.ends(2);
    }
}

#[test]
fn a_holder_that_is_asked_first_keeps_the_lock_until_the_grace_is_over() {
    let gateway = Gateway::start();
    acquire(&gateway, "acme/deploy", "ci");
    let fence = fence(&gateway, "acme/deploy");
    let arguments = [
        "break",
        "acme/deploy",
        "--reason",
        "newer",
        "--fencing-token",
    ];
    let asked = |grace: &[&str]| {
        gateway
            .latchgate(&[&arguments[..], &[&fence], grace].concat())
            .read()
    };
    let answer = asked(&["--grace", "1h", "--json"]).ends(0);
    let body = answer.json();
    assert_eq!(body["holders"][0]["release_requested"]["reason"], "newer");
    let inspected = gateway.typed("inspect acme/deploy").read();
    assert_has(&inspected.out, "to be released within 59m ");
    let answer = asked(&["--grace", "2h"]).ends(106);
    answer.says("--grace is 7200000");
    asked(&["--grace", "0"]).ends(0);
    assert_eq!(
        gateway.typed("inspect acme/deploy").read().out,
        "acme/deploy is free\n"
    );
}

#[test]
fn who_is_asked_to_release_a_lock_is_shown_so_wherever_the_lease_is() {
    let gateway = Gateway::start();
    for owner in ["one", "two"] {
        gateway
            .typed(&format!("acquire gpu --shared --ttl 1h --owner {owner}"))
            .ends(0);
    }
    gateway
        .typed("break gpu --reason newer --all --grace 1h")
        .ends(0);
    for command in [&["list"][..], &["inspect", "gpu"]] {
        let shown = gateway.latchgate(command).read();
        for owner in ["one", "two"] {
            let line = shown.out.lines().find(|line| line.contains(owner));
            let asked = "(to be released within 59m ";
            assert!(line.is_some_and(|line| line.contains(asked)), "{shown:?}");
        }
    }
    let shown = gateway.typed("inspect gpu").read();
    assert!(shown.out.contains("HELD SINCE"), "{shown:?}");
    acquire(&gateway, "alone", "me");
    let shown = gateway.typed("inspect alone").read();
    assert!(shown.out.contains("  held since     20"), "{shown:?}");
}

/// A running `events` command, killed when dropped.
struct Following {
    child: Child,
    /// The output of the command; `None` if the test has closed it.
    out: Option<BufReader<ChildStdout>>,
}

// === impl Following ===

impl Following {
    fn start(url: &str, arguments: &[&str]) -> Self {
        let mut child = program()
            .args(["events", "--url", url])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().map(BufReader::new);
        Self { child, out }
    }

    /// The next line of output. If none comes, the test hangs, and the runner of the tests reports it.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.out.as_mut().unwrap();
        out.read_line(&mut line).unwrap();
        line
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end of the command. Answers exit code and standard error.
    fn end(&mut self) -> (Option<i32>, String) {
        until("its end", || self.child.try_wait().unwrap().is_some());
        let mut said = String::new();
        let err = self.child.stderr.as_mut().unwrap();
        err.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Acquires locks until the command prints an event. Answers its line.
fn heard(following: &mut Following, gateway: &Gateway) -> String {
    let url = gateway.url();
    let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(0);
    let acquiring = thread::spawn(move || {
        let quarter = Duration::from_millis(250);
        let timed_out = Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        while stopped.recv_timeout(quarter) == timed_out {
            typed(&format!("acquire acme/deploy --ttl 200ms --url {url}")).read();
        }
    });
    let line = following.line();
    drop(stop);
    acquiring.join().unwrap();
    line
}

#[test]
fn it_follows_until_it_is_told_to_stop() {
    for signal in [Signal::INT, Signal::TERM] {
        let gateway = Gateway::start();
        let mut following = Following::start(&gateway.url(), &["--prefix", "acme/"]);
        let line = heard(&mut following, &gateway);
        assert!(
            line.contains("acquired  acme/deploy  fencing token "),
            "{line}"
        );
        following.signal(signal);
        assert_eq!(following.end().0, Some(0));
    }
}

#[test]
fn with_json_each_line_is_an_event() {
    let gateway = Gateway::start();
    let mut following = Following::start(&gateway.url(), &["--json"]);
    let event: Value = serde_json::from_str(&heard(&mut following, &gateway)).unwrap();
    assert_eq!(
        fields(&event, ["kind", "name"]),
        json!(["acquired", "acme/deploy"])
    );
}

#[test]
fn it_ends_when_nobody_reads_it_any_more() {
    let gateway = Gateway::start();
    let mut following = Following::start(&gateway.url(), &[]);
    heard(&mut following, &gateway);
    // Without a reader, the pipe of the output is closed.
    following.out = None;
    let child = &mut following.child;
    let url = gateway.url();
    let deadline = Instant::now() + Duration::from_mins(1);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not end");
        typed(&format!("acquire deploy --ttl 200ms --url {url}")).read();
    }
    assert_eq!(following.end(), (Some(0), String::new()));
}

#[test]
fn a_gateway_that_is_not_there_or_refuses_ends_it() {
    typed("events --url http://127.0.0.1:1").ends(103);
    let gateway = Gateway::start();
    let elsewhere = format!("{}/elsewhere", gateway.url());
    typed(&format!("events --url {elsewhere}")).ends(106);
    let ran = gateway.typed("events --prefix a*").ends(2);
    ran.says("has '*' in it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_on_at_another_gateway_and_shows_the_gap() {
    let server = RedisServer::start().await;
    let start = || Gateway::start_with(Setup::on(&server));
    let (mut one, two) = (start(), start());
    let url = format!("{},{}", one.url(), two.url());
    let mut following = Following::start(&url, &[]);
    heard(&mut following, &one);
    one.kill();
    loop {
        let line = following.line();
        if line.contains("  gap  ") {
            assert!(line.contains("(unknown-id)"), "{line}");
            break;
        }
    }
    let line = heard(&mut following, &two);
    assert!(line.contains("deploy"), "{line}");
    following.signal(Signal::INT);
    let (code, said) = following.end();
    assert_eq!(code, Some(0), "{said}");
    let lost = format!("latchgate: the connection to {} is lost (", one.url());
    assert_eq!(said.matches(&lost).count(), 1, "{said}");
    assert!(said.contains("); connecting again\n"), "{said}");
    assert!(
        said.ends_with(&format!("latchgate: connected again, to {}\n", two.url())),
        "{said}"
    );
    // The words of the HTTP client must not be shown.
    assert!(!said.contains("error decoding"), "{said}");
}

#[test]
fn the_history_says_who_held_a_lock_and_how_that_ended() {
    let gateway = Gateway::start();
    let none = gateway.typed("history deploy").read();
    none.gives(0, "no lease of deploy is recorded\n");
    acquire(&gateway, "deploy", "ci-9");
    let fence = fence(&gateway, "deploy");
    gateway
        .latchgate(&["break", "deploy", "--any", "--reason", "ci-9 hangs"])
        .ends(0);
    let history = gateway.typed("history deploy").read();
    let lines: Vec<&str> = history.out.lines().collect();
    assert!(
        lines[0].starts_with("FROM ") && lines[0].ends_with("  OWNER"),
        "{history:?}"
    );
    assert!(
        lines[1].contains("  broken by 127.0.0.1: ci-9 hangs  "),
        "{history:?}"
    );
    assert!(
        lines[1].contains(&fence) && lines[1].ends_with("  ci-9"),
        "{history:?}"
    );
    let json = gateway.typed("history deploy --json").read().json();
    let entry = &json["entries"][0];
    assert_eq!(
        (&entry["ended"], &entry["reason"]),
        (&"broken".into(), &"ci-9 hangs".into())
    );
}
