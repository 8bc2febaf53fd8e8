//! What stays of a request in memory while it waits.

use std::{path::Path, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri};
use latchgate::{auth::Gate, config::Config};

use super::{
    audit::audit,
    scripted::{Script, Scripted, queued},
    service::{Service, until},
};

/// The bytes of a request as they came from its connection, and whether anything refers to them.
struct Head {
    bytes: Bytes,
    used: Arc<()>,
}

struct Received(
    &'static str,
    #[expect(dead_code, reason = "it is counted")] Arc<()>,
);

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Head {
    fn of(text: &'static str) -> Self {
        let used = Arc::new(());
        Self {
            bytes: Bytes::from_owner(Received(text, Arc::clone(&used))),
            used,
        }
    }

    fn part(&self, text: &str) -> Bytes {
        let whole = std::str::from_utf8(&self.bytes).unwrap();
        let at = whole.find(text).unwrap();
        self.bytes.slice(at..at + text.len())
    }
}

#[tokio::test]
async fn the_memory_of_its_head_is_free_again_while_it_waits() {
    let head = Head::of(
        "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nOrigin: https://ops.example\r\n\
         X-Request-Id: 4711\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
         Content-Type: application/json\r\nIdempotency-Key: 0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11\r\n\r\n",
    );
    let value = |text: &str| HeaderValue::from_maybe_shared(head.part(text)).unwrap();
    let request = Request::builder()
        .method(Method::POST)
        .uri(Uri::from_maybe_shared(head.part("/locks/a")).unwrap())
        .header("host", value("localhost"))
        .header("origin", value("https://ops.example"))
        .header("x-request-id", value("4711"))
        .header(
            "traceparent",
            value("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        )
        .header("content-type", value("application/json"))
        .header(
            "idempotency-key",
            value("0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11"),
        )
        .body(Body::from(r#"{"wait_ms": 20000}"#))
        .unwrap();
    let mut config = Config::default();
    config.http.allowed_origins = ["https://ops.example".parse().unwrap()].into();
    let script = Arc::new(Script::default());
    let store = Scripted(Arc::clone(&script));
    let audit = audit(Path::new("/dev/null"));
    let service = Service::audited(store, config, Gate::open(), audit);
    script.acquires(queued(0));
    let Head { bytes, used } = head;
    drop(bytes);
    assert!(Arc::strong_count(&used) > 1);
    let waits = async {
        until("the caller is queued", || !script.parking.is_empty()).await;
        assert_eq!(Arc::strong_count(&used), 1, "something of its head is kept");
    };
    tokio::select! {
        answer = service.send(request) => panic!("{}: {}", answer.status, answer.body),
        () = waits => {}
    }
}
