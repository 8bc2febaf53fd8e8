//! A client that knows the addresses of both gateways, as if a load balancer stood in front of them.
//!
//! The client may notice a restart only by these events, after which it repeats its request at the other gateway:
//!
//! * a refused connection: the request was not sent;
//! * 503 `draining`: the request had no effect;
//! * a stream that ends with `draining`: the client goes on with the token of the lease, or, if there was no lease yet,
//!   with its idempotency key.
//!
//! Anything else fails the test: another status, a stream that ends in another way or is cut, and above all a request
//! that was sent and not answered.

use std::{io, net::SocketAddr};

use serde_json::Value;
use tokio::net::TcpStream;

use super::rooms::Rooms;
use crate::support::prelude::*;
use crate::support::{Connection, Event, HttpRequest, Tally};

/// What all clients share.
#[derive(Debug)]
pub(super) struct Load {
    addresses: [SocketAddr; 2],
    pub(super) tally: Tally,
    pub(super) rooms: Rooms,
    over: AtomicBool,
}

/// A client of the two gateways.
pub(super) struct Client {
    pub(super) load: Arc<Load>,
    /// The name of the client, which is also the owner of its leases.
    pub(super) name: String,
    /// The index of the gateway that the client asks.
    at: usize,
    connection: Option<Connection<TcpStream>>,
    /// How often the last request was sent.
    sent: usize,
}

/// How often a client may change the gateway without an answer: one gateway always runs.
const MOST_MOVES: usize = 3;

// === impl Load ===

impl Load {
    pub(super) fn new(addresses: [SocketAddr; 2]) -> Self {
        Self {
            addresses,
            tally: Tally::default(),
            rooms: Rooms::default(),
            over: AtomicBool::new(false),
        }
    }

    /// Tells all clients to end.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

// === impl Client ===

impl Client {
    /// A client that starts at one of the gateways, by its number.
    pub(super) fn new(load: &Arc<Load>, kind: &str, number: usize) -> Self {
        Self {
            load: Arc::clone(load),
            name: format!("{kind} {number}"),
            at: number % 2,
            connection: None,
            sent: 0,
        }
    }

    /// How often the last request was sent.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// Sends a request until it is answered.
    pub(super) async fn ask(&mut self, asked: &HttpRequest) -> (u16, Value) {
        self.answered(asked, false)
            .await
            .expect("only a stream comes without an answer")
    }

    /// Asks for a stream until there is one.
    pub(super) async fn open(&mut self, asked: &HttpRequest) {
        let answer = self.answered(asked, true).await;
        assert_eq!(answer, None, "{}: no stream", self.name);
    }

    /// The next event of the client's stream.
    pub(super) async fn event(&mut self) -> Event {
        let event = self.connection.as_mut().unwrap().event().await;
        match event {
            Ok(Some(event)) => event,
            other => panic!(
                "{}: the stream ends without a last event: {other:?}",
                self.name
            ),
        }
    }

    /// Changes to the other gateway.
    pub(super) fn move_on(&mut self) {
        self.connection = None;
        self.at = 1 - self.at;
    }

    /// Closes the connection.
    pub(super) fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Sends a request until it is answered. `None`: the answer is a stream.
    async fn answered(&mut self, asked: &HttpRequest, is_stream: bool) -> Option<(u16, Value)> {
        self.sent = 0;
        for _ in 0..=MOST_MOVES {
            let Some(mut connection) = self.connected().await else {
                self.load.tally.count("retries: connection refused");
                self.move_on();
                continue;
            };
            self.load.tally.count("requests");
            self.sent += 1;
            let answer = if is_stream {
                connection.open(asked).await
            } else {
                connection.ask(asked).await.map(Some)
            };
            let before = connection.answered();
            let answer = answer.unwrap_or_else(|error| {
                panic!(
                    "{}: no answer to {} {} from gateway {} on a connection with {before} answers: {error}",
                    self.name, asked.method, asked.path, self.at
                )
            });
            self.connection = Some(connection);
            match answer {
                Some((503, problem)) if problem["code"] == "draining" => {
                    self.load.tally.count("retries: 503 draining");
                    self.move_on();
                }
                answer => return answer,
            }
        }
        panic!(
            "{}: nobody answers {} {}",
            self.name, asked.method, asked.path
        );
    }

    /// The open connection, or a new one; `None` if it is refused.
    async fn connected(&mut self) -> Option<Connection<TcpStream>> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_open()
        {
            return Some(connection);
        }
        match TcpStream::connect(self.load.addresses[self.at]).await {
            Ok(stream) => {
                stream.set_nodelay(true).unwrap();
                Some(Connection::new(stream))
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => None,
            Err(error) => panic!("{}: cannot connect: {error}", self.name),
        }
    }
}
