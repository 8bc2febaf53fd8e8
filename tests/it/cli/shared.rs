//! Shared locks on the command line: requests and output with a fake gateway, and real commands on the embedded store.

use crate::{cli::prelude::*, support::words};

const TOKEN: &str = "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU";

/// Runs a command with the variables of another lease in its environment.
fn on(gateway: &FakeGateway, arguments: &[&str]) -> Ran {
    gateway
        .latchgate(arguments)
        .env("LATCHGATE_SLOT", "77")
        .env("LATCHGATE_SLOTS", r#"{"db":77}"#)
        .read()
}

fn lease(mode: &str, slot: Option<u16>) -> Reply {
    let lease = json!({
        "name": "gpu", "token": TOKEN, "fencing_token": 42, "mode": mode, "slot": slot,
        "ttl_ms": 600_000, "expires_in_ms": 600_000, "renew_after_ms": 200_000,
    });
    Reply::Answer(201, lease.to_string())
}

fn holder(fence: u64, slot: u16) -> Value {
    json!({
        "owner": "ci", "fencing_token": fence, "mode": "shared", "slot": slot, "expires_in_ms": 9_000,
    })
}

/// The answer of an inspection with these holders, of `count` in all.
fn shown(holders: &[Value], count: u64) -> Reply {
    let lock = json!({"name": "gpu", "state": "held", "holders": holders, "holder_count": count});
    Reply::Answer(200, lock.to_string())
}

#[test]
fn the_mode_and_the_limit_are_sent_and_the_slot_is_told() {
    for (arguments, sent, slot) in [
        (&[][..], None, None),
        (&["--shared"], Some((json!("shared"), json!(null))), None),
        (
            &["--limit", "3"],
            Some((json!("shared"), json!(3))),
            Some(2),
        ),
        (
            &["--shared", "--limit", "9999"],
            Some((json!("shared"), json!(9_999))),
            Some(2),
        ),
    ] {
        let mode = sent.as_ref().map_or("exclusive", |_| "shared");
        let gateway = FakeGateway::new([lease(mode, slot)]);
        let ran = on(&gateway, &[&["acquire", "gpu"], arguments].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.out, format!("{TOKEN}\n"));
        assert_eq!(ran.err.contains(", slot 2,"), slot.is_some(), "{ran:?}");
        let body: Value = serde_json::from_str(&gateway.received()[0].body).unwrap();
        let (mode, limit) = sent.unwrap_or_default();
        assert_eq!((&body["mode"], &body["limit"]), (&mode, &limit));
        let fields = body.as_object().unwrap();
        assert!(!fields.values().any(Value::is_null), "{body}");
    }
}

#[test]
fn what_is_no_limit_is_refused_before_anything_is_sent() {
    for (limit, why) in [
        ("0", "is 0; a limit is 1 to 9999"),
        ("10000", "is 10000; a limit is 1 to 9999"),
        ("many", "expected a whole number"),
        ("-1", "expected a whole number"),
    ] {
        let gateway = FakeGateway::new([lease("shared", None)]);
        let limit = format!("--limit={limit}");
        for arguments in [
            &["acquire", "gpu", &limit][..],
            &["run", "gpu", &limit, "--", "true"],
        ] {
            let ran = on(&gateway, arguments).ends(2);
            ran.says(why);
        }
        assert!(gateway.received().is_empty());
    }
}

#[test]
fn a_command_finds_its_slot_and_never_that_of_somebody_else() {
    for (arguments, mode, slot, found) in [
        (&["--limit", "8"][..], "shared", Some(5), "5\n"),
        (&["--shared"], "shared", None, "none\n"),
        (&[], "exclusive", None, "none\n"),
    ] {
        let released = Reply::Answer(204, String::new());
        let gateway = FakeGateway::new([lease(mode, slot), released]);
        let command = ["--", "sh", "-c", r#"echo "${LATCHGATE_SLOT-none}""#];
        let run = [&["run", "gpu", "--wait", "0"], arguments, &command].concat();
        let ran = on(&gateway, &run);
        ran.gives(0, found);
    }
}

#[test]
fn a_store_that_cannot_share_is_a_refusal() {
    let more = r#","detail":"A quorum cannot share a lock.""#;
    let gateway = FakeGateway::new([Reply::problem(422, "unsupported-by-store", more)]);
    let ran = on(&gateway, &["acquire", "gpu", "--shared"]).ends(106);
    ran.says("A quorum cannot share a lock");
    assert_eq!(gateway.received().len(), 1);
}

#[test]
fn inspect_and_list_show_all_who_share_a_lock() {
    let holders = [holder(42, 0), holder(45, 1)];
    let gateway = FakeGateway::new([shown(&holders, 102)]);
    let ran = on(&gateway, &["inspect", "gpu"]);
    assert_eq!(
        ran.out,
        "gpu is shared by 102\n  \
           FENCING TOKEN  SLOT  EXPIRES IN  HELD SINCE  OWNER\n  \
           42             0     9s          -           ci\n  \
           45             1     9s          -           ci\n  \
           and 100 more\n"
    );
    let lock = json!({"name": "gpu", "holders": holders, "holder_count": 102});
    let page = json!({"locks": [lock], "next_cursor": null}).to_string();
    let gateway = FakeGateway::new([Reply::Answer(200, page)]);
    let ran = on(&gateway, &["list"]);
    assert_eq!(
        ran.out,
        "LOCK  MODE    HELD FOR  EXPIRES IN  WAITERS  FENCING TOKEN  OWNER\n\
         gpu   slot 0  -         9s          -        42             ci\n\
         gpu   slot 1  -         9s          -        45             ci\n\
         gpu                                                         (and 100 more)\n"
    );
    let gateway = FakeGateway::new([Reply::Answer(200, lock.to_string())]);
    let ran = on(&gateway, &["break", "gpu", "--reason", "x", "--all"]);
    assert!(ran.err.ends_with("broke gpu: and 100 more\n"), "{ran:?}");
}

#[test]
fn of_those_who_share_a_lock_a_break_wants_to_know_which() {
    let holders = [holder(42, 0), holder(45, 1)];
    for arguments in [&[][..], &["--yes"], &["--any"]] {
        let gateway = FakeGateway::new([shown(&holders, 2)]);
        let arguments = [&["break", "gpu", "--reason", "x"], arguments].concat();
        let ran = on(&gateway, &arguments).ends(2);
        for told in ["--all", "--fencing-token", "ci, fencing token 45, slot 1"] {
            ran.says(told);
        }
        assert_eq!(gateway.received().len(), 1, "nothing was to be broken");
    }
    // `--any` breaks the only lease, which it names by its fencing token.
    let only = [holder(42, 0)];
    let gateway = FakeGateway::new([shown(&only, 1), shown(&only, 1)]);
    let ran = on(&gateway, &["break", "gpu", "--reason", "x", "--any"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let sent = r#"{"fencing_token":42,"reason":"x"}"#;
    assert_eq!(gateway.received()[1].body, sent);
}

#[test]
fn a_break_of_all_is_sent_once_and_not_together_with_one() {
    let gateway = FakeGateway::new([Reply::Lost]);
    let ran = on(&gateway, &["break", "gpu", "--reason", "x", "--all"]);
    assert_eq!(ran.code, Some(105), "{ran:?}");
    let received = gateway.received();
    assert_eq!(received.len(), 1, "a copy would hit those who have come");
    assert_eq!(received[0].body, r#"{"all":true,"reason":"x"}"#);
    for other in ["--any", "--fencing-token=1", "--foreign-mark=x"] {
        assert_eq!(
            on(&gateway, &["break", "gpu", "--reason", "x", "--all", other]).code,
            Some(2),
            "{other}"
        );
    }
}

/// The answer to a group request for two locks with these slots. The second slot is the larger one.
fn group(mode: &str, slots: [Option<u16>; 2]) -> Reply {
    let leases = [("db", slots[0]), ("gpus", slots[1])].map(|(name, slot)| {
        json!({
            "name": name, "fencing_token": 42, "mode": mode, "slot": slot, "expires_in_ms": 600_000,
            "hold_expires_in_ms": null,
        })
    });
    let group = json!({
        "leases": leases, "token": TOKEN, "ttl_ms": 600_000, "expires_in_ms": 600_000,
        "renew_after_ms": 200_000,
    });
    Reply::Answer(201, group.to_string())
}

#[test]
fn each_of_several_locks_has_a_slot_of_its_own() {
    let gateway = FakeGateway::new([group("shared", [Some(0), Some(5)])]);
    let ran = on(&gateway, &["acquire", "db", "gpus", "--limit", "8"]);
    let lines: Vec<_> = ran.err.lines().collect();
    assert!(
        lines[0].contains("acquired db: fencing token 42, slot 0,"),
        "{ran:?}"
    );
    assert!(
        lines[1].contains("acquired gpus: fencing token 42, slot 5,"),
        "{ran:?}"
    );
    let show = r#"echo "${LATCHGATE_SLOT-none} ${LATCHGATE_SLOTS-none}""#;
    for (arguments, mode, slots, found) in [
        (
            &["--limit", "8"][..],
            "shared",
            [Some(0), Some(5)],
            "0 {\"db\":0,\"gpus\":5}\n",
        ),
        (&["--shared"], "shared", [None, None], "none none\n"),
        (&[], "exclusive", [None, None], "none none\n"),
    ] {
        let results = r#"{"results":[{"name":"db","code":null},{"name":"gpus","code":null}]}"#;
        let released = Reply::Answer(200, results.to_owned());
        let gateway = FakeGateway::new([group(mode, slots), released]);
        let command = ["--", "sh", "-c", show];
        let run = [&["run", "db", "gpus", "--wait", "0"], arguments, &command].concat();
        let ran = on(&gateway, &run);
        ran.gives(0, found);
    }
}

#[test]
fn what_stands_behind_a_name_is_the_mode_of_this_lock() {
    let many = group("shared", [Some(0), Some(5)]);
    for (locks, answer, path, sent) in [
        (
            "db gpus=8",
            &many,
            "/locks",
            json!([["db", {"name": "gpus", "mode": "shared", "limit": 8}], null, null]),
        ),
        (
            "gpus=8 db=shared",
            &many,
            "/locks",
            json!([[{"name": "db", "mode": "shared"}, {"name": "gpus", "mode": "shared", "limit": 8}], null, null]),
        ),
        // If all locks have one mode, the request is the same as that of an older program.
        (
            "gpus=8 db=8",
            &many,
            "/locks",
            json!([["db", "gpus"], "shared", 8]),
        ),
        (
            "db gpus",
            &many,
            "/locks",
            json!([["db", "gpus"], null, null]),
        ),
        (
            "gpu=8",
            &lease("shared", Some(2)),
            "/locks/gpu",
            json!([null, "shared", 8]),
        ),
        (
            "gpu=shared",
            &lease("shared", None),
            "/locks/gpu",
            json!([null, "shared", null]),
        ),
    ] {
        let gateway = FakeGateway::new([answer.clone()]);
        let arguments: Vec<_> = ["acquire"].into_iter().chain(words(locks)).collect();
        on(&gateway, &arguments).ends(0);
        let received = gateway.received();
        assert!(
            received[0].line.contains(path),
            "{locks}: {:?}",
            received[0]
        );
        let body: Value = serde_json::from_str(&received[0].body).unwrap();
        assert_eq!(
            json!([body["names"], body["mode"], body["limit"]]),
            sent,
            "{locks}"
        );
    }
}

#[test]
fn what_is_no_mode_of_a_lock_is_refused_before_anything_is_sent() {
    for (locks, why) in [
        (
            "db=0",
            "behind the = stands shared, exclusive or a limit, and \"0\": is 0; a limit is 1 to 9999",
        ),
        ("db=10000", "is 10000; a limit is 1 to 9999"),
        (
            "db=",
            "behind the = stands shared, exclusive or a limit, and \"\": expected a whole number",
        ),
        ("db=exclusively", "expected a whole number"),
        ("db=2=3", "expected a whole number"),
        ("=2", "is empty"),
        ("d,b=2", "has ',' in it"),
        ("db=2 db", "has db more than once"),
        ("db gpus=2 --shared", "--shared is for all locks"),
        ("db gpus=2 --limit 2", "--limit is for all locks"),
        ("gpus=2 --limit 2", "--limit is for all locks"),
        ("db gpus --latest", "--latest is for one lock"),
    ] {
        let gateway = FakeGateway::new([lease("shared", None)]);
        for command in [&["acquire"][..], &["run"]] {
            let more: &[&str] = if command == ["run"] {
                &["--", "true"]
            } else {
                &[]
            };
            let arguments = command.iter().copied().chain(words(locks));
            let arguments: Vec<_> = arguments.chain(more.iter().copied()).collect();
            on(&gateway, &arguments).ends(2).says(why);
        }
        // The token of a lease is that of its locks, in whatever mode.
        on(&gateway, &["release", "db=2"])
            .ends(2)
            .says("has '=' in it");
        assert!(gateway.received().is_empty());
    }
}

#[test]
fn a_command_finds_the_slots_of_the_locks_that_have_one() {
    let leases = json!([
        {"name": "db", "fencing_token": 42, "mode": "exclusive", "slot": null, "expires_in_ms": 600_000},
        {"name": "gpus", "fencing_token": 43, "mode": "shared", "slot": 5, "expires_in_ms": 600_000},
        {"name": "qa", "fencing_token": 44, "mode": "shared", "slot": null, "expires_in_ms": 600_000},
    ]);
    let mixed = json!({
        "leases": leases, "token": TOKEN, "ttl_ms": 600_000, "expires_in_ms": 600_000,
        "renew_after_ms": 200_000,
    });
    let results = json!({"results": [
        {"name": "db", "code": null}, {"name": "gpus", "code": null}, {"name": "qa", "code": null},
    ]});
    let [mixed, released] = [(201, mixed), (200, results)]
        .map(|(status, body)| Reply::Answer(status, body.to_string()));
    let gateway = FakeGateway::new([mixed, released]);
    let show = r#"echo "${LATCHGATE_SLOT-none} ${LATCHGATE_SLOTS-none}""#;
    let run = [
        "run",
        "db",
        "gpus=8",
        "qa=shared",
        "--wait",
        "0",
        "--",
        "sh",
        "-c",
        show,
    ];
    on(&gateway, &run).gives(0, "none {\"gpus\":5}\n");
}

fn lock(gateway: &Gateway, name: &str) -> Value {
    let inspected = gateway.typed(&format!("inspect {name} --json")).read();
    inspected.json()
}

#[test]
fn at_most_so_many_run_at_once_and_each_in_a_slot_of_its_own() {
    let (gateway, url) = Gateway::start_and_url();
    let script = r#"echo "slot $LATCHGATE_SLOT"; exec sleep 60"#;
    let limit = ["gpu", "--limit", "2"];
    let first = run_sh(&url, &limit, script);
    first.printed("slot 0");
    let second = run_sh(&url, &limit, script);
    second.printed("slot 1");
    gateway.typed("acquire gpu --limit 2").ends(100);
    let third = run_sh(&url, &limit, script);
    until("the third waits", || waiters(&url, "gpu") == 1);
    let fence = lock(&gateway, "gpu")["holders"]
        .as_array()
        .unwrap()
        .iter()
        .find(|holder| holder["slot"] == 0)
        .map(|holder| holder["fencing_token"].to_string())
        .unwrap();
    let one = ["break", "gpu", "--reason", "x", "--fencing-token", &fence];
    gateway.latchgate(&one).ends(0);
    third.printed("slot 0");
    assert_eq!(lock(&gateway, "gpu")["holder_count"], 2);
    let all = gateway.typed("break gpu --reason x --all").ends(0);
    assert_eq!(all.err.lines().count(), 2, "{all:?}");
    assert_eq!(inspect(&url, "gpu"), "gpu is free\n");
}

#[test]
fn readers_are_together_and_nobody_passes_a_writer() {
    let (gateway, url) = Gateway::start_and_url();
    let reader = |owner: &str| {
        let ran = gateway
            .typed(&format!("acquire book --shared --ttl 1h --owner {owner}"))
            .ends(0);
        ran.out.trim_end().to_owned()
    };
    let tokens = [reader("one"), reader("two")];
    let shown = inspect(&url, "book");
    assert!(shown.starts_with("book is shared by 2\n"), "{shown}");
    gateway.typed("break book --reason x --any").ends(2);
    let writer = run_sh(&url, &["book"], "echo writes; exec sleep 60");
    until("the writer waits", || waiters(&url, "book") == 1);
    gateway.typed("acquire book --shared").ends(100);
    for token in tokens {
        typed("release book")
            .env("LATCHGATE_URL", &url)
            .token(&token)
            .ends(0);
    }
    writer.printed("writes");
    assert_eq!(lock(&gateway, "book")["holders"][0]["mode"], "exclusive");
}

#[test]
fn a_holder_is_not_blamed_where_an_earlier_waiter_is_in_the_way() {
    let (gateway, url) = Gateway::start_and_url();
    for _ in 0..3 {
        let acquire = "acquire pool --limit 10 --owner one --ttl 1h";
        gateway.typed(acquire).ends(0);
    }
    let _waiter = run_sh(&url, &["pool", "--limit", "2"], "true");
    until("it waits", || waiters(&url, "pool") == 1);
    let told = ["run", "acquire"].map(|command| {
        let dashes = if command == "run" { " -- true" } else { "" };
        let wait = format!("{command} pool --limit 10 --wait 0{dashes}");
        gateway.typed(&wait).ends(100).err
    });
    for text in told {
        let expected = "latchgate: pool: the lock is held: it has room for this request, but an earlier \
                        waiter comes first\n";
        assert_eq!(text, expected);
    }
    // Without room, the holder is named.
    let full = gateway.typed("acquire pool --limit 3").ends(100);
    full.says("the lock is held by one for another 59m");
}

#[test]
fn a_check_ends_with_what_the_gateway_found() {
    for (reply, code) in [
        (Reply::Answer(204, String::new()), 0),
        (Reply::problem(403, "stale-fencing-token", ""), 102),
        (Reply::problem(403, "ends-too-soon", ""), 109),
        (Reply::problem(503, "store-unavailable", ""), 104),
    ] {
        let gateway = FakeGateway::new([reply.clone(), reply.clone(), reply]);
        on(
            &gateway,
            &["check", "acme/web", "--fence", "42", "--for", "30s"],
        )
        .ends(code);
        let asked = &gateway.received()[0];
        assert_eq!(
            asked.line,
            "GET /locks/acme%2Fweb/check?for_ms=30000 HTTP/1.1"
        );
        assert_eq!(asked.header("fencing-token"), Some("42"));
    }
}
