//! A caller of a gateway over one connection, without anything in between that repeats or pools.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::sleep,
};

/// A caller of a gateway over one connection, one request after the other.
pub(crate) struct Caller {
    stream: BufReader<TcpStream>,
}

// === impl Caller ===

impl Caller {
    pub(crate) async fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Acquires a lock; answers the status and the body.
    pub(crate) async fn acquire(&mut self, lock: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", lock, "", &body.to_string()).await
    }

    /// Releases a lease, which must hold its lock.
    pub(crate) async fn release(&mut self, lock: &str, lease: &Value) {
        let token = lease["token"].as_str().unwrap();
        let header = format!("Lock-Token: {token}\r\n");
        let (status, problem) = self.ask_until_done("DELETE", lock, &header).await;
        assert_eq!(status, 204, "{problem}");
    }

    /// Looks at a lock.
    pub(crate) async fn inspect(&mut self, lock: &str) -> Value {
        let (status, shown) = self.ask_until_done("GET", lock, "").await;
        assert_eq!(status, 200, "{shown}");
        shown
    }

    /// Asks again where gateway or store had too much to do, and nothing happened.
    async fn ask_until_done(&mut self, method: &str, lock: &str, headers: &str) -> (u16, Value) {
        loop {
            let (status, told) = self.ask(method, lock, headers, "").await;
            if !is_busy(&told) {
                return (status, told);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ask(&mut self, method: &str, lock: &str, headers: &str, body: &str) -> (u16, Value) {
        let request = format!(
            "{method} /locks/{lock} HTTP/1.1\r\nHost: localhost\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let status = self.line().await;
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = 0;
        loop {
            let header = self.line().await.to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            assert!(!header.starts_with("transfer-encoding:"), "{header}");
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await.unwrap();
        let answer = if answer.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&answer).unwrap()
        };
        (status, answer)
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }
}

/// Whether gateway or store had too much to do to answer in time, and nothing happened.
pub(crate) fn is_busy(told: &Value) -> bool {
    ["store-unavailable", "overloaded"].contains(&told["code"].as_str().unwrap_or_default())
}
