//! HTTP/1.1 over one connection, without a library: every failure is reported, and no request is repeated.

use std::{fmt::Write, io, net::SocketAddr, time::Duration};

use futures_util::FutureExt;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// A connection that carries one request after the other.
pub(crate) struct Connection<S> {
    stream: S,
    /// Bytes that were received and not yet parsed.
    bytes: Vec<u8>,
    /// Whether the last answer says that the connection is closed after it.
    closes: bool,
    /// How many requests were answered.
    answered: u32,
}

/// A request to send.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The body of the request; none if it is `null`.
    pub(crate) body: Value,
}

/// An event of a stream: its name and its data.
pub(crate) type Event = (String, Value);

/// Longer than any wait in a queue, also on a machine that does other work.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Connects with a small receive buffer, whatever the default of the machine is.
pub(crate) async fn connect_with_little_room(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(to).await.unwrap()
}

// === impl HttpRequest ===

impl HttpRequest {
    pub(crate) fn new(method: &'static str, path: String) -> Self {
        Self {
            method,
            path,
            ..Self::default()
        }
    }

    /// Adds a header to the request.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sets the body of the request.
    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = body;
        self
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\n",
            self.method, self.path
        );
        for (name, value) in &self.headers {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        let body = if self.body.is_null() {
            String::new()
        } else {
            self.body.to_string()
        };
        let length = body.len();
        write!(
            text,
            "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        text
    }
}

// === impl Connection ===

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            closes: false,
            answered: 0,
        }
    }

    /// Whether another request may be sent: neither side is known to have closed the connection.
    pub(crate) fn is_open(&mut self) -> bool {
        let waiting = self.stream.read_buf(&mut self.bytes).now_or_never();
        !self.closes && waiting.is_none() && self.bytes.is_empty()
    }

    /// How many requests were answered.
    pub(crate) fn answered(&self) -> u32 {
        self.answered
    }

    /// Sends a request without waiting for the answer.
    pub(crate) async fn send(&mut self, asked: &HttpRequest) -> io::Result<()> {
        self.stream.write_all(asked.text().as_bytes()).await?;
        self.stream.flush().await
    }

    /// Sends a request and reads its whole answer. An error means that there was no complete answer.
    pub(crate) async fn ask(&mut self, asked: &HttpRequest) -> io::Result<(u16, Value)> {
        within(async {
            let (status, length) = self.head(asked).await?;
            self.rest(status, length).await
        })
        .await
    }

    /// Asks for a stream. An answer that is not a stream is read completely and returned.
    pub(crate) async fn open(&mut self, asked: &HttpRequest) -> io::Result<Option<(u16, Value)>> {
        within(async {
            let (status, length) = self.head(asked).await?;
            match length {
                None if status == 200 => Ok(None),
                length => Ok(Some(self.rest(status, length).await?)),
            }
        })
        .await
    }

    /// The next event of a stream; `None` at its end. An error means that the stream was cut. The future can be dropped
    /// at any time without losing an event.
    pub(crate) async fn event(&mut self) -> io::Result<Option<Event>> {
        loop {
            let Some(chunk) = self.chunk() else {
                within(self.read()).await?;
                continue;
            };
            if chunk.is_empty() {
                return Ok(None);
            }
            if let Some(event) = read_event(&chunk) {
                return Ok(Some(event));
            }
        }
    }

    /// The next chunk of a body, if it has arrived completely; empty at the end of the body.
    fn chunk(&mut self) -> Option<String> {
        let line = find(&self.bytes, b"\r\n")?;
        let size = std::str::from_utf8(&self.bytes[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let end = line + 2 + size;
        if self.bytes.len() < end + 2 {
            return None;
        }
        let chunk = String::from_utf8(self.bytes[line + 2..end].to_vec()).unwrap();
        self.bytes.drain(..end + 2);
        Some(chunk)
    }

    /// Sends a request and reads the head of its answer: the status, and the length of the body if the head has one.
    async fn head(&mut self, asked: &HttpRequest) -> io::Result<(u16, Option<usize>)> {
        self.send(asked).await?;
        let end = loop {
            match find(&self.bytes, b"\r\n\r\n") {
                Some(end) => break end,
                None => self.read().await?,
            }
        };
        let head: Vec<_> = self.bytes.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        self.closes = field("connection: ") == Some("close");
        self.answered += 1;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = field("content-length: ").map(|length| length.parse().unwrap());
        Ok((status, length))
    }

    async fn rest(&mut self, status: u16, length: Option<usize>) -> io::Result<(u16, Value)> {
        let length = length.unwrap_or_default();
        while self.bytes.len() < length {
            self.read().await?;
        }
        let body: Vec<_> = self.bytes.drain(..length).collect();
        let body = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).unwrap()
        };
        Ok((status, body))
    }

    async fn read(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.bytes).await? > 0 {
            return Ok(());
        }
        let after = String::from_utf8_lossy(&self.bytes);
        let cut = format!("the connection was closed after {after:?}");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, cut))
    }
}

/// Parses an event of a stream; `None` if it is a comment.
pub(crate) fn read_event(text: &str) -> Option<Event> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let (name, data) = (field("event: ")?, field("data: ")?);
    Some((name.to_owned(), serde_json::from_str(data).unwrap()))
}

fn find(bytes: &[u8], end: &[u8]) -> Option<usize> {
    bytes.windows(end.len()).position(|part| part == end)
}

async fn within<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(TIMEOUT, answer).await.expect("an answer in time")
}
