//! Callers that speak HTTP/1.1 on kept connections, with as little work of their own as possible.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};

static NAMES: AtomicU64 = AtomicU64::new(0);

/// Runs pairs on this many connections for this long.
pub(crate) async fn pairs_per_second(
    address: SocketAddr,
    connections: usize,
    each: Duration,
) -> f64 {
    let pairs = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    let started = Instant::now();
    for _ in 0..connections {
        let pairs = Arc::clone(&pairs);
        callers.spawn(async move {
            let mut caller = Caller::connect(address).await;
            while started.elapsed() < each {
                caller.pair().await;
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    callers.join_all().await;
    pairs.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
    number: u64,
}

// === impl Caller ===

impl Caller {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .await
            .expect("the gateway listens");
        stream
            .set_nodelay(true)
            .expect("a connected socket takes the option");
        let number = NAMES.fetch_add(1, Ordering::Relaxed) << 32;
        Self {
            stream,
            buffer: Vec::with_capacity(4096),
            number,
        }
    }

    /// Acquires a lock that nobody else uses, and releases it.
    async fn pair(&mut self) {
        self.number += 1;
        let name = self.number;
        let acquire = format!(
            "POST /locks/bench:{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        );
        let body = self.exchange(&acquire, "201").await;
        let start = find(&self.buffer[body..], b"\"token\":\"").expect("a lease has a token");
        let token = &self.buffer[body + start + 9..][..43];
        let token = std::str::from_utf8(token).expect("a token is ASCII");
        let release = format!(
            "DELETE /locks/bench:{name} HTTP/1.1\r\nHost: localhost\r\nLock-Token: {token}\r\n\r\n"
        );
        self.exchange(&release, "204").await;
    }

    /// Sends a request and reads its whole answer; says where the body begins.
    async fn exchange(&mut self, request: &str, status: &str) -> usize {
        self.stream
            .write_all(request.as_bytes())
            .await
            .expect("the gateway reads");
        self.buffer.clear();
        loop {
            let read = self
                .stream
                .read_buf(&mut self.buffer)
                .await
                .expect("the gateway answers");
            assert!(read > 0, "the gateway closed the connection");
            if let Some(head) = find(&self.buffer, b"\r\n\r\n") {
                let body = head + 4;
                if self.buffer.len() >= body + content_length(&self.buffer[..head]) {
                    assert_eq!(
                        std::str::from_utf8(&self.buffer[9..12]),
                        Ok(status),
                        "{}",
                        String::from_utf8_lossy(&self.buffer)
                    );
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
