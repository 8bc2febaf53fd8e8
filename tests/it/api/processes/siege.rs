//! A gateway under siege: silent connections, and three times as many requests as it has room for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::sleep_until;

use crate::api::prelude::*;

/// How many connections the gateway accepts, and how many requests it works on at once.
const CONNECTIONS: usize = 600;
const REQUESTS: usize = 8;
/// How many connections send no complete request.
const SILENT: usize = 1_000;
/// The TTL of the holder, which renews at a third of it over its open connection. The TTL is long enough for a machine
/// that does other work.
const TTL: Duration = Duration::from_secs(12);
const RENEWALS: u32 = 3;

/// What the attacking clients observed.
#[derive(Debug, Default)]
struct Seen {
    over: AtomicBool,
    closed: AtomicU64,
    granted: AtomicU64,
    overloaded: AtomicU64,
}

/// Opens a connection and begins a request that never ends. Repeats this when the connection is closed.
async fn silent(number: usize, to: SocketAddr, seen: Arc<Seen>) {
    let begun = if number.is_multiple_of(2) {
        "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
    } else {
        "PUT /locks/a/renew HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: 2\r\n\r\n{"
    };
    while !seen.over.load(Ordering::Relaxed) {
        // A full backlog refuses the connection as well.
        let Ok(mut stream) = TcpStream::connect(to).await else {
            continue;
        };
        if stream.write_all(begun.as_bytes()).await.is_ok() {
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest).await);
        }
        seen.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends a request over a new connection, as a function or a script does. An error means that the gateway had no room
/// for the connection.
async fn ask(to: SocketAddr, line: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Acquires one lock after the other, as fast as the answers come.
async fn greedy(number: usize, to: SocketAddr, seen: Arc<Seen>) {
    for lock in 0.. {
        if seen.over.load(Ordering::Relaxed) {
            return;
        }
        let line = format!("POST /locks/g{number}-{lock}");
        let answer = ask(to, &line).await.unwrap_or_default();
        if answer.starts_with("HTTP/1.1 201 ") {
            seen.granted.fetch_add(1, Ordering::Relaxed);
        } else if answer.starts_with("HTTP/1.1 503 ") {
            seen.overloaded.fetch_add(1, Ordering::Relaxed);
        } else {
            assert_eq!(answer, "");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_renews_never_loses_its_lock() {
    raise_the_limit();
    let setup = Setup::default()
        .with("LATCHGATE_HTTP_MAX_CONNECTIONS", &CONNECTIONS.to_string())
        .with(
            "LATCHGATE_HTTP_MAX_CONCURRENT_REQUESTS",
            &REQUESTS.to_string(),
        )
        .with("LATCHGATE_HTTP_RESERVED_REQUESTS", "4")
        // Short timeouts, so that connections of the silent clients become free now and then.
        .with("LATCHGATE_HTTP_HEADER_TIMEOUT_MS", "5000")
        .with("LATCHGATE_HTTP_BODY_TIMEOUT_MS", "5000")
        .with("LATCHGATE_LOG_LEVEL", "warn");
    let gateway = Gateway::start_with(setup);
    let to = gateway.address;
    let body = json!({"ttl_ms": u64::try_from(TTL.as_millis()).unwrap()});
    let mut holder = Connection::new(TcpStream::connect(to).await.unwrap());
    let acquire = HttpRequest::new("POST", "/locks/held".to_owned()).body(body);
    let (_, lease) = holder.ask(&acquire).await.unwrap();
    let token = lease["token"].as_str().unwrap();
    let renew = HttpRequest::new("PUT", "/locks/held/renew".to_owned()).with("Lock-Token", token);

    let seen = Arc::new(Seen::default());
    let mut besiegers = JoinSet::new();
    for number in 0..SILENT {
        besiegers.spawn(silent(number, to, Arc::clone(&seen)));
    }
    for number in 0..3 * REQUESTS {
        besiegers.spawn(greedy(number, to, Arc::clone(&seen)));
    }
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    // Waits until the gateway is really overloaded, which takes a while on a busy machine.
    let is_siege = || {
        let closed = count(&seen.closed) >= (SILENT - CONNECTIONS) as u64;
        closed && count(&seen.granted) > 0 && count(&seen.overloaded) > REQUESTS as u64
    };
    let began = Instant::now();
    let mut renewal = 0;
    while renewal < RENEWALS || !is_siege() {
        renewal += 1;
        assert!(renewal <= 5 * RENEWALS, "no siege: {seen:?}");
        sleep_until(began + TTL / 3 * renewal).await;
        let asked = Instant::now();
        let renewed = timeout(TTL / 3, holder.ask(&renew)).await;
        let renewed = renewed.unwrap_or_else(|_| panic!("no answer to renewal {renewal}"));
        let (status, renewed) = renewed.unwrap();
        assert_eq!(status, 200, "{renewed}");
        assert_eq!(renewed["fencing_token"], lease["fencing_token"]);
        assert!(asked.elapsed() < TTL / 3, "{:?}", asked.elapsed());
    }
    seen.over.store(true, Ordering::Relaxed);
    gateway.logged("more connections came than are allowed");
    besiegers.shutdown().await;
}
