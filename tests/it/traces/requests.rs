//! The spans of a request.

use std::{fmt::Write as _, thread, time::Duration};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};

use super::collector::{Collector, attribute};
use crate::support::{
    RedisServer,
    gateway::Gateway,
    program::{Ran, latchgate},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn on(gateway: &Gateway, arguments: &[&str]) -> Ran {
    latchgate(arguments)
        .env("LATCHGATE_URL", &gateway.url())
        .env("TRACEPARENT", PARENT)
        .env("TRACESTATE", "vendor=opaque")
        .read()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

fn says(span: &Span, name: &str) -> String {
    let said = attribute(&span.attributes, name);
    said.unwrap_or_else(|| panic!("{name}: {span:#?}"))
}

#[test]
fn a_request_is_a_server_span_of_its_callers_trace_and_the_store_is_a_part_of_it() {
    let collector = Collector::start();
    let gateway = collector.gateway();
    on(&gateway, &["acquire", "deploy"]);
    let store = collector.span("acquire");
    let server = collector.span("POST /locks/{name}");
    assert_eq!(hex(&server.trace_id), TRACE);
    assert_eq!(hex(&server.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(server.trace_state, "vendor=opaque");
    assert_eq!(server.flags, 0x301, "sampled, and its parent is remote");
    assert_eq!(server.kind, SpanKind::Server as i32);
    assert_eq!(server.status, None);
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/locks/{name}"),
        ("http.response.status_code", "201"),
        ("url.scheme", "http"),
    ] {
        assert_eq!(says(&server, name), value);
    }
    assert!(!says(&server, "latchgate.request_id").is_empty());
    assert_eq!(hex(&store.trace_id), TRACE);
    assert_eq!(store.parent_span_id, server.span_id);
    assert_eq!(store.trace_state, "vendor=opaque");
    assert_eq!(store.flags, 0x101);
    assert_eq!(store.kind, SpanKind::Internal as i32);
    assert_eq!(says(&store, "db.system.name"), "embedded");
    assert_eq!(says(&store, "db.operation.name"), "acquire");
    assert!(server.start_time_unix_nano <= store.start_time_unix_nano);
    assert!(store.start_time_unix_nano < store.end_time_unix_nano);
    let resource = collector.resource().attributes;
    let said = |name| attribute(&resource, name).unwrap();
    assert_eq!(said("service.name"), "latchgate");
    assert_eq!(said("service.version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(said("service.instance.id").len(), 16);
}

#[test]
fn a_wait_in_the_queue_is_a_part_of_its_request() {
    let collector = Collector::start();
    let gateway = collector.gateway();
    on(&gateway, &["acquire", "deploy"]);
    let held = on(&gateway, &["acquire", "deploy", "--wait", "300ms"]);
    assert_ne!(held.code, Some(0), "{held:?}");
    let wait = collector.span("wait in the queue");
    let request = collector.until("its request", |spans| {
        let mut spans = spans.iter();
        spans
            .find(|span| span.span_id == wait.parent_span_id)
            .cloned()
    });
    assert_eq!(says(&request, "http.response.status_code"), "423");
    assert_eq!(says(&request, "latchgate.problem"), "locked");
    // A lock that another caller holds is no error.
    assert_eq!(request.status, None);
    assert!(wait.end_time_unix_nano - wait.start_time_unix_nano > 100_000_000);
    collector.span("leave");
}

#[tokio::test]
async fn redis_is_another_side_and_its_failure_a_failure() {
    let mut redis = RedisServer::start().await;
    let collector = Collector::start();
    let setup = collector
        .setup()
        .with("LATCHGATE_STORE", &redis.url().to_string())
        .with("LATCHGATE_REDIS_DEADLINE_MS", "100")
        .with("LATCHGATE_REDIS_COMMAND_TIMEOUT_MS", "100");
    let gateway = Gateway::start_with(setup);
    on(&gateway, &["acquire", "deploy"]);
    let store = collector.span("acquire");
    assert_eq!(store.kind, SpanKind::Client as i32);
    assert_eq!(says(&store, "db.system.name"), "redis");
    redis.kill();
    on(&gateway, &["inspect", "deploy"]);
    for name in ["inspect", "GET /locks/{name}"] {
        let failed = collector.span(name);
        let status = failed.status.clone().unwrap_or_default();
        assert_eq!(status.code, StatusCode::Error as i32, "{failed:#?}");
        assert!(!says(&failed, "error.type").is_empty());
    }
}

#[test]
fn whoever_is_not_traced_is_not_and_of_the_others_as_many_as_are_wanted() {
    let collector = Collector::start();
    let setup = collector
        .setup()
        .with("LATCHGATE_TRACE_SAMPLE_PER_MILLE", "0");
    let gateway = Gateway::start_with(setup);
    let url = gateway.url();
    let inspect = |name: &str, parent: &str| {
        latchgate(&["inspect", name])
            .env("LATCHGATE_URL", &url)
            .env("TRACEPARENT", parent)
            .read()
    };
    inspect("a", "");
    inspect("b", &PARENT.replace("-01", "-00"));
    inspect("c", PARENT);
    let server = collector.span("GET /locks/{name}");
    assert_eq!(hex(&server.trace_id), TRACE);
    let others = collector.spans();
    let others = others.iter().filter(|span| span.span_id != server.span_id);
    assert!(
        others
            .clone()
            .all(|span| span.parent_span_id == server.span_id)
    );
    // With sampling on, a request without a traced parent begins its own trace.
    let collector = Collector::start();
    let gateway = collector.gateway();
    let listen = gateway.address.to_string();
    latchgate(&["healthcheck", "--ready", "--listen", &listen]).read();
    latchgate(&["inspect", "a", "--url", &gateway.url()]).read();
    let server = collector.span("GET /locks/{name}");
    assert!(server.parent_span_id.is_empty());
    assert_ne!(hex(&server.trace_id), TRACE);
    // Spans of probes would hide the other spans.
    assert!(
        collector
            .spans()
            .iter()
            .all(|span| span.name != "GET /readyz")
    );
}

#[test]
fn no_name_of_a_lock_and_no_secret_is_told() {
    const KEY: &str = "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11";
    let directory = tempfile::tempdir().unwrap();
    let headers = directory.path().join("headers");
    std::fs::write(&headers, "x-collector-key: opensesame\n").unwrap();
    for tells_names in [false, true] {
        let collector = Collector::start();
        let setup = collector
            .setup()
            .with("LATCHGATE_TRACE_HEADERS_FILE", headers.to_str().unwrap())
            .with("LATCHGATE_TRACE_LOCK_NAMES", &tells_names.to_string());
        let mut gateway = Gateway::start_with(setup);
        let acquired = latchgate(&["acquire", "heavy/plutonium"])
            .env("LATCHGATE_URL", &gateway.url())
            .env("LATCHGATE_IDEMPOTENCY_KEY", KEY)
            .read();
        let token = acquired.out.trim_end();
        let released = latchgate(&["release", "heavy/plutonium"])
            .env("LATCHGATE_URL", &gateway.url())
            .env("LATCHGATE_TOKEN", token)
            .read();
        assert_eq!(released.code, Some(0), "{released:?}");
        collector.span("release");
        gateway.signal(rustix::process::Signal::TERM);
        assert_eq!(gateway.wait().code(), Some(0));
        let told = collector.everything();
        assert_eq!(told.contains("heavy/plutonium"), tells_names, "{told}");
        assert!(told.contains("x-collector-key: opensesame"), "{told}");
        for secret in [KEY, token] {
            assert!(secret.len() > 20 && !told.contains(secret), "{told}");
        }
        assert!(!gateway.log().contains("opensesame"));
    }
}

#[test]
fn a_caller_that_hangs_up_ends_its_span() {
    use std::io::Write as _;
    let collector = Collector::start();
    let gateway = collector.gateway();
    on(&gateway, &["acquire", "deploy"]);
    let mut caller = std::net::TcpStream::connect(gateway.address).unwrap();
    let body = r#"{"wait_ms":50000}"#;
    let head = format!(
        "POST /locks/deploy HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         traceparent: {}\r\ncontent-length: {}\r\n\r\n{body}",
        PARENT.replace("4bf9", "5bf9"),
        body.len()
    );
    caller.write_all(head.as_bytes()).unwrap();
    let queued = || {
        on(&gateway, &["inspect", "deploy", "--json"])
            .out
            .contains("\"waited_ms\"")
    };
    while !queued() {
        thread::sleep(Duration::from_millis(5));
    }
    drop(caller);
    let span = collector.until("the span of the caller", |spans| {
        let of_caller = |span: &&Span| {
            span.name == "POST /locks/{name}" && hex(&span.trace_id).starts_with("5bf9")
        };
        spans.iter().find(of_caller).cloned()
    });
    assert_eq!(says(&span, "latchgate.hung_up"), "true");
    assert_eq!(
        attribute(&span.attributes, "http.response.status_code"),
        None
    );
}
