//! Who is given the trace that a command is part of.

use crate::support::{
    fake_gateway::{FakeGateway, Reply},
    gateway::Gateway,
    program::latchgate,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_command_sends_the_trace_of_its_environment() {
    for (parent, state, sent) in [
        (PARENT, "a=1", Some(PARENT)),
        (PARENT, "", Some(PARENT)),
        ("nonsense", "a=1", None),
        ("", "a=1", None),
    ] {
        let gateway = FakeGateway::new([Reply::problem(404, "not-found", "")]);
        latchgate(&["inspect", "a", "--url", &gateway.url])
            .env("TRACEPARENT", parent)
            .env("TRACESTATE", state)
            .read();
        let received = &gateway.received()[0];
        assert_eq!(received.header("traceparent"), sent, "{parent}");
        let state = Some(state).filter(|state| sent.is_some() && !state.is_empty());
        assert_eq!(received.header("tracestate"), state, "{parent}");
    }
}

#[test]
fn run_gives_it_to_its_command() {
    let gateway = Gateway::start();
    let script = "echo $TRACEPARENT $TRACESTATE";
    let ran = latchgate(&[
        "run",
        "deploy",
        "--url",
        &gateway.url(),
        "--",
        "sh",
        "-c",
        script,
    ])
    .env("TRACEPARENT", PARENT)
    .env("TRACESTATE", "a=1")
    .read();
    assert_eq!(ran.out, format!("{PARENT} a=1\n"), "{ran:?}");
}
