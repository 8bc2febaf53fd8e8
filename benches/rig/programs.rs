//! The processes under measurement, each on a free port and killed at the end.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

use super::{Subject, bare, null_gateway};

/// A process that is killed when it is dropped.
pub(crate) struct Program(Child);

/// A `redis-server` without persistence.
pub(crate) struct RedisServer {
    pub(crate) program: Program,
    port: u16,
}

/// A process that serves locks over HTTP.
pub(crate) struct Gateway {
    pub(crate) program: Program,
    address: SocketAddr,
    /// The time from the start of the process to the line with its address.
    ready_after: Duration,
}

/// Webdis in front of a Redis.
pub(crate) struct Webdis {
    pub(crate) program: Program,
    address: SocketAddr,
    _files: TempDir,
}

/// How often Redis has run each command, including the commands inside scripts.
#[derive(Clone)]
pub(crate) struct Commands(BTreeMap<String, u64>);

/// The role of this process, if [`Gateway::null`] or [`Gateway::bare`] started it; none if it measures.
pub(crate) fn role() -> Option<fn() -> ExitCode> {
    std::env::args().find_map(|argument| match argument.as_str() {
        null_gateway::ROLE => Some(null_gateway::serve as fn() -> ExitCode),
        bare::ROLE => Some(bare::serve as fn() -> ExitCode),
        _ => None,
    })
}

// === impl Program ===

impl Program {
    pub(crate) fn start(command: &mut Command) -> std::io::Result<Self> {
        command.spawn().map(Self)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The processor time that the process has used.
    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(&self.id().to_string())
    }

    /// The processor time that this process has used, which is that of the clients.
    pub(crate) fn own_cpu() -> Duration {
        cpu_of("self")
    }

    /// The resident memory of the process, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
            .expect("Linux shows the resident set")
    }

    /// Interrupts the process and waits for its end. Answers its output.
    pub(crate) fn interrupted(mut self) -> String {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status();
        sent.expect("there is a program kill");
        let mut written = String::new();
        let errors = self.0.stderr.take().expect("its errors are piped");
        BufReader::new(errors)
            .read_to_string(&mut written)
            .expect("it writes text");
        written
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn cpu_of(process: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("the process lives");
    let after_name = stat.rsplit_once(')').expect("the name is in parentheses").1;
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    // USER_HZ is 100 on every Linux.
    Duration::from_millis(ticks * 10)
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = free.local_addr().expect("a bound socket has an address");
    address.port()
}

fn wait_for(port: u16, what: &str) {
    for _ in 0..400 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(25));
    }
    panic!("{what} does not listen on port {port}");
}

// === impl RedisServer ===

impl RedisServer {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--port"])
            .arg(port.to_string())
            .stdout(Stdio::null());
        let program = Program::start(&mut command);
        let program = program.expect("redis-server runs; install the package redis-server");
        wait_for(port, "redis-server");
        Self { program, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn commands(&self) -> Commands {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await;
        let mut stream = stream.expect("Redis listens");
        let asked = stream.write_all(b"INFO commandstats\r\nQUIT\r\n").await;
        asked.expect("Redis reads");
        let mut reply = String::new();
        let read = stream.read_to_string(&mut reply).await;
        read.expect("Redis answers");
        let counts = reply.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            // Commands that the benchmark itself sends.
            let ours = ["info", "quit"].contains(&name);
            let calls = rest.split_once(',')?.0.parse().ok()?;
            (!ours).then(|| (name.to_owned(), calls))
        });
        Commands(counts.collect())
    }
}

// === impl Commands ===

