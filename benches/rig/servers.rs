//! The processes that are measured, each on a free port and killed at the end.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::null_gateway;

/// A `redis-server` without persistence.
pub(crate) struct RedisServer {
    process: Child,
    port: u16,
}

/// A gateway in a process of its own.
pub(crate) struct Gateway {
    process: Child,
    address: SocketAddr,
    /// From the start of the process to the first line it prints.
    ready_after: Duration,
}

// === impl RedisServer ===

impl RedisServer {
    pub(crate) fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = free
            .local_addr()
            .expect("a bound socket has an address")
            .port();
        drop(free);
        let process = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server runs; install the package redis-server");
        let server = Self { process, port };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            thread::sleep(Duration::from_millis(25));
        }
        panic!("redis-server does not listen on port {port}");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many commands it has carried out, those inside of scripts included.
    pub(crate) async fn commands(&self) -> u64 {
        let stats = self.info("commandstats").await;
        let calls = stats
            .lines()
            .filter_map(|line| line.split_once("calls=")?.1.split_once(','));
        calls
            .filter_map(|(calls, _)| calls.parse::<u64>().ok())
            .sum()
    }

    async fn info(&self, section: &str) -> String {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("Redis listens");
        let mut stream = tokio::net::TcpStream::from_std({
            stream
                .set_nonblocking(true)
                .expect("a socket takes the option");
            stream
        })
        .expect("a runtime is running");
        let request = format!("INFO {section}\r\nQUIT\r\n");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("Redis reads");
        let mut reply = String::new();
        stream
            .read_to_string(&mut reply)
            .await
            .expect("Redis answers");
        reply
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

// === impl Gateway ===

impl Gateway {
    /// `latchgate serve` over this store, as a user starts it but for the log level.
    pub(crate) fn serving(store: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latchgate"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", store]);
        Self::start(&mut command)
    }

    /// The same, for as many requests at one instant as the benchmark has clients.
    pub(crate) fn serving_a_crowd(store: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latchgate"));
        command
            .env("LATCHGATE_HTTP_MAX_CONCURRENT_REQUESTS", "20000")
            .env("LATCHGATE_HTTP_MAX_CONNECTIONS", "20000")
            .args(["serve", "--listen", "127.0.0.1:0", "--store", store]);
        Self::start(&mut command)
    }

    /// The same router over a store that does nothing.
    pub(crate) fn null() -> Self {
        let this = std::env::current_exe().expect("a process knows its program");
        Self::start(Command::new(this).args(null_gateway::ARGUMENTS))
    }

    fn start(command: &mut Command) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "measures another process from outside"
        )]
        let now = std::time::Instant::now;
        let started = now();
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the gateway starts");
        let output = process.stdout.take().expect("the output is piped");
        let mut lines = BufReader::new(output).lines();
        let address = lines
            .find_map(|line| address_in(&line.expect("the gateway prints text")))
            .expect("the gateway prints its address");
        let ready_after = started.elapsed();
        // Keeps the pipe open: a gateway must not fail because nobody reads its greeting.
        thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            address,
            ready_after,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// The processor time that the process has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))
            .expect("the process lives");
        let after_name = stat.rsplit_once(')').expect("the name is in parentheses").1;
        let fields = after_name.split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        // USER_HZ is 100 on every Linux.
        Duration::from_millis(ticks * 10)
    }

    /// The memory that the process occupies, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))
            .expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
            .expect("Linux shows the resident set")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest
        .find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}
