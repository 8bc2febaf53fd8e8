//! A lease whose caller has gone before its answer left is released (clause 8), over real sockets; and which parts of a
//! request stay in memory while it waits.

use bytes::Bytes;
use http::{HeaderValue, Uri};

use crate::{api::prelude::*, support::connect_with_little_room};

const ACQUIRE: &str = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
const WITH_KEY: &str = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\n\
     idempotency-key: 0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11\r\n\r\n";

/// Sends a request to a store that does not answer, and waits until the store has it.
async fn in_flight(service: &Service, request: &str) -> TcpStream {
    service.script.paused.set();
    let stream = service.sent(request).await;
    service.is_asked(1).await;
    stream
}

#[tokio::test]
async fn a_caller_that_closes_or_resets_before_the_answer_leaves_no_lease() {
    for leave in [drop, reset] {
        let lines = Lines::default();
        let _guard = lines.collect();
        let service = Service::start();
        leave(in_flight(&service, ACQUIRE).await);
        until("the gateway saw it", || lines.read().contains("hung up")).await;
        service.script.paused.lift();
        service.gives_back(1).await;
        let token = service.script.attempt().token;
        assert!(
            matches!(service.script.asked()[..], [_, StoreCall::GiveBack(hash)] if hash == token)
        );
    }
}

#[tokio::test]
async fn an_answer_that_the_connection_never_took_is_given_back() {
    let service = Service::start();
    let answer = service.open("POST /locks/a", &[], "").await;
    assert_eq!(answer.status(), 201);
    assert_eq!(service.script.given_back(), 0);
    drop(answer);
    service.gives_back(1).await;
}

/// The gateway accepts the connection when its end has already arrived, as a busy gateway does.
#[tokio::test]
async fn a_release_that_came_in_one_piece_with_the_end_of_its_connection_is_carried_out() {
    let token = TOKEN;
    let head =
        "POST /locks/a/release HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let body = format!("{{\"token\":\"{token}\"}}");
    let requests = [
        format!("DELETE /locks/a HTTP/1.1\r\nhost: localhost\r\nlock-token: {token}\r\n\r\n"),
        format!("{head}content-length: {}\r\n\r\n{body}", body.len()),
    ];
    for request in &requests {
        for is_reset in [false, true] {
            let service = Service::start();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut caller = TcpStream::connect(address).await.unwrap();
            send(&mut caller, request).await;
            if is_reset {
                reset(caller);
            } else {
                drop(caller);
            }
            service.listen_on(listener);
            until(&format!("it is released, reset: {is_reset}"), || {
                service.script.released() > 0
            })
            .await;
        }
    }
}

/// A request with an answer that is longer than what fits into a connection whose caller does not read.
const LONG: &str = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
const SHORT: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Sends an acquire behind `unread` requests whose answers are not read. When this returns, the answer to the acquire
/// has been written: the gateway runs on this thread, and its store answers at once.
async fn behind_unread(service: &Service, unread: usize, acquire: &str) -> TcpStream {
    let mut stream = connect_with_little_room(service.listen().await).await;
    let requests = [LONG.repeat(unread).as_str(), acquire].concat();
    send(&mut stream, &requests).await;
    until("the lock is granted", || service.script.acquired() == 1).await;
    stream
}

/// How many undelivered leases were released by the end of the service.
async fn given_back_at_the_end(service: &Service) -> usize {
    service.stop().await;
    service.script.given_back()
}

async fn read_to_the_end(stream: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    let reading = stream.read_to_end(&mut rest);
    timeout(Duration::from_mins(1), reading)
        .await
        .expect("the connection ends")
        .unwrap();
    String::from_utf8(rest).unwrap()
}

#[tokio::test]
async fn a_caller_that_reads_its_answer_and_then_resets_keeps_its_lease() {
    for acquire in [ACQUIRE, WITH_KEY] {
        let service = Service::start();
        let mut stream = service.connect().await;
        asked(&mut stream, acquire, 201).await;
        reset(stream);
        assert_eq!(given_back_at_the_end(&service).await, 0);
    }
}

#[tokio::test]
async fn a_caller_that_reads_all_before_it_resets_keeps_its_lease_though_it_did_not_wait() {
    let service = Service::start();
    let mut stream = behind_unread(&service, 2, ACQUIRE).await;
    for _ in 0..2 {
        answer(&mut stream).await;
    }
    answered(&mut stream, 201).await;
    reset(stream);
    assert_eq!(given_back_at_the_end(&service).await, 0);
}

#[tokio::test]
async fn a_caller_that_half_closes_after_it_has_read_keeps_its_lease() {
    let service = Service::start();
    let mut stream = service.connect().await;
    asked(&mut stream, ACQUIRE, 201).await;
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_the_end(&mut stream).await, "");
    assert_eq!(given_back_at_the_end(&service).await, 0);
}

/// The gateway closes the connection while the grant is still in the kernel's buffer, and the kernel sends it.
#[tokio::test]
async fn a_caller_that_half_closes_and_then_reads_keeps_its_lease() {
    let service = Service::start();
    let mut stream = behind_unread(&service, 2, ACQUIRE).await;
    stream.shutdown().await.unwrap();
    let read = read_to_the_end(&mut stream).await;
    assert_eq!(read.matches("HTTP/1.1 201 ").count(), 1);
    assert_eq!(given_back_at_the_end(&service).await, 0);
}

/// The callers close in the turn of the event loop in which their locks are granted, so that only the kernel knows.
#[tokio::test]
async fn it_is_given_back_when_its_caller_has_closed_before_it_is_written() {
    for behind in ["", SHORT] {
        let service = Service::configured(|it| it.store = "redis://localhost".parse().unwrap());
        let stream = in_flight(&service, &[ACQUIRE, behind].concat()).await;
        drop(stream);
        service.script.paused.lift();
        service.gives_back(1).await;
    }
}

#[tokio::test]
async fn it_is_given_back_when_its_caller_has_closed_before_its_wait_is_over() {
    let body = r#"{"wait_ms": 20000}"#;
    let head = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let waits = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    for behind in ["", SHORT] {
        let service = Service::start();
        service.script.acquire.ok(queued(0));
        let stream = service.sent(&[&waits, behind].concat()).await;
        until("it waits", || !service.script.parking.is_empty()).await;
        sleep(Duration::from_millis(2)).await;
        drop(stream);
        assert_eq!(service.script.tell(&News::Granted(held())), 1);
        service.gives_back(1).await;
    }
}

/// The bytes of a request as its connection delivered them. `used` tells whether any value still refers to them.
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
    fn new(text: &'static str) -> Self {
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
    let head = Head::new(
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
    let audit = audit(Path::new("/dev/null"));
    let service = Service::with_audit(config, Gate::open(), audit);
    let script = &service.script;
    script.acquire.ok(queued(0));
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
