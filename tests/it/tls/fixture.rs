//! A gateway over TLS, and low-level clients for it: one side of a TLS connection, and HTTP/2 on one connection.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use h2::{
    RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{Method, Request, Response};
use latchgate::{
    lifecycle::Lifecycle,
    tls::{ClientFiles, PemFile},
};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::{
    Authority, Files, eventually,
    gateway::{Gateway, Setup},
    spawn,
};

/// A gateway over TLS, and the authority of its certificate.
pub(crate) struct Certified {
    pub(crate) authority: Authority,
    pub(crate) files: Files,
    pub(crate) gateway: Gateway,
}

// === impl Certified ===

impl Certified {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| Setup::default())
    }

    /// Starts a gateway with a setup that may use its authority.
    pub(crate) fn start_with(setup: impl FnOnce(&Authority) -> Setup) -> Self {
        let authority = Authority::new();
        let files = authority.of_this_machine();
        let setup = setup(&authority);
        Self::start_with_files(authority, files, setup)
    }

    /// Starts a gateway with further environment variables.
    pub(crate) fn set(variables: &[(&'static str, &str)]) -> Self {
        let set = |setup: Setup, (name, value): &(&'static str, &str)| setup.with(name, value);
        Self::start_with(|_| variables.iter().fold(Setup::default(), set))
    }

    /// Starts a gateway that asks clients for certificates of another authority. Answers this authority, too.
    pub(crate) fn asking(client_auth: &str) -> (Self, Authority) {
        let callers = Authority::new();
        let certified = Self::set(&[
            ("LATCHGATE_HTTP_TLS_CLIENT_CA_FILE", &callers.file()),
            ("LATCHGATE_HTTP_TLS_CLIENT_AUTH", client_auth),
        ]);
        (certified, callers)
    }

    /// Starts a gateway with these certificate files.
    pub(crate) fn start_with_files(authority: Authority, files: Files, setup: Setup) -> Self {
        let setup = setup
            .with("LATCHGATE_HTTP_TLS_CERT_FILE", &files.certificate())
            .with("LATCHGATE_HTTP_TLS_KEY_FILE", &files.key());
        Self {
            gateway: Gateway::start_with(setup),
            authority,
            files,
        }
    }

    /// The URL of the gateway with the name `localhost`.
    pub(crate) fn named_url(&self) -> String {
        format!("https://localhost:{}", self.gateway.address.port())
    }

    /// Runs curl for a path. Answers its output and the status of the answer.
    pub(crate) fn curl(&self, arguments: &[&str], path: &str) -> Curled {
        let output = spawn::command("curl")
            .args(["--silent", "--show-error", "--max-time", "20"])
            .args(["--cacert", &self.authority.file()])
            .args(["--write-out", "\n%{http_code} %{http_version}"])
            .args(arguments)
            .arg(self.gateway.url() + path)
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let (body, end) = out.rsplit_once('\n').unwrap();
        let (status, version) = end.split_once(' ').unwrap();
        Curled {
            code: output.status.code(),
            status: status.parse().unwrap(),
            version: version.to_owned(),
            body: body.to_owned(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The result of curl.
#[derive(Debug)]
pub(crate) struct Curled {
    pub(crate) code: Option<i32>,
    pub(crate) status: u16,
    pub(crate) version: String,
    pub(crate) body: String,
    pub(crate) err: String,
}

// === impl Curled ===

impl Curled {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A TLS connector that trusts an authority.
pub(crate) fn connector(authority: &Authority, protocols: &[&[u8]]) -> TlsConnector {
    let files = ClientFiles {
        ca: Some(PemFile::new("the test", authority.file())),
        identity: None,
    };
    let mut config = files.config().unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// Opens a TLS connection to this machine.
pub(crate) async fn tls_connect(
    authority: &Authority,
    to: SocketAddr,
    protocols: &[&[u8]],
) -> TlsStream<TcpStream> {
    tls_greet(authority, TcpStream::connect(to).await.unwrap(), protocols).await
}

/// Does a TLS handshake on an open connection.
pub(crate) async fn tls_greet(
    authority: &Authority,
    stream: TcpStream,
    protocols: &[&[u8]],
) -> TlsStream<TcpStream> {
    let name = ServerName::try_from("localhost").unwrap();
    let connector = connector(authority, protocols);
    connector.connect(name, stream).await.unwrap()
}

/// How long a test waits for an event that must come.
const TIMEOUT: Duration = Duration::from_mins(1);

/// An HTTP/2 client on one connection.
#[derive(Clone)]
pub(crate) struct H2 {
    requests: SendRequest<Bytes>,
    /// The task that moves the bytes. It is quiet when the connection has ended.
    lifecycle: Lifecycle,
}

// === impl H2 ===

impl H2 {
    /// A gateway, and a connection to it.
    pub(crate) async fn start() -> (Certified, Self) {
        let certified = Certified::start();
        let h2 = Self::connect(&certified).await;
        (certified, h2)
    }

    pub(crate) async fn connect(to: &Certified) -> Self {
        Self::connect_with(to, &h2::client::Builder::new()).await
    }

    /// Connects with these HTTP/2 settings.
    pub(crate) async fn connect_with(to: &Certified, builder: &h2::client::Builder) -> Self {
        Self::connect_by(to, to.gateway.address, builder).await
    }

    /// Connects through another address that leads to the gateway.
    pub(crate) async fn connect_by(
        to: &Certified,
        address: SocketAddr,
        builder: &h2::client::Builder,
    ) -> Self {
        let stream = tls_connect(&to.authority, address, &[b"h2"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        let lifecycle = Lifecycle::new();
        lifecycle.spawn(async move { drop(connection.await) });
        Self {
            requests,
            lifecycle,
        }
    }

    /// Sends a request without waiting for its answer. Dropping the future resets the stream.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<ResponseFuture, h2::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let ready = self.requests.clone().ready().await?;
        self.requests = ready;
        let request = request.body(()).unwrap();
        let (answer, mut sender) = self.requests.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            sender.send_data(Bytes::copy_from_slice(body.as_bytes()), true)?;
        }
        Ok(answer)
    }

    /// Sends the head of a request whose body follows later.
    pub(crate) async fn begin(
        &mut self,
        method: Method,
        path: &str,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("content-type", "application/json")
            .body(())
            .unwrap();
        self.requests = self.requests.clone().ready().await.unwrap();
        self.requests.send_request(request, false).unwrap()
    }

    /// Sends a request and reads its whole answer.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, Value) {
        let answer = self.send(method, path, headers, body).await.unwrap();
        read(answer).await
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        timeout(TIMEOUT, self.lifecycle.quiet()).await.unwrap();
    }

    /// Acquires a lock.
    pub(crate) async fn acquire(&mut self, lock: &str, body: &str) -> (u16, Value) {
        self.ask(Method::POST, &format!("/locks/{lock}"), &[], body)
            .await
    }

    /// Starts a request that waits for a lock.
    pub(crate) async fn wait(&mut self, lock: &str) -> ResponseFuture {
        let (path, wait) = (format!("/locks/{lock}"), r#"{"wait_ms": 50000}"#);
        self.send(Method::POST, &path, &[], wait).await.unwrap()
    }

    /// Waits until an inspection of a lock shows this value.
    pub(crate) async fn until(&self, lock: &str, field: &str, value: impl Into<Value>) {
        let value = value.into();
        eventually(&format!("{field} of {lock} is {value}"), || {
            let (mut h2, value) = (self.clone(), &value);
            async move { (h2.inspect(lock).await[field] == *value).then_some(()) }
        })
        .await;
    }

    /// Waits until a lock has no holder.
    pub(crate) async fn until_free(&self, lock: &str) {
        self.until(lock, "state", "free").await;
    }

    /// Waits until a lock has this number of waiters.
    pub(crate) async fn until_queued(&self, lock: &str, waiters: usize) {
        self.until(lock, "waiter_count", waiters).await;
    }

    /// Inspects a lock.
    pub(crate) async fn inspect(&mut self, lock: &str) -> Value {
        let (status, shown) = self
            .ask(Method::GET, &format!("/locks/{lock}"), &[], "")
            .await;
        assert_eq!(status, 200, "{shown}");
        shown
    }
}

/// Reads a whole answer.
pub(crate) async fn read(answer: ResponseFuture) -> (u16, Value) {
    let answer = head(answer).await;
    let status = answer.status().as_u16();
    let mut body = answer.into_body();
    let mut text = Vec::new();
    while let Some(piece) = piece(&mut body).await {
        text.extend(piece);
    }
    let value = if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&text).unwrap()
    };
    (status, value)
}

/// Waits for the head of an answer.
pub(crate) async fn head(answer: ResponseFuture) -> Response<RecvStream> {
    timeout(TIMEOUT, answer).await.unwrap().unwrap()
}

/// Waits for a part of a body; `None` at its end.
pub(crate) async fn piece(body: &mut RecvStream) -> Option<Bytes> {
    let piece = timeout(TIMEOUT, body.data()).await.unwrap();
    let piece = piece.map(|piece| piece.unwrap());
    if let Some(piece) = &piece {
        let length = piece.len();
        body.flow_control().release_capacity(length).unwrap();
    }
    piece
}
