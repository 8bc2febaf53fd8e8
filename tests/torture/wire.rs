//! HTTP/1.1 over one connection, without a library.

use std::{io, net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

/// A connection to a gateway.
pub(crate) struct Wire {
    stream: BufReader<TcpStream>,
}

/// An answer of a gateway.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Whether the connection can be used again.
    pub(crate) goes_on: bool,
}

/// The longest time to open a connection.
const CONNECT: Duration = Duration::from_secs(2);

// === impl Wire ===

impl Wire {
    pub(crate) async fn connect(to: SocketAddr) -> io::Result<Self> {
        let stream = timeout(CONNECT, TcpStream::connect(to)).await??;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request.
    pub(crate) async fn send(&mut self, line: &str, headers: &str, body: &str) -> io::Result<()> {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await
    }

    /// Reads a whole answer.
    pub(crate) async fn reply(&mut self) -> io::Result<Reply> {
        let (status, length, goes_on) = self.head().await?;
        let mut body = vec![0; length.unwrap_or_default()];
        self.stream.read_exact(&mut body).await?;
        let body = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).map_err(io::Error::other)?
        };
        Ok(Reply {
            status,
            body,
            goes_on,
        })
    }

    /// Reads the beginning of an answer that may be a stream. An answer with a length is read completely and returned.
    pub(crate) async fn stream(&mut self) -> io::Result<Option<Reply>> {
        let (status, length, goes_on) = self.head().await?;
        let Some(length) = length else {
            return Ok(None);
        };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(Some(Reply {
            status,
            body: serde_json::from_slice(&body).map_err(io::Error::other)?,
            goes_on,
        }))
    }

    /// The next event of a stream: name and data. Lines with the lengths of chunks are skipped.
    pub(crate) async fn event(&mut self) -> io::Result<(String, Value)> {
        let mut name = String::new();
        loop {
            let line = self.line().await?;
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(data).map_err(io::Error::other)?;
                return Ok((name, data));
            }
        }
    }

    /// Waits until there are bytes to read, or the connection ends.
    pub(crate) async fn readable(&self) {
        // An error is an end of the connection, too.
        drop(self.stream.get_ref().readable().await);
    }

    /// Closes the connection with a reset instead of an orderly end.
    pub(crate) fn reset(self) {
        // If this fails, the connection ends in the ordinary way, which serves the test as well.
        drop(self.stream.get_ref().set_zero_linger());
    }

    async fn head(&mut self) -> io::Result<(u16, Option<usize>, bool)> {
        let broken = || io::Error::other("that is no answer");
        let line = self.line().await?;
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.ok_or_else(broken)?;
        let (mut length, mut goes_on) = ((status == 204).then_some(0), true);
        loop {
            let header = self.line().await?.to_ascii_lowercase();
            if header.is_empty() {
                return Ok((status, length, goes_on));
            }
            match header
                .split_once(':')
                .map(|(name, value)| (name, value.trim()))
            {
                Some(("content-length", value)) => {
                    length = Some(value.parse().map_err(|_| broken())?);
                }
                Some(("connection", "close")) => goes_on = false,
                _ => {}
            }
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}
