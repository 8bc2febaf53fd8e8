//! The operator's commands, against a real gateway.

use serde_json::Value;

use crate::support::{
    fake_gateway::{FakeGateway, Reply},
    gateway::Gateway,
    program::{Ran, latchgate},
};

fn on(gateway: &Gateway, arguments: &[&str]) -> Ran {
    latchgate(arguments)
        .env("LATCHGATE_URL", &gateway.url())
        .read()
}

fn acquire(gateway: &Gateway, lock: &str, owner: &str) {
    let acquired = on(gateway, &["acquire", lock, "--ttl", "1h", "--owner", owner]);
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
}

fn fence(gateway: &Gateway, lock: &str) -> String {
    let inspected = on(gateway, &["inspect", lock, "--json"]);
    let lock: Value = serde_json::from_str(&inspected.out).unwrap();
    lock["holders"][0]["fencing_token"].to_string()
}

#[test]
fn a_list_walks_through_all_pages() {
    let gateway = Gateway::start();
    let nothing = on(&gateway, &["list"]);
    assert_eq!(
        (nothing.code, nothing.out.as_str(), nothing.err.as_str()),
        (Some(0), "", "no lock is held\n")
    );
    for (lock, owner) in [("b:1", "ci"), ("a:1", "o\u{202e}ps"), ("a:2", "ci")] {
        acquire(&gateway, lock, owner);
    }
    let listed = on(&gateway, &["list"]);
    let lines: Vec<&str> = listed.out.lines().collect();
    assert!(lines[0].starts_with("LOCK  MODE       EXPIRES IN  FENCING TOKEN "));
    assert_eq!(lines[0].find("OWNER"), lines[2].find("ci"));
    assert!(lines[1].starts_with("a:1   exclusive  59m "), "{listed:?}");
    assert!(lines[1].ends_with(r"  o\u{202e}ps"), "{listed:?}");
    assert!(lines[2].starts_with("a:2 ") && lines[3].starts_with("b:1 "));

    let json = |arguments: &[&str]| {
        let listed = on(&gateway, &[&["list", "--json"], arguments].concat());
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
    let listed = latchgate(&["list"])
        .env("LATCHGATE_URL", &gateway.url)
        .read();
    assert_eq!(
        listed.out,
        "LOCK  MODE  EXPIRES IN  FENCING TOKEN  OWNER\n\
         a     -     never       -              (a client that uses no gateway)\n\
         b     -     never       -              (a client that uses no gateway)\n"
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

#[test]
fn a_break_hits_the_lease_that_was_shown() {
    let gateway = Gateway::start();
    let free = on(&gateway, &["break", "deploy", "--reason", "x", "--yes"]);
    assert_eq!(free.code, Some(107), "{free:?}");

    acquire(&gateway, "deploy", "me@here");
    let fence = fence(&gateway, "deploy");
    let asked = on(&gateway, &["break", "deploy", "--reason", "hangs"]);
    assert_eq!(asked.code, Some(2), "nobody can be asked: {asked:?}");
    assert!(asked.err.contains("is held by me@here"), "{asked:?}");
    let wrong = ["break", "deploy", "--reason", "x", "--fencing-token", "7"];
    assert_eq!(on(&gateway, &wrong).code, Some(108));

    let broken = on(&gateway, &["break", "deploy", "--reason", "hangs", "--yes"]);
    assert_eq!((broken.code, broken.out.as_str()), (Some(0), ""));
    let whom = format!("broke deploy: me@here, fencing token {fence}, ");
    assert!(broken.err.contains(&whom), "{broken:?}");
    gateway.logged("reason=\"hangs\"");
    let gone = [
        "break",
        "deploy",
        "--reason",
        "x",
        "--fencing-token",
        &fence,
    ];
    assert_eq!(on(&gateway, &gone).code, Some(107));

    acquire(&gateway, "deploy", "me again");
    let any = on(
        &gateway,
        &["break", "deploy", "--reason", "x", "--any", "--json"],
    );
    let lock: Value = serde_json::from_str(&any.out).unwrap();
    assert_eq!(lock["holders"][0]["owner"], "me again");
}

#[test]
fn a_break_sends_what_it_saw_and_repeats_itself_only_where_nobody_else_is_hit() {
    let lock =
        r#"{"state":"held","holders":[{"owner":"a","fencing_token":42,"expires_in_ms":9000}]}"#;
    let shown = Reply::Answer(200, lock.to_owned());
    let gone = Reply::problem(409, "not-held", "");
    let gateway = FakeGateway::new([shown, Reply::Lost, gone]);
    let run = |gateway: &FakeGateway, arguments: &[&str]| {
        let arguments = [&["break", "deploy", "--reason", "x"], arguments].concat();
        latchgate(&arguments)
            .env("LATCHGATE_URL", &gateway.url)
            .read()
    };
    let unknown = run(&gateway, &["--yes"]);
    assert_eq!(unknown.code, Some(105), "{unknown:?}");
    let received = gateway.received();
    assert_eq!(received.len(), 3);
    for copy in &received[1..] {
        assert_eq!(copy.body, r#"{"fencing_token":42,"reason":"x"}"#);
    }

    let shown = Reply::Answer(200, lock.to_owned());
    let broken =
        r#"{"name":"deploy","holders":[{"owner":"a","fencing_token":42,"expires_in_ms":9}]}"#;
    let gateway = FakeGateway::new([shown, Reply::Lost, Reply::Answer(200, broken.to_owned())]);
    let any = run(&gateway, &["--any"]);
    assert_eq!(any.code, Some(0), "{any:?}");
    assert!(
        any.err
            .starts_with("broke deploy: a, fencing token 42, with 9ms left"),
        "{any:?}"
    );
    for copy in &gateway.received()[1..] {
        assert_eq!(copy.body, r#"{"fencing_token":42,"reason":"x"}"#);
    }

    let odd = r#"{"state":"held","holders":[{"foreign":true,"expires_in_ms":null}]}"#;
    let odd = Reply::Answer(200, odd.to_owned());
    let unseen = Reply::problem(403, "forbidden", "");
    for nothing_to_tell_it_by in [odd, unseen] {
        let gateway = FakeGateway::new([nothing_to_tell_it_by, Reply::Lost]);
        let unknown = run(&gateway, &["--any"]);
        assert_eq!(unknown.code, Some(105), "{unknown:?}");
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
    let run = |gateway: &FakeGateway, arguments: &[&str]| {
        let arguments = [&["break", "deploy", "--reason", "x"], arguments].concat();
        latchgate(&arguments)
            .env("LATCHGATE_URL", &gateway.url)
            .read()
    };
    let sent = format!(r#"{{"foreign_mark":"{mark}","reason":"x"}}"#);
    for flag in ["--yes", "--any"] {
        let broken = Reply::Answer(200, format!(r#"{{"name":"deploy","holders":[{holder}]}}"#));
        let gateway = FakeGateway::new([shown(), broken]);
        let ran = run(&gateway, &[flag]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            ran.err
                .contains("broke deploy: a client that uses no gateway"),
            "{ran:?}"
        );
        assert_eq!(gateway.received()[1].body, sent);
    }
    // It may have come back meanwhile, and write the same again.
    let gateway = FakeGateway::new([Reply::Lost]);
    let unknown = run(&gateway, &["--foreign-mark", mark]);
    assert_eq!(unknown.code, Some(105), "{unknown:?}");
    let received = gateway.received();
    assert_eq!(received.len(), 1, "a copy could hit the next one");
    assert_eq!(received[0].body, sent);
}

#[test]
fn where_nothing_is_seen_only_any_breaks() {
    let free = Reply::Answer(200, r#"{"state":"free"}"#.to_owned());
    let gateway = FakeGateway::new([free]);
    let run = |gateway: &FakeGateway, flag: &str| {
        latchgate(&["break", "deploy", "--reason", "x", flag])
            .env("LATCHGATE_URL", &gateway.url)
            .read()
    };
    let free = run(&gateway, "--any");
    assert_eq!(free.code, Some(107), "{free:?}");
    assert_eq!(gateway.received().len(), 1);

    let gateway = FakeGateway::new([Reply::problem(403, "forbidden", "")]);
    let unseen = run(&gateway, "--yes");
    assert_eq!(unseen.code, Some(2), "{unseen:?}");
    assert!(unseen.err.contains("--any is needed"), "{unseen:?}");
    assert_eq!(gateway.received().len(), 1);
}

#[test]
fn a_wrong_command_line_breaks_nothing() {
    for arguments in [
        &["break", "a"][..],
        &["break", "--reason", "x"],
        &["break", "a", "--reason", ""],
        &["break", "a", "--reason", "x", "--fencing-token", "0"],
        &[
            "break",
            "a",
            "--reason",
            "x",
            "--fencing-token",
            "1",
            "--any",
        ],
        &["break", "a", "--reason", "x", "--foreign-mark", "theirs"],
        &["list", "--prefix", "a*"],
        &["list", "--owner", ""],
    ] {
        let ran = latchgate(arguments)
            .env("LATCHGATE_URL", "http://127.0.0.1:1")
            .read();
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn a_holder_that_is_asked_first_keeps_the_lock_until_the_grace_is_over() {
    let gateway = Gateway::start();
    acquire(&gateway, "deploy", "ci");
    let fence = fence(&gateway, "deploy");
    let arguments = ["break", "deploy", "--reason", "newer", "--fencing-token"];
    let asked = |grace: &[&str]| on(&gateway, &[&arguments[..], &[&fence], grace].concat());
    let answer = asked(&["--grace", "1h", "--json"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let body: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(body["holders"][0]["release_requested"]["reason"], "newer");
    let inspected = on(&gateway, &["inspect", "deploy"]);
    assert!(
        inspected.out.contains("to be released within 59m "),
        "{inspected:?}"
    );
    let answer = asked(&["--grace", "2h"]);
    assert_eq!(answer.code, Some(106), "{answer:?}");
    assert!(answer.err.contains("--grace is 7200000"), "{answer:?}");
    let answer = asked(&["--grace", "0"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(on(&gateway, &["inspect", "deploy"]).out, "deploy is free\n");
}

#[test]
fn who_is_asked_to_release_a_lock_is_shown_so_wherever_the_lease_is() {
    let gateway = Gateway::start();
    for owner in ["one", "two"] {
        let shared = [
            "acquire", "gpu", "--shared", "--ttl", "1h", "--owner", owner,
        ];
        assert_eq!(on(&gateway, &shared).code, Some(0));
    }
    let ask = [
        "break", "gpu", "--reason", "newer", "--all", "--grace", "1h",
    ];
    assert_eq!(on(&gateway, &ask).code, Some(0));
    for command in [&["list"][..], &["inspect", "gpu"]] {
        let shown = on(&gateway, command);
        for owner in ["one", "two"] {
            let line = shown.out.lines().find(|line| line.contains(owner));
            let asked = "(to be released within 59m ";
            assert!(line.is_some_and(|line| line.contains(asked)), "{shown:?}");
        }
    }
    let shown = on(&gateway, &["inspect", "gpu"]);
    assert!(shown.out.contains("HELD SINCE"), "{shown:?}");
    acquire(&gateway, "alone", "me");
    let shown = on(&gateway, &["inspect", "alone"]);
    assert!(shown.out.contains("  held since     20"), "{shown:?}");
}
