//! An issuer of ID tokens on a free port of this machine, which can be made to fail.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};

/// An issuer with its state, which a test may change.
pub(crate) struct MockIssuer {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    keys: Mutex<Value>,
    mode: Mutex<Mode>,
    asked: AtomicUsize,
}

/// How an issuer answers a request for its keys.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode {
    Serves,
    /// An error page, with this status.
    Fails(u16),
    /// A page with the status 200 that has no keys.
    ServesPage,
    Redirects,
    /// Nothing for longer than a gateway waits.
    Hangs,
    /// More than a gateway reads.
    IsHuge,
    /// The configuration of another issuer.
    IsAnother,
    /// Keys at an address that is not safe.
    NamesUnsafeKeys,
}

// === impl MockIssuer ===

impl MockIssuer {
    /// An issuer with these keys on a free port.
    pub(crate) async fn start(keys: Value) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), keys)
    }

    pub(crate) fn start_on(listener: TcpListener, keys: Value) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            keys: Mutex::new(keys),
            mode: Mutex::new(Mode::Serves),
            asked: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, address, Arc::clone(&shared)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn publish(&self, keys: Value) {
        *self.state.keys.lock() = keys;
    }

    pub(crate) fn becomes(&self, mode: Mode) {
        *self.state.mode.lock() = mode;
    }

    /// How often the keys were asked for.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }
}

async fn answer(mut stream: TcpStream, address: SocketAddr, state: Arc<State>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mode = *state.mode.lock();
    let is_discovery = head.starts_with("GET /.well-known/openid-configuration ");
    let url = |path: &str| format!("http://{address}{path}");
    let (status, body, more) = match mode {
        Mode::Fails(status) => (status, "<html>busy</html>".to_owned(), String::new()),
        Mode::Redirects => (
            302,
            String::new(),
            format!("location: {}\r\n", url("/keys")),
        ),
        Mode::Hangs => return sleep(Duration::from_mins(1)).await,
        _ if is_discovery => {
            let issuer = if matches!(mode, Mode::IsAnother) {
                "https://evil.example".to_owned()
            } else {
                url("")
            };
            let keys = if matches!(mode, Mode::NamesUnsafeKeys) {
                "http://192.0.2.1/keys".to_owned()
            } else {
                url("/keys")
            };
            (
                200,
                json!({"issuer": issuer, "jwks_uri": keys}).to_string(),
                String::new(),
            )
        }
        Mode::ServesPage => (200, "<html>maintenance</html>".to_owned(), String::new()),
        Mode::IsHuge => (200, " ".repeat(300_000), String::new()),
        _ => {
            state.asked.fetch_add(1, Ordering::Relaxed);
            (
                200,
                state.keys.lock().to_string(),
                "cache-control: max-age=5\r\n".to_owned(),
            )
        }
    };
    let answer = format!(
        "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n{more}\r\n{body}",
        body.len()
    );
    // A gateway that reads no further closes the connection.
    drop(stream.write_all(answer.as_bytes()).await);
}
