//! Orders on the command line: requests and output with a fake gateway, and real commands on Redis.

use crate::{cli::prelude::*, support::words};

const TOKEN: &str = "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU";

fn refused() -> Reply {
    Reply::problem(403, "forbidden", "")
}

/// The body of the first request that a command sends.
fn sent(line: &str) -> Value {
    let gateway = FakeGateway::new([refused()]);
    gateway.typed(line).ends(106);
    serde_json::from_str(&gateway.received()[0].body).unwrap()
}

#[test]
fn an_order_is_for_the_locks_that_are_held_alone_or_for_one_of_them() {
    for (line, names, order) in [
        ("deploy --order 7", json!(null), json!(7)),
        ("deploy --order deploy=7", json!(null), json!(7)),
        ("deploy --order 9 --order deploy=7", json!(null), json!(7)),
        (
            "deploy:web freeze=shared --order 7",
            json!(["deploy:web", {"name": "freeze", "mode": "shared"}]),
            json!(7),
        ),
        (
            "a b freeze=shared --order b=7",
            json!(["a", {"name": "b", "order": 7}, {"name": "freeze", "mode": "shared"}]),
            json!(null),
        ),
        (
            "a b --order a=7 --order b=0 --order 9",
            json!([{"name": "a", "order": 7}, {"name": "b", "order": 0}]),
            json!(9),
        ),
    ] {
        for line in [format!("acquire {line}"), format!("run {line} -- true")] {
            let body = sent(&line);
            assert_eq!((&body["names"], &body["order"]), (&names, &order), "{line}");
            assert_eq!(body["rollback"], Value::Null);
        }
    }
    let body = sent("acquire deploy --order 7 --rollback 'the new one fails'");
    assert_eq!(body["rollback"], "the new one fails");
}

#[test]
fn what_is_no_order_is_refused_before_anything_is_sent() {
    for (line, why) in [
        ("a --order x", "expected a whole number"),
        ("a --order -1", "unexpected argument"),
        ("a --order a=", "expected a whole number"),
        (
            "a --order 9007199254740992",
            "is 9007199254740992; an order is 0 to 9007199254740991",
        ),
        ("a --order =1", "is empty"),
        (
            "a --order 1 --order 2",
            "--order is there twice for one lock",
        ),
        ("a --order a=1 --order a=1", "--order is there twice"),
        (
            "a b --order c=1",
            "--order names c, which is none of the locks of the command",
        ),
        ("a --rollback why", "--order"),
        ("a --order 1 --rollback ''", "is missing or empty"),
    ] {
        let gateway = FakeGateway::new([refused()]);
        gateway.typed(&format!("acquire {line}")).ends(2).says(why);
        gateway
            .typed(&format!("run {line} -- true"))
            .ends(2)
            .says(why);
        assert!(gateway.received().is_empty(), "{line}");
    }
}

