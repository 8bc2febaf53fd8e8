//! Shared locks from end to end, on the embedded store.

use serde_json::Value;

use super::run::{inspect, run_sh, until, waiters};
use crate::support::{
    gateway::Gateway,
    program::{Ran, latchgate},
};

fn on(gateway: &Gateway, arguments: &[&str]) -> Ran {
    latchgate(arguments)
        .env("LATCHGATE_URL", &gateway.url())
        .read()
}

fn lock(gateway: &Gateway, name: &str) -> Value {
    let inspected = on(gateway, &["inspect", name, "--json"]);
    serde_json::from_str(&inspected.out).unwrap()
}

#[test]
fn at_most_so_many_run_at_once_and_each_in_a_slot_of_its_own() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let script = r#"echo "slot $LATCHGATE_SLOT"; exec sleep 60"#;
    let limit = ["gpu", "--limit", "2"];
    let first = run_sh(&url, &limit, script);
    first.printed("slot 0");
    let second = run_sh(&url, &limit, script);
    second.printed("slot 1");
    let refused = on(&gateway, &["acquire", "gpu", "--limit", "2"]);
    assert_eq!(refused.code, Some(100), "{refused:?}");
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
    assert_eq!(on(&gateway, &one).code, Some(0));
    third.printed("slot 0");
    assert_eq!(lock(&gateway, "gpu")["holder_count"], 2);
    let all = on(&gateway, &["break", "gpu", "--reason", "x", "--all"]);
    assert_eq!(all.code, Some(0), "{all:?}");
    assert_eq!(all.err.lines().count(), 2, "{all:?}");
    assert_eq!(inspect(&url, "gpu"), "gpu is free\n");
}

#[test]
fn readers_are_together_and_nobody_passes_a_writer() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let reader = |owner: &str| {
        let ran = on(
            &gateway,
            &[
                "acquire", "book", "--shared", "--ttl", "1h", "--owner", owner,
            ],
        );
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out.trim_end().to_owned()
    };
    let tokens = [reader("one"), reader("two")];
    let shown = inspect(&url, "book");
    assert!(shown.starts_with("book is shared by 2\n"), "{shown}");
    let ambiguous = on(&gateway, &["break", "book", "--reason", "x", "--any"]);
    assert_eq!(ambiguous.code, Some(2), "{ambiguous:?}");
    let writer = run_sh(&url, &["book"], "echo writes; exec sleep 60");
    until("the writer waits", || waiters(&url, "book") == 1);
    let late = on(&gateway, &["acquire", "book", "--shared"]);
    assert_eq!(late.code, Some(100), "the writer comes first: {late:?}");
    for token in tokens {
        let released = latchgate(&["release", "book"])
            .env("LATCHGATE_URL", &url)
            .env("LATCHGATE_TOKEN", &token)
            .read();
        assert_eq!(released.code, Some(0), "{released:?}");
    }
    writer.printed("writes");
    assert_eq!(lock(&gateway, "book")["holders"][0]["mode"], "exclusive");
}
