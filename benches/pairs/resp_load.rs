//! Callers that have a Redis driver: RESP on a connection each, with the gateway's own scripts.

use std::{
    fmt::Write as _,
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

/// Where the gateway's scripts are.
const LUA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/scripts");

static NAMES: AtomicU64 = AtomicU64::new(0);

/// A way to one Redis.
pub(crate) struct Client {
    port: u16,
}

struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
    acquire: String,
    release: String,
    number: u64,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(port: u16) -> Self {
        Self { port }
    }

    /// Runs pairs on this many connections for this long.
    pub(crate) async fn pairs_per_second(&self, connections: usize, each: Duration) -> f64 {
        let pairs = Arc::new(AtomicU64::new(0));
        let mut callers = JoinSet::new();
        let started = Instant::now();
        for _ in 0..connections {
            let pairs = Arc::clone(&pairs);
            let port = self.port;
            callers.spawn(async move {
                let mut caller = Caller::connect(port).await;
                while started.elapsed() < each {
                    caller.pair().await;
                    pairs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        callers.join_all().await;
        pairs.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
    }
}

// === impl Caller ===

impl Caller {
    async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("Redis listens");
        stream
            .set_nodelay(true)
            .expect("a connected socket takes the option");
        let number = NAMES.fetch_add(1, Ordering::Relaxed) << 32;
        let buffer = Vec::with_capacity(4096);
        let mut caller = Self {
            stream,
            buffer,
            acquire: String::new(),
            release: String::new(),
            number,
        };
        caller.acquire = caller.load("acquire").await;
        caller.release = caller.load("release").await;
        caller
    }

    async fn load(&mut self, name: &str) -> String {
        let script = composed(name);
        self.exchange(&["SCRIPT", "LOAD", &script]).await;
        let reply = std::str::from_utf8(&self.buffer).expect("a hash is ASCII");
        reply
            .lines()
            .nth(1)
            .expect("a hash follows its length")
            .to_owned()
    }

    /// Acquires a lock that nobody else uses, and releases it.
    async fn pair(&mut self) {
        self.number += 1;
        let name = self.number;
        let lock = format!("lg:{{native:{name}}}:lock");
        let fence = format!("lg:{{{}}}:fence", name & 0x3fff);
        let token = format!("2{name:064x}");
        let keys = [&*lock, &*fence];
        let (acquire, release) = (self.acquire.clone(), self.release.clone());
        let gateway = format!("{:016}{:016x}", 0, 1);
        let rest = format!("00030000000000000{:80}\n", "");
        let mut command = vec!["EVALSHA", &acquire, "2"];
        command.extend(keys);
        command.extend([&*token, "30000", &*rest, &*gateway, "", "", "", "0"]);
        self.exchange(&command).await;
        self.expect("granted");
        let mut command = vec!["EVALSHA", &release, "2"];
        command.extend(keys);
        command.extend([&*token, &*gateway]);
        self.exchange(&command).await;
        self.expect("released");
    }

    fn expect(&self, outcome: &str) {
        let reply = String::from_utf8_lossy(&self.buffer);
        assert!(reply.contains(outcome), "{reply}");
    }

    async fn exchange(&mut self, command: &[&str]) {
        let mut request = format!("*{}\r\n", command.len());
        for part in command {
            write!(request, "${}\r\n{part}\r\n", part.len()).expect("a string takes all");
        }
        self.stream
            .write_all(request.as_bytes())
            .await
            .expect("Redis reads");
        self.buffer.clear();
        loop {
            let read = self
                .stream
                .read_buf(&mut self.buffer)
                .await
                .expect("Redis answers");
            assert!(read > 0, "Redis closed the connection");
            if value_end(&self.buffer).is_some() {
                return;
            }
        }
    }
}

/// A script with the parts that it imports, as the gateway sends it.
fn composed(name: &str) -> String {
    let read = |name: &str| {
        let path = format!("{LUA}/{name}.lua");
        std::fs::read_to_string(path).expect("the scripts are next to the benches")
    };
    let text = read(name);
    let lines = text.lines().map(|line| {
        let part = line.strip_prefix("-- import ");
        part.map_or_else(|| line.to_owned(), read)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Where the first RESP value ends, if it is all there.
fn value_end(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let after = line + 2;
    let count = || {
        std::str::from_utf8(&bytes[1..line])
            .ok()?
            .parse::<i64>()
            .ok()
    };
    match bytes[0] {
        b'$' => match usize::try_from(count()?) {
            Ok(length) => (bytes.len() >= after + length + 2).then_some(after + length + 2),
            Err(_nil) => Some(after),
        },
        b'*' => (0..count()?).try_fold(after, |end, _| Some(end + value_end(bytes.get(end..)?)?)),
        _ => Some(after),
    }
}
