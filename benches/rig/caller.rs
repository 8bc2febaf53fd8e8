//! A caller that speaks HTTP/1.1 on a kept connection, with as little work of its own as possible.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// One connection with one request under way at a time.
pub(crate) struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
}

// === impl Caller ===

impl Caller {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .await
            .expect("the gateway listens");
        stream
            .set_nodelay(true)
            .expect("a connected socket takes the option");
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Acquires a lock and says its token.
    pub(crate) async fn acquire(&mut self, name: &str, body: &str) -> String {
        self.start_acquire(name, body).await;
        self.granted().await
    }

    /// Asks for a lock without waiting for the answer.
    pub(crate) async fn start_acquire(&mut self, name: &str, body: &str) {
        let kind = if body.is_empty() {
            ""
        } else {
            "Content-Type: application/json\r\n"
        };
        let length = body.len();
        self.send(&format!(
            "POST /locks/{name} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    }

    /// The token of the lease that was asked for.
    pub(crate) async fn granted(&mut self) -> String {
        let body = self.answer("201").await;
        let start = find(&self.buffer[body..], b"\"token\":\"").expect("a lease has a token");
        let token = &self.buffer[body + start + 9..][..43];
        std::str::from_utf8(token)
            .expect("a token is ASCII")
            .to_owned()
    }

    pub(crate) async fn release(&mut self, name: &str, token: &str) {
        self.send(&format!(
            "DELETE /locks/{name} HTTP/1.1\r\nHost: localhost\r\nLock-Token: {token}\r\n\r\n"
        ))
        .await;
        self.answer("204").await;
    }

    /// Asks for a page of held locks; says where the next begins.
    pub(crate) async fn list(&mut self, query: &str) -> Option<String> {
        self.send(&format!(
            "GET /locks{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ))
        .await;
        let body = self.answer("200").await;
        let start = find(&self.buffer[body..], b"\"next_cursor\":").expect("a page has it");
        let cursor = &self.buffer[body + start + 14..];
        let cursor = cursor.strip_prefix(b"\"")?.get(..24)?;
        Some(String::from_utf8_lossy(cursor).into_owned())
    }

    /// Opens a stream that holds a lock, and reads until the lock is granted.
    pub(crate) async fn hold(&mut self, name: &str) {
        self.send(&format!(
            "POST /locks/{name}/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        ))
        .await;
        self.buffer.clear();
        while find(&self.buffer, b"event: granted").is_none() {
            self.read().await;
        }
    }

    async fn send(&mut self, request: &str) {
        self.stream
            .write_all(request.as_bytes())
            .await
            .expect("the gateway reads");
    }

    async fn read(&mut self) {
        let read = self
            .stream
            .read_buf(&mut self.buffer)
            .await
            .expect("the gateway answers");
        assert!(
            read > 0,
            "closed: {}",
            String::from_utf8_lossy(&self.buffer)
        );
    }

    /// Reads a whole answer; says where its body begins.
    async fn answer(&mut self, status: &str) -> usize {
        self.buffer.clear();
        loop {
            self.read().await;
            if let Some(head) = find(&self.buffer, b"\r\n\r\n") {
                let body = head + 4;
                if self.buffer.len() >= body + content_length(&self.buffer[..head]) {
                    let whole = || String::from_utf8_lossy(&self.buffer);
                    assert_eq!(&self.buffer[9..12], status.as_bytes(), "{}", whole());
                    return body;
                }
            }
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let Some(start) = find(head, b"content-length: ") else {
        return 0;
    };
    head[start + 16..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
