//! `latchgate acquire --wait`.

use super::{
    key_fixture::{File, Made},
    run::start,
};
use crate::support::{
    gateway::Gateway,
    program::{Run, latchgate, program},
};

fn on(gateway: &Gateway, arguments: &[&str]) -> Run {
    latchgate(arguments).env("LATCHGATE_URL", &gateway.url())
}

#[test]
fn acquire_waits_its_turn_and_tells_a_pipe_how_that_goes() {
    let gateway = Gateway::start();
    let token = on(&gateway, &["acquire", "deploy", "--ttl", "5m"])
        .read()
        .out;
    let mut command = program();
    command.args(["acquire", "deploy", "--wait", "5m", "--owner", "next"]);
    let mut waiting = start(&gateway.url(), command);
    waiting.said("latchgate: waiting for deploy: ");
    waiting.said(", position 1 of 1, held by ");
    waiting.said(", expires in ");
    let released = on(&gateway, &["release", "deploy"]).env("LATCHGATE_TOKEN", token.trim_end());
    assert_eq!(released.read().code, Some(0));
    let acquired = waiting.wait();
    assert_eq!(
        (acquired.code, acquired.out.len()),
        (Some(0), 44),
        "{acquired:?}"
    );
    let last = acquired.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("acquired deploy: "), "{acquired:?}");
}

#[test]
fn a_pipe_is_told_when_the_position_and_the_holder_change() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let acquire = |owner: &str| {
        let mut command = program();
        command.args(["acquire", "deploy", "--ttl", "1h", "--wait", "5m"]);
        command.args(["--owner", owner]);
        start(&url, command)
    };
    let first = on(
        &gateway,
        &["acquire", "deploy", "--ttl", "1h", "--owner", "one"],
    );
    let first = first.read();
    assert_eq!(
        (first.code, first.err.lines().count()),
        (Some(0), 1),
        "{first:?}"
    );
    let mut second = acquire("two");
    second.said(", position 1 of 1, held by one, expires in 59m 5");
    let third = acquire("three");
    third.said(", position 2 of 2, held by one");
    let released =
        on(&gateway, &["release", "deploy"]).env("LATCHGATE_TOKEN", first.out.trim_end());
    assert_eq!(released.read().code, Some(0));
    assert_eq!(second.wait().code, Some(0));
    third.said(", position 1 of 1, held by two");
}

#[test]
fn a_pipe_is_told_that_the_key_may_not_view_the_lock() {
    let key = Made::new("ci", &["--acquire", "*"]);
    let keys = File::new(&key.toml);
    let gateway = keys.gateway();
    let acquire = ["acquire", "deploy"];
    let held = on(&gateway, &acquire).env("LATCHGATE_KEY", &key.key).read();
    assert_eq!(held.code, Some(0), "{held:?}");
    let mut command = program();
    command.args(["acquire", "deploy", "--wait", "5m"]);
    command.env("LATCHGATE_KEY", &key.key);
    let waiting = start(&gateway.url(), command);
    waiting.said("waiting for deploy: 1s, the key may not view the lock");
}

#[test]
fn a_wait_that_ran_out_is_101() {
    let gateway = Gateway::start();
    on(&gateway, &["acquire", "deploy"]).read();
    let waited = on(&gateway, &["acquire", "deploy", "--wait", "300ms"]).read();
    assert_eq!(
        (waited.code, waited.out.as_str()),
        (Some(101), ""),
        "{waited:?}"
    );
    let json = ["acquire", "deploy", "--wait", "300ms", "--json"];
    assert!(
        on(&gateway, &json)
            .read()
            .out
            .contains(r#""code":"locked""#)
    );
}
