//! HTTP/2 by hand, on one connection.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use h2::{
    RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{Method, Request, Response};
use latchgate::lifecycle::Lifecycle;
use serde_json::Value;
use tokio::time::timeout;

use super::{certified::Certified, tls_client};

/// How long a test waits for something that must come.
const TIMEOUT: Duration = Duration::from_mins(1);

/// One connection.
#[derive(Clone)]
pub(crate) struct H2 {
    requests: SendRequest<Bytes>,
    /// Moves the bytes; quiet when the connection has ended.
    lifecycle: Lifecycle,
}

// === impl H2 ===

impl H2 {
    pub(crate) async fn connect(to: &Certified) -> Self {
        Self::connect_with(to, &h2::client::Builder::new()).await
    }

    /// Connects with settings of its own.
    pub(crate) async fn connect_with(to: &Certified, builder: &h2::client::Builder) -> Self {
        Self::connect_by(to, to.gateway.address, builder).await
    }

    /// Connects to an address from which it goes on to the gateway.
    pub(crate) async fn connect_by(
        to: &Certified,
        address: SocketAddr,
        builder: &h2::client::Builder,
    ) -> Self {
        let stream = tls_client::connect(&to.authority, address, &[b"h2"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        let lifecycle = Lifecycle::new();
        lifecycle.spawn(async move { drop(connection.await) });
        Self {
            requests,
            lifecycle,
        }
    }

    /// Sends a request without waiting for its answer. Dropped, the answer is given up.
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

    /// Sends the head of a request whose body is to follow.
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

    /// Asks and reads the whole answer.
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

/// Waits for a piece of an answer; `None` at its end.
pub(crate) async fn piece(body: &mut RecvStream) -> Option<Bytes> {
    let piece = timeout(TIMEOUT, body.data()).await.unwrap();
    let piece = piece.map(|piece| piece.unwrap());
    if let Some(piece) = &piece {
        let length = piece.len();
        body.flow_control().release_capacity(length).unwrap();
    }
    piece
}
