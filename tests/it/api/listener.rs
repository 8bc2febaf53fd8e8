//! Somebody who listens to a stream of events, over a socket that can be broken in several ways.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::service::Service;

/// How long a test waits for something that must come.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The caller of a hold.
pub(crate) struct Listener {
    stream: TcpStream,
    /// What has come and was not looked at.
    bytes: Vec<u8>,
    /// The head of the answer, in lower case.
    pub(crate) head: String,
}

/// Lets a service notice what has happened to its connections so far: whatever came before the
/// bytes of a request that it answers has come, too.
pub(crate) async fn notices(service: &Service) {
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let next = Listener::ask(service.connect().await, request).await;
    assert!(next.head.starts_with("http/1.1 200"), "{}", next.head);
}

// === impl Listener ===

impl Listener {
    /// Sends a request for a hold of `a` and reads the head of the answer.
    pub(crate) async fn hold(stream: TcpStream, headers: &str, body: &str) -> Self {
        let request = format!(
            "POST /locks/a/hold HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        Self::ask(stream, &request).await
    }

    /// Sends a request and reads the head of the answer.
    pub(crate) async fn ask(mut stream: TcpStream, request: &str) -> Self {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut listener = Self {
            stream,
            bytes: Vec::new(),
            head: String::new(),
        };
        listener.head = listener.until(b"\r\n\r\n").await.to_lowercase();
        listener
    }

    /// The next event and its data.
    pub(crate) async fn event(&mut self) -> (String, Value) {
        let (name, data) = self.event_or_end().await.expect("the stream has ended");
        (name, data)
    }

    /// The next event, which must be this one; answers its data.
    pub(crate) async fn expect(&mut self, name: &str) -> Value {
        let (got, data) = self.event().await;
        assert_eq!(got, name, "{data}");
        data
    }

    /// The stream ends here, properly.
    pub(crate) async fn ends(&mut self) {
        let event = self.event_or_end().await;
        assert!(event.is_none(), "{event:?}");
    }

    /// What comes next: a comment is an event without name and data.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let size = self.until(b"\r\n").await;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let chunk = self.take(size + 2).await;
        (size > 0).then(|| chunk.trim_end_matches("\r\n").to_owned())
    }

    /// The stream, for another request or to be broken.
    pub(crate) fn into_stream(self) -> TcpStream {
        assert!(
            self.bytes.is_empty(),
            "something has come: {:?}",
            self.bytes
        );
        self.stream
    }

    async fn event_or_end(&mut self) -> Option<(String, Value)> {
        loop {
            let chunk = self.chunk().await?;
            assert!(chunk.ends_with("\n\n"), "one chunk is one event: {chunk:?}");
            if chunk == ":\n\n" {
                continue;
            }
            let (name, data) = chunk.trim_end().split_once('\n').unwrap();
            let name = name.strip_prefix("event: ").unwrap().to_owned();
            let data = data.strip_prefix("data: ").unwrap();
            return Some((name, serde_json::from_str(data).unwrap()));
        }
    }

    async fn until(&mut self, end: &[u8]) -> String {
        loop {
            let found = self.bytes.windows(end.len()).position(|part| part == end);
            if let Some(at) = found {
                return self.take(at + end.len()).await;
            }
            self.read().await;
        }
    }

    async fn take(&mut self, length: usize) -> String {
        while self.bytes.len() < length {
            self.read().await;
        }
        let rest = self.bytes.split_off(length);
        let taken = std::mem::replace(&mut self.bytes, rest);
        String::from_utf8(taken).unwrap()
    }

    async fn read(&mut self) {
        let mut buffer = [0; 4096];
        let read = timeout(TIMEOUT, self.stream.read(&mut buffer)).await;
        let read = read.expect("nothing came in time").unwrap();
        assert!(read > 0, "the connection was cut");
        self.bytes.extend(&buffer[..read]);
    }
}
