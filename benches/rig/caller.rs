//! An HTTP/1.1 caller on a kept connection that uses as little processor time as possible.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A connection with one request at a time.
pub(crate) struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
}

// === impl Caller ===

impl Caller {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .await
            .expect("the server listens");
        stream
            .set_nodelay(true)
            .expect("a connected socket takes the option");
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Acquires a lock. Answers its token.
    pub(crate) async fn acquire(&mut self, name: &str, body: &str) -> String {
        self.start_acquire(name, body).await;
        self.granted().await
    }

    /// Acquires a lock; nothing if it is refused or the outcome is unknown, as a crowd may be faster than the store.
    pub(crate) async fn try_acquire(&mut self, name: &str, body: &str) -> Option<String> {
        self.start_acquire(name, body).await;
        let (status, body) = self.any_answer().await;
        (status == "201").then(|| token_in(body))
    }

    /// Acquires a group of locks unless it is refused.
    pub(crate) async fn try_acquire_group(&mut self, body: &str) -> Option<String> {
        self.start("POST", "/locks", "", body).await;
        let (status, body) = self.any_answer().await;
        (status == "201").then(|| token_in(body))
    }

    /// Releases a group. `names`: the locks, separated by commas.
    pub(crate) async fn release_group(&mut self, names: &str, token: &str) {
        self.send(&format!(
            "DELETE /locks?names={names} HTTP/1.1\r\nHost: localhost\r\nLock-Token: {token}\r\n\r\n"
        ))
        .await;
        self.answer("200").await;
    }

    /// Sends an acquire without waiting for the answer.
    pub(crate) async fn start_acquire(&mut self, name: &str, body: &str) {
        self.start("POST", &format!("/locks/{name}"), "", body)
            .await;
    }

    /// Acquires a lock with a fresh idempotency key.
    pub(crate) async fn acquire_keyed(&mut self, name: &str) -> String {
        let key = format!("Idempotency-Key: benchmark-key-of-{name:0>32}\r\n");
        self.start("POST", &format!("/locks/{name}"), &key, "")
            .await;
        self.granted().await
    }

    /// Reads the answer to an acquire. Answers the token.
    pub(crate) async fn granted(&mut self) -> String {
        token_in(self.answer("201").await)
    }

    pub(crate) async fn renew(&mut self, name: &str, token: &str) {
        let token = format!("Lock-Token: {token}\r\n");
        let path = format!("/locks/{name}/renew");
        self.start("PUT", &path, &token, "").await;
        self.answer("200").await;
    }

    pub(crate) async fn release(&mut self, name: &str, token: &str) {
        self.start_release(name, token).await;
        self.answer("204").await;
    }

    /// Releases a lock. Answers false if the store could not answer, so that the release must be repeated.
    pub(crate) async fn try_release(&mut self, name: &str, token: &str) -> bool {
        self.start_release(name, token).await;
        !self.any_answer().await.0.starts_with('5')
    }

    async fn start_release(&mut self, name: &str, token: &str) {
        self.send(&format!(
            "DELETE /locks/{name} HTTP/1.1\r\nHost: localhost\r\nLock-Token: {token}\r\n\r\n"
        ))
        .await;
    }

    /// The number of waiters of a lock.
    pub(crate) async fn waiters(&mut self, name: &str) -> u64 {
        let body = self.get(&format!("/locks/{name}")).await;
        let (_, count) = body.split_once("\"waiter_count\":").expect("it is shown");
        let end = count.find(|c: char| !c.is_ascii_digit());
        count[..end.unwrap_or(count.len())]
            .parse()
            .expect("a count is a number")
    }

    /// Reads a page of held locks. Answers the cursor of the next page.
    pub(crate) async fn list(&mut self, query: &str) -> Option<String> {
        let body = self.get(&format!("/locks{query}")).await;
        let (_, cursor) = body.split_once("\"next_cursor\":").expect("a page has it");
        let cursor = cursor.strip_prefix('"')?;
        Some(cursor[..cursor.find('"')?].to_owned())
    }

    /// Opens a stream that holds a lock, and reads until the lock is granted.
    pub(crate) async fn hold(&mut self, name: &str) {
        self.start("POST", &format!("/locks/{name}/hold"), "", "")
            .await;
        self.buffer.clear();
        while find(&self.buffer, b"event: granted").is_none() {
            self.read().await;
        }
    }

    /// Posts a text. Answers the body of the answer.
    pub(crate) async fn post(&mut self, path: &str, body: &str) -> &str {
        self.start("POST", path, "", body).await;
        self.answer("200").await
    }

    /// The length of the last answer, with its head.
    pub(crate) fn answered_bytes(&self) -> usize {
        self.buffer.len()
    }

    async fn get(&mut self, path: &str) -> &str {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            .await;
        self.answer("200").await
    }

    async fn start(&mut self, method: &str, path: &str, header: &str, body: &str) {
        let kind = if body.is_empty() {
            ""
        } else {
            "Content-Type: application/json\r\n"
        };
        let length = body.len();
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}{kind}Content-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    }

    async fn send(&mut self, request: &str) {
        self.stream
            .write_all(request.as_bytes())
            .await
            .expect("the server reads");
    }

    async fn read(&mut self) {
        let read = self.stream.read_buf(&mut self.buffer).await;
        let whole = || String::from_utf8_lossy(&self.buffer);
        assert!(read.expect("the server answers") > 0, "closed: {}", whole());
    }

    /// Reads a whole answer, which must have this status. Answers its body.
    async fn answer(&mut self, expected: &str) -> &str {
        let (status, body) = self.any_answer().await;
        assert_eq!(status, expected, "{body}");
        body
    }

    /// Reads a whole answer. Answers status and body.
    async fn any_answer(&mut self) -> (&str, &str) {
        self.buffer.clear();
        loop {
            self.read().await;
            let Some(head) = find(&self.buffer, b"\r\n\r\n") else {
                continue;
            };
            let body = head + 4;
            if self.buffer.len() >= body + content_length(&self.buffer[..head]) {
                let whole = std::str::from_utf8(&self.buffer).expect("answers are text");
                return (&whole[9..12], &whole[body..]);
            }
        }
    }
}

fn token_in(body: &str) -> String {
    let (_, rest) = body.split_once("\"token\":\"").expect("a lease has one");
    rest[..43].to_owned()
}

fn content_length(head: &[u8]) -> usize {
    let lower = b"content-length: ";
    // Webdis writes the name of this header in another case.
    let Some(start) = find(head, lower).or_else(|| find(head, b"Content-Length: ")) else {
        return 0;
    };
    head[start + lower.len()..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
