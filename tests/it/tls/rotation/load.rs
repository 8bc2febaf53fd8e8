//! Clients that acquire, renew and hold their own locks, half of them over HTTP/2.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use h2::RecvStream;
use http::Method;
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet, time::sleep};
use tokio_rustls::client::TlsStream;

use crate::{
    support::{Connection, Event, HttpRequest, Tally, eventually, read_event},
    tls::fixture::{Certified, H2, head, piece, tls_connect},
};

/// What all clients share.
pub(super) struct Load {
    pub(super) certified: Certified,
    pub(super) tally: Tally,
    over: AtomicBool,
    /// The value of the `Authorization` header, if there is one.
    key: Mutex<Option<String>>,
}

/// The number of clients of each kind, half of them over each version of HTTP.
const ACQUIRERS: u16 = 26;
const RENEWERS: u16 = 14;
pub(super) const HOLDERS: u16 = 10;

// === impl Load ===

impl Load {
    pub(super) fn new(certified: Certified, key: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            certified,
            tally: Tally::default(),
            over: AtomicBool::new(false),
            key: Mutex::new(key),
        })
    }

    /// Starts all clients.
    pub(super) fn start(self: &Arc<Self>) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for number in 0..ACQUIRERS {
            clients.spawn(acquire(Arc::clone(self), number));
        }
        for number in 0..RENEWERS {
            clients.spawn(renew(Arc::clone(self), number));
        }
        for number in 0..HOLDERS {
            clients.spawn(hold(Arc::clone(self), number));
        }
        clients
    }

    /// Tells all clients to end.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sets the `Authorization` header of all further requests.
    pub(super) fn show(&self, key: &str) {
        *self.key.lock().unwrap() = Some(key.to_owned());
    }

    /// The current `Authorization` header.
    pub(super) fn key(&self) -> Option<String> {
        self.key.lock().unwrap().clone()
    }

    /// A request with the current `Authorization` header.
    pub(super) fn asks(&self, method: &'static str, path: &str) -> HttpRequest {
        let asked = HttpRequest::new(method, path.to_owned());
        match self.key() {
            Some(key) => asked.with("authorization", &key),
            None => asked,
        }
    }

    /// Waits until clients of each kind have made progress.
    pub(super) async fn goes_on(&self) {
        let progress = [
            ("turns", 2 * ACQUIRERS),
            ("renewals", 2 * RENEWERS),
            ("renewals by streams", HOLDERS),
        ];
        let before = progress.map(|(what, _)| self.tally.total(what));
        eventually("all go on", async || {
            let mut each = before.into_iter().zip(progress);
            let all = each
                .all(|(before, (what, more))| self.tally.total(what) >= before + u64::from(more));
            all.then_some(())
        })
        .await;
    }
}

/// The TTL of holds: a stream renews at a third of it.
const TTL_MS: u64 = 4_000;
/// The TTL of leases that are renewed all the time.
const LONG_MS: u64 = 60_000;
/// The pause between requests, because other work runs on this machine.
const PAUSE: Duration = Duration::from_millis(20);
/// One in this many requests uses a new connection.
const NEW: u64 = 8;

/// Acquires and releases a lock, over an open connection and over new ones.
pub(super) async fn acquire(load: Arc<Load>, number: u16) {
    let is_two = number.is_multiple_of(2);
    let path = format!("/locks/taken:{number}");
    let mut kept = Either::connect(&load.certified, is_two).await;
    let mut last = 0;
    for turn in 0.. {
        if load.is_over() {
            return;
        }
        let mut new = None;
        if u64::is_multiple_of(turn, NEW) {
            new = Some(Either::connect(&load.certified, is_two).await);
            load.tally.count("new connections");
        }
        let connection = new.as_mut().unwrap_or(&mut kept);
        let (status, lease) = connection.ask(&load.asks("POST", &path)).await;
        assert_eq!(status, 201, "{lease}");
        assert!(fence(&lease) > last, "{lease} after {last}");
        last = fence(&lease);
        let release = with(load.asks("DELETE", &path), &lease);
        let (status, problem) = connection.ask(&release).await;
        assert_eq!(status, 204, "{problem}");
        load.tally.count("turns");
        sleep(PAUSE).await;
    }
}

/// Renews a lease over an open connection.
pub(super) async fn renew(load: Arc<Load>, number: u16) {
    let path = format!("/locks/renewed:{number}");
    let mut kept = Either::connect(&load.certified, number.is_multiple_of(2)).await;
    let wanted = load.asks("POST", &path).body(json!({"ttl_ms": LONG_MS}));
    let (status, lease) = kept.ask(&wanted).await;
    assert_eq!(status, 201, "{lease}");
    while !load.is_over() {
        let renewal = load.asks("PUT", &format!("{path}/renew"));
        let (status, renewed) = kept.ask(&with(renewal, &lease)).await;
        assert_eq!(status, 200, "{renewed}");
        assert_eq!(fence(&renewed), fence(&lease));
        load.tally.count("renewals");
        sleep(PAUSE).await;
    }
}

