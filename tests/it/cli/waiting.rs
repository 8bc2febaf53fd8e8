//! `latchgate acquire --wait`.

use std::thread;

use crate::support::{
    gateway::Gateway,
    program::{Run, latchgate},
};

fn on(gateway: &Gateway, arguments: &[&str]) -> Run {
    latchgate(arguments).env("LATCHGATE_URL", &gateway.url())
}

#[test]
fn acquire_waits_its_turn_and_tells_a_pipe_nothing_of_it() {
    let gateway = Gateway::start();
    let token = on(&gateway, &["acquire", "deploy"]).read().out;
    let waiting = on(
        &gateway,
        &["acquire", "deploy", "--wait", "30s", "--owner", "next"],
    );
    let waiting = thread::spawn(move || waiting.read());
    while !on(&gateway, &["inspect", "deploy"])
        .read()
        .out
        .contains("1 waiting\n")
    {
        assert!(!waiting.is_finished(), "{:?}", waiting.join());
    }
    let released = on(&gateway, &["release", "deploy"]).env("LATCHGATE_TOKEN", token.trim_end());
    assert_eq!(released.read().code, Some(0));
    let acquired = waiting.join().unwrap();
    assert_eq!(
        (acquired.code, acquired.out.len()),
        (Some(0), 44),
        "{acquired:?}"
    );
    assert!(
        acquired.err.starts_with("acquired deploy: "),
        "{acquired:?}"
    );
    assert_eq!(acquired.err.lines().count(), 1, "{acquired:?}");
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
