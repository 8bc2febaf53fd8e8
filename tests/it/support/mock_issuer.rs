//! An issuer of ID tokens on a free port of this machine, which can be made to fail.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use latchgate::lifecycle::Lifecycle;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};
use url::form_urlencoded;

/// An issuer with its state, which a test may change.
pub(crate) struct MockIssuer {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    keys: Mutex<Value>,
    mode: Mutex<Mode>,
    asked: AtomicUsize,
    /// The codes that were not used yet, each with the request that it answers.
    codes: Mutex<HashMap<String, Code>>,
    /// The requests for ID tokens, whether or not they were answered.
    exchanges: Mutex<Vec<String>>,
}

/// A code for an ID token.
pub(crate) struct Code {
    /// The ID token.
    pub(crate) token: String,
    /// The hash of the verifier without which the code is of no use.
    pub(crate) challenge: String,
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
    /// A byte now and then, each long before a gateway stops waiting for a byte.
    Drips,
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
            codes: Mutex::default(),
            exchanges: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let (lifecycle, tasks) = (Lifecycle::new(), Lifecycle::new());
        lifecycle.spawn_background(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tasks.spawn_background(answer(stream, address, Arc::clone(&shared)));
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

    /// Lets a client exchange this code once.
    pub(crate) fn give(&self, name: &str, code: Code) {
        self.state.codes.lock().insert(name.to_owned(), code);
    }

    /// The forms of all requests for ID tokens.
    pub(crate) fn exchanges(&self) -> Vec<String> {
        self.state.exchanges.lock().clone()
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
    if head.starts_with("POST /token ") {
        return exchange(stream, &head, &state).await;
    }
    let mode = *state.mode.lock();
    let is_discovery = head.starts_with("GET /.well-known/openid-configuration ");
    let url = |path: &str| format!("http://{address}{path}");
    let (status, body, header) = match mode {
        Mode::Fails(status) => (status, "<html>busy</html>".to_owned(), String::new()),
        Mode::Redirects => (
            302,
            String::new(),
            format!("location: {}\r\n", url("/keys")),
        ),
        Mode::Drips => {
            let begin = b"HTTP/1.1 200 x\r\ncontent-length: 1000\r\n\r\n";
            drop(stream.write_all(begin).await);
            while stream.write_all(b" ").await.is_ok() {
                sleep(Duration::from_millis(200)).await;
            }
            return;
        }
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
                json!({
                    "issuer": issuer, "jwks_uri": keys, "authorization_endpoint": url("/authorize?kept=1"),
                    "token_endpoint": url("/token"), "end_session_endpoint": url("/end"),
                    "token_endpoint_auth_methods_supported": ["client_secret_post"],
                })
                .to_string(),
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
        "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n{header}\r\n{body}",
        body.len()
    );
    // A gateway that reads no further closes the connection.
    drop(stream.write_all(answer.as_bytes()).await);
}

/// Answers a request for an ID token: once for each code, and only with the verifier and the secret.
async fn exchange(mut stream: TcpStream, head: &str, state: &State) {
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    let form: HashMap<_, _> = form_urlencoded::parse(&body).into_owned().collect();
    state
        .exchanges
        .lock()
        .push(String::from_utf8(body).unwrap());
    let code = state.codes.lock().remove(&form["code"]);
    let code = code.filter(|code| {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
        hash == code.challenge
            && form["client_id"] == "page"
            && form["client_secret"] == "a secret & more"
    });
    let (status, body) = match code {
        Some(code) => (
            200,
            json!({"access_token": "x", "id_token": code.token, "token_type": "Bearer"}),
        ),
        None => (400, json!({"error": "invalid_grant"})),
    };
    let body = body.to_string();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    drop(stream.write_all(answer.as_bytes()).await);
}