/// Holds a lock by a stream for as long as the authorization is current, and then by another stream.
pub(super) async fn hold(load: Arc<Load>, number: u16) {
    let is_two = number.is_multiple_of(2);
    let path = format!("/locks/held:{number}/hold");
    let open = async |asked: &HttpRequest| {
        let connection = Either::connect(&load.certified, is_two).await;
        let mut events = connection.open(asked).await;
        let (name, lease) = events.next().await;
        assert_eq!(name, "granted", "{lease}");
        (events, lease)
    };
    let mut shown = load.key();
    let wanted = load.asks("POST", &path).body(json!({"ttl_ms": TTL_MS}));
    let (mut events, lease) = open(&wanted).await;
    while !load.is_over() {
        let (name, left) = events.next().await;
        assert_eq!(name, "renewed", "{left}");
        load.tally.count("renewals by streams");
        if load.key() != shown {
            shown = load.key();
            let (newer, adopted) = open(&with(load.asks("POST", &path), &lease)).await;
            assert_eq!(fence(&adopted), fence(&lease));
            events = newer;
            load.tally.count("adoptions");
        }
    }
}

fn with(asked: HttpRequest, lease: &Value) -> HttpRequest {
    asked.with("lock-token", lease["token"].as_str().unwrap())
}

fn fence(lease: &Value) -> u64 {
    lease["fencing_token"].as_u64().unwrap()
}

/// A connection over either version of HTTP. Every error fails the test.
pub(super) enum Either {
    One(Box<Connection<TlsStream<TcpStream>>>),
    Two(H2),
}

/// The events of a stream, which has its own connection.
pub(super) enum Events {
    One(Box<Connection<TlsStream<TcpStream>>>),
    Two {
        _connection: H2,
        body: RecvStream,
        text: String,
    },
}

// === impl Either ===

impl Either {
    pub(super) async fn connect(to: &Certified, is_two: bool) -> Self {
        if is_two {
            return Self::Two(H2::connect(to).await);
        }
        let address = to.gateway.address;
        let stream = tls_connect(&to.authority, address, &[b"http/1.1"]).await;
        Self::One(Box::new(Connection::new(stream)))
    }

    /// Sends a request and reads its whole answer.
    pub(super) async fn ask(&mut self, asked: &HttpRequest) -> (u16, Value) {
        match self {
            Self::One(connection) => connection.ask(asked).await.unwrap(),
            Self::Two(h2) => {
                let (method, headers, body) = in_frames(asked);
                h2.ask(method, &asked.path, &headers, &body).await
            }
        }
    }

    /// Opens a stream, which must succeed.
    pub(super) async fn open(self, asked: &HttpRequest) -> Events {
        match self {
            Self::One(mut connection) => {
                assert_eq!(connection.open(asked).await.unwrap(), None);
                Events::One(connection)
            }
            Self::Two(mut h2) => {
                let (method, headers, body) = in_frames(asked);
                let answer = h2.send(method, &asked.path, &headers, &body).await.unwrap();
                let answer = head(answer).await;
                assert_eq!(answer.status(), 200);
                Events::Two {
                    _connection: h2,
                    body: answer.into_body(),
                    text: String::new(),
                }
            }
        }
    }
}

// === impl Events ===

impl Events {
    /// The next event. The stream must not end.
    pub(super) async fn next(&mut self) -> Event {
        let (body, text) = match self {
            Self::One(connection) => return connection.event().await.unwrap().unwrap(),
            Self::Two { body, text, .. } => (body, text),
        };
        loop {
            if let Some((block, rest)) = text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                *text = rest;
                if let Some(event) = read_event(&block) {
                    return event;
                }
                continue;
            }
            let piece = piece(body).await.expect("the stream goes on");
            *text += std::str::from_utf8(&piece).unwrap();
        }
    }
}

/// The parts of a request for HTTP/2.
fn in_frames(asked: &HttpRequest) -> (Method, Vec<(&str, &str)>, String) {
    let headers = asked.headers.iter().map(|(name, value)| (*name, &**value));
    let body = Some(&asked.body).filter(|body| !body.is_null());
    let body = body.map_or_else(String::new, Value::to_string);
    (asked.method.parse().unwrap(), headers.collect(), body)
}
