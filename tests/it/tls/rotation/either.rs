//! A connection over HTTPS, with HTTP/1.1 or HTTP/2.

use h2::RecvStream;
use http::Method;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::super::{
    certified::Certified,
    h2_client::{H2, head, piece},
    tls_client,
};
use crate::support::{Connection, Event, HttpRequest, read_event};

/// A connection of either version. Whatever goes wrong on it fails the test.
pub(super) enum Either {
    One(Box<Connection<TlsStream<TcpStream>>>),
    Two(H2),
}

/// The events of a stream, on a connection of its own.
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
        let stream = tls_client::connect(&to.authority, address, &[b"http/1.1"]).await;
        Self::One(Box::new(Connection::new(stream)))
    }

    /// Asks and reads the whole answer.
    pub(super) async fn ask(&mut self, asked: &HttpRequest) -> (u16, Value) {
        match self {
            Self::One(connection) => connection.ask(asked).await.unwrap(),
            Self::Two(h2) => {
                let (method, headers, body) = in_frames(asked);
                h2.ask(method, &asked.path, &headers, &body).await
            }
        }
    }

    /// Asks for a stream, which there must be.
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

/// What HTTP/2 wants to know of a request.
fn in_frames(asked: &HttpRequest) -> (Method, Vec<(&str, &str)>, String) {
    let headers = asked.headers.iter();
    let headers = headers
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let body = if asked.body.is_null() {
        String::new()
    } else {
        asked.body.to_string()
    };
    (asked.method.parse().unwrap(), headers, body)
}