impl Commands {
    /// The commands since an earlier count.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let more = self.0.iter().map(|(name, calls)| {
            let earlier = before.0.get(name).copied().unwrap_or_default();
            (name.clone(), calls - earlier)
        });
        Self(more.filter(|(_, calls)| *calls > 0).collect())
    }

    pub(crate) fn all(&self) -> u64 {
        self.0.values().sum()
    }

    /// The number of commands, without the calls of scripts.
    pub(crate) fn inside_scripts(&self) -> u64 {
        let scripts = ["evalsha", "eval", "evalsha_ro", "fcall"];
        let calls = scripts.iter().filter_map(|name| self.0.get(*name));
        self.all() - calls.sum::<u64>()
    }

    /// The commands for each of this many operations, as text.
    pub(crate) fn for_each_of(&self, operations: u64) -> String {
        let each = self.0.iter().filter_map(|(name, calls)| {
            let each = *calls as f64 / operations as f64;
            (each >= 0.05).then(|| format!("{name} {each:.1}"))
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

// === impl Gateway ===

impl Gateway {
    /// `latchgate serve` with this store, started as a user does.
    pub(crate) fn serving(subject: &Subject, store: &str) -> Self {
        Self::start(&mut Self::command(subject, store))
    }

    /// `latchgate serve` with the history of locks, or without it.
    pub(crate) fn serving_with_history(subject: &Subject, store: &str, history: bool) -> Self {
        let mut command = Self::command(subject, store);
        if !history {
            command.env("LATCHGATE_HISTORY_ENTRIES", "0");
        }
        Self::start(&mut command)
    }

    /// `latchgate serve` with room for as many requests at once as the benchmark has clients.
    pub(crate) fn serving_a_crowd(subject: &Subject, store: &str) -> Self {
        let mut command = Self::command(subject, store);
        command
            .env("LATCHGATE_HTTP_MAX_CONCURRENT_REQUESTS", "20000")
            .env("LATCHGATE_HTTP_MAX_CONNECTIONS", "20000")
            .env("LATCHGATE_LIMITS_MAX_WAITERS_PER_NAME", "20000");
        Self::start(&mut command)
    }

    /// `latchgate serve` with a library that counts allocations into a file.
    pub(crate) fn counted(subject: &Subject, store: &str, library: &Path, count: &Path) -> Self {
        let mut command = Self::command(subject, store);
        Self::start(preloaded(&mut command, library, count))
    }

    /// The gateway of this build with a store that does nothing.
    pub(crate) fn null() -> Self {
        Self::start(&mut Self::this(null_gateway::ROLE))
    }

    pub(crate) fn null_counted(library: &Path, count: &Path) -> Self {
        let mut command = Self::this(null_gateway::ROLE);
        Self::start(preloaded(&mut command, library, count))
    }

    /// A bare axum route.
    pub(crate) fn bare() -> Self {
        Self::start(&mut Self::this(bare::ROLE))
    }

    fn command(subject: &Subject, store: &str) -> Command {
        let mut command = Command::new(&subject.program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", store]);
        command
    }

    fn this(role: &str) -> Command {
        let mut command =
            Command::new(std::env::current_exe().expect("a process knows its program"));
        command.arg(role);
        command
    }

    fn start(command: &mut Command) -> Self {
        let started = Instant::now();
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = Program::start(command).expect("the gateway starts");
        let output = program.0.stdout.take().expect("the output is piped");
        let mut lines = BufReader::new(output).lines();
        let address = lines
            .find_map(|line| address_in(&line.expect("the gateway prints text")))
            .expect("the gateway prints its address");
        let ready_after = started.elapsed();
        // Keeps the pipe open: a gateway must not fail because its greeting is not read.
        thread::spawn(move || lines.for_each(drop));
        Self {
            program,
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
}

fn preloaded<'a>(command: &'a mut Command, library: &Path, count: &Path) -> &'a mut Command {
    command
        .env("LD_PRELOAD", library)
        .env("LG_BENCH_ALLOCATIONS", count)
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest
        .find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

// === impl Webdis ===

impl Webdis {
    /// Starts Webdis with the configuration of its package, except for address and log. Answers the reason if it is not
    /// installed.
    pub(crate) fn start(redis: &RedisServer) -> Result<Self, String> {
        let files = tempfile::tempdir().expect("a temporary directory can be made");
        let port = free_port();
        let config = serde_json::json!({
            "redis_host": "127.0.0.1", "redis_port": redis.port(),
            "http_host": "127.0.0.1", "http_port": port,
            "threads": 2, "daemonize": false, "database": 0, "verbosity": 0,
            "logfile": "/dev/null", "pidfile": files.path().join("pid"),
        });
        let path = files.path().join("webdis.json");
        fs::write(&path, config.to_string()).expect("a temporary file can be written");
        let mut command = Command::new("webdis");
        command
            .arg(&path)
            // Webdis leaves an empty `webdis.log` in its working directory, whatever its log setting is.
            .current_dir(files.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let program = Program::start(&mut command)
            .map_err(|error| format!("webdis: {error}; get it with `apt-get install webdis`"))?;
        wait_for(port, "webdis");
        Ok(Self {
            program,
            address: ([127, 0, 0, 1], port).into(),
            _files: files,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