#[test]
fn an_outdated_command_says_who_was_newer_and_is_not_repeated() {
    let grant = json!({"at": "2026-11-28T09:00:00.000Z", "by": null, "owner": "run\u{202e} 41902"});
    let more = format!(r#","order":41873,"granted_order":41902,"order_granted":{grant}"#);
    let outdated = Reply::problem(409, "outdated-order", &more);
    let text = "latchgate: deploy: outdated: 41902 was granted at 2026-11-28T09:00:00.000Z to run\\u{202e} 41902\n";
    for line in [
        "acquire deploy --order 41873 --wait 1m",
        "run deploy --order 41873 -- true",
    ] {
        let gateway = FakeGateway::new([outdated.clone()]);
        assert_eq!(gateway.typed(line).ends(114).err, text);
        assert_eq!(gateway.received().len(), 1);
    }
    let gateway = FakeGateway::new([outdated]);
    let json = gateway
        .typed("acquire deploy --order 41873 --json")
        .ends(114);
    assert_eq!(json.json()["granted_order"], 41_902);
}

#[test]
fn a_refusal_of_the_gateway_names_the_options() {
    let more = r#","detail":"`order` is for a lock that is held alone."#;
    let gateway = FakeGateway::new([Reply::problem(400, "invalid-request", &format!("{more}\""))]);
    let ran = gateway.typed("acquire pool=3 --order 7").ends(106);
    ran.says("--order is for a lock that is held alone");
}

#[test]
fn the_order_of_a_lock_is_shown_and_set() {
    let lock = |order: Value| {
        let lock = json!({"name": "deploy", "state": "free", "granted_order": order});
        Reply::Answer(200, lock.to_string())
    };
    let set = || {
        Reply::Answer(
            200,
            json!({"name": "deploy", "granted_order": 5}).to_string(),
        )
    };
    for (change, body) in [
        (
            "--set 5",
            json!({"order": 5, "if_order": 7, "reason": "ms"}),
        ),
        ("--forget", json!({"if_order": 7, "reason": "ms"})),
    ] {
        let gateway = FakeGateway::new([lock(json!(7)), set()]);
        let ran = gateway.typed(&format!("order deploy {change} --reason ms"));
        let ran = ran.ends(0);
        let now = if change == "--forget" { "none" } else { "5" };
        assert_eq!(
            ran.err,
            format!("the order of deploy is {now} now, and was 7\n")
        );
        let [inspected, changed] = &gateway.received()[..] else {
            panic!("two requests");
        };
        assert_eq!(inspected.line, "GET /locks/deploy HTTP/1.1");
        assert_eq!(changed.line, "PUT /locks/deploy/granted-order HTTP/1.1");
        assert_eq!(serde_json::from_str::<Value>(&changed.body).unwrap(), body);
    }
    for (order, text) in [
        (json!(7), "deploy remembers the order 7\n"),
        (json!(null), "deploy remembers no order\n"),
    ] {
        FakeGateway::new([lock(order)])
            .typed("order deploy")
            .read()
            .gives(0, text);
    }
}

#[test]
fn an_order_that_has_changed_meanwhile_is_not_set() {
    for (more, now) in [(r#","granted_order":8"#, "8"), ("", "none")] {
        let lock = r#"{"name":"deploy","state":"free","granted_order":7}"#.to_owned();
        let changed = Reply::problem(409, "order-changed", more);
        let gateway = FakeGateway::new([Reply::Answer(200, lock), changed]);
        let ran = gateway.typed("order deploy --set 5 --reason ms").ends(106);
        let text = format!(
            "latchgate: deploy: nothing was changed: the order was 7 and is {now} now; look again\n"
        );
        assert_eq!(ran.err, text);
        assert_eq!(gateway.received().len(), 2);
    }
}

#[test]
fn a_wrong_order_command_asks_nothing() {
    for line in [
        "deploy --set 5",
        "deploy --forget",
        "deploy --reason x",
        "deploy --set 5 --forget --reason x",
        "deploy --set x --reason x",
        "deploy --set 9007199254740992 --reason x",
        "deploy --set 5 --reason ''",
    ] {
        let gateway = FakeGateway::new([refused()]);
        gateway.typed(&format!("order {line}")).ends(2);
        assert!(gateway.received().is_empty(), "{line}");
    }
}

#[test]
fn a_wait_that_continues_says_how_long_it_has_taken() {
    let lease = json!({
        "name": "deploy", "token": TOKEN, "fencing_token": 42, "mode": "exclusive", "ttl_ms": 600_000,
        "expires_in_ms": 600_000, "renew_after_ms": 200_000,
    });
    let lease = || Reply::Answer(201, lease.to_string());
    let released = Reply::Answer(204, String::new());
    for (latest, known) in [("--latest", true), ("", false)] {
        let busy = || Reply::problem(503, "draining", "");
        let gateway = FakeGateway::new([busy(), busy(), lease(), released.clone()]);
        let line = format!("run deploy {latest} --wait 1m -- true");
        gateway.latchgate(&words(&line).collect::<Vec<_>>()).ends(0);
        let received = gateway.received();
        let acquires = received.iter().filter(|it| it.line.starts_with("POST"));
        let told: Vec<_> = acquires
            .map(|it| serde_json::from_str::<Value>(&it.body).unwrap()["waiting_since_ms"].clone())
            .collect();
        let (first, more) = told.split_first().unwrap();
        assert!(first.is_null() && !more.is_empty(), "{told:?}");
        assert!(more.iter().all(|it| it.is_u64() == known), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deploy_never_goes_back_unless_somebody_says_why() {
    let redis = RedisServer::start().await;
    let gateway = Gateway::start_with(Setup::on(&redis));
    let url = gateway.url();
    let deploy = |more: &str| {
        let line =
            format!("run deploy:web freeze=shared {more} --owner ci -- sh -c 'echo deployed'");
        gateway.typed(&line).read()
    };
    deploy("--order 41902").gives(0, "deployed\n");
    let outdated = deploy("--order 41873");
    assert_eq!(
        (outdated.code, &*outdated.out),
        (Some(114), ""),
        "{outdated:?}"
    );
    outdated.says("latchgate: deploy:web: outdated: 41902 was granted at ");
    outdated.says(" to ci\n");
    deploy("--order 41902").gives(0, "deployed\n");

    // A waiter is told when newer work is granted.
    let token = gateway.typed("acquire deploy:web --ttl 1m").ends(0).out;
    let newer = run_sh(&url, &["deploy:web", "--order", "41904"], "echo newer");
    until("it waits", || waiters(&url, "deploy:web") == 1);
    let older = thread::spawn({
        let older = gateway.typed("run deploy:web --order 41903 -- true");
        move || older.read()
    });
    until("both wait", || waiters(&url, "deploy:web") == 2);
    typed("release deploy:web")
        .env("LATCHGATE_URL", &url)
        .token(token.trim_end())
        .ends(0);
    newer.printed("newer");
    let older = older.join().unwrap();
    assert_eq!(older.code, Some(114), "{older:?}");
    older.says("deploy:web: outdated: 41904 was granted at ");
    until("it is free", || {
        inspect(&url, "deploy:web").starts_with("deploy:web is free\n")
    });

    let hold = "acquire deploy:web --order 41873 --rollback 'the new one fails' --ttl 1m";
    gateway.typed(hold).ends(0);
    let shown = inspect(&url, "deploy:web");
    assert_has(
        &shown,
        "\n  order          41873\n  rollback       the new one fails\n",
    );
    assert_has(&shown, "\n  granted order  41904, at ");
    let history = gateway.typed("history deploy:web").ends(0).out;
    assert_has(
        &history,
        ", rolled back to order 41873: the new one fails\n",
    );
    let remembered = gateway.typed("order deploy:web").ends(0).out;
    assert_has(
        &remembered,
        "deploy:web was granted for the order 41904 at ",
    );

    let set = gateway.typed("order deploy:web --set 5 --reason 'runs began again'");
    let set = set.ends(0).err;
    assert_eq!(set, "the order of deploy:web is 5 now, and was 41904\n");
    assert_eq!(
        gateway.typed("order deploy:web").read().out,
        "deploy:web remembers the order 5\n"
    );
    gateway
        .typed("order deploy:web --forget --reason x")
        .ends(0);
    assert_eq!(
        gateway.typed("order deploy:web").read().out,
        "deploy:web remembers no order\n"
    );
}
