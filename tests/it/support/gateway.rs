//! A gateway process for one test: the real program on a free port, with its store in a temporary directory.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::Instant;

use super::{
    RedisServer,
    program::{Run, latchgate, program, typed},
    stopped::stands_still,
};

/// How long a gateway may take to start or to end, also on a machine that does other work.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The environment and the address of a gateway process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Environment variables of the process.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// The address to listen on, if not a free port of loopback.
    pub(crate) listen: Option<&'static str>,
}

/// A running gateway process, killed when dropped.
pub(crate) struct Gateway {
    /// The address on which the gateway listens.
    pub(crate) address: SocketAddr,
    /// The text that the gateway printed when it was ready.
    pub(crate) greeting: String,
    setup: Setup,
    directory: TempDir,
    child: Child,
}

// === impl Setup ===

impl Setup {
    /// The setup of a gateway with a Redis server as its store.
    pub(crate) fn on(redis: &RedisServer) -> Self {
        let url = format!("redis://127.0.0.1:{}", redis.port());
        Self::default().with("LATCHGATE_STORE", &url)
    }

    /// Sets an environment variable.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }
}

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway on an embedded store and waits until it is ready.
    pub(crate) fn start() -> Self {
        Self::start_with(Setup::default())
    }

    /// Starts a gateway like `start`. Answers the gateway and its URL.
    pub(crate) fn start_and_url() -> (Self, String) {
        let gateway = Self::start();
        let url = gateway.url();
        (gateway, url)
    }

    /// Starts a gateway on an embedded store, unless the setup names another store.
    pub(crate) fn start_with(setup: Setup) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (child, address, greeting) = spawn(&setup, &directory);
        Self {
            address,
            greeting,
            setup,
            directory,
            child,
        }
    }

    /// The URL of the gateway.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.greeting.contains("https://") {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// The program with these arguments, as a client of this gateway.
    pub(crate) fn latchgate(&self, arguments: &[&str]) -> Run {
        latchgate(arguments).env("LATCHGATE_URL", &self.url())
    }

    /// The program with the arguments of a line, as a client of this gateway.
    pub(crate) fn typed(&self, line: &str) -> Run {
        typed(line).env("LATCHGATE_URL", &self.url())
    }

    /// The directory of the gateway's embedded store.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The log of the gateway so far. The gateway buffers lines for some milliseconds, so this reads until no line has
    /// come for several times as long, unless the gateway logs without a pause.
    pub(crate) fn log(&self) -> String {
        let read = || std::fs::read_to_string(self.directory.path().join("log")).unwrap();
        let mut log = read();
        for _ in 0..40 {
            thread::sleep(Duration::from_millis(25));
            let longer = read();
            if longer.len() == log.len() {
                break;
            }
            log = longer;
        }
        log
    }

    /// Waits until the log contains a text. Answers the log.
    pub(crate) fn logged(&self, text: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let log = self.log();
            if log.contains(text) {
                return log;
            }
            assert!(Instant::now() < deadline, "{text:?} is not in {log}");
        }
    }

    /// How many files and connections the gateway has open.
    pub(crate) fn open_files(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.unwrap().count()
    }

    /// Sends a signal to the gateway.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits until every thread of the gateway is stopped: a thread may get the signal in the middle of a system call.
    pub(crate) fn stands_still(&self) {
        stands_still(self.child.id(), TIMEOUT);
    }

    /// Stops every thread of the gateway, as a debugger or a suspended machine does.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        self.stands_still();
    }

    /// Sends a signal to the gateway and waits until it has ended with this code.
    #[track_caller]
    pub(crate) fn ends_by(&mut self, signal: Signal, code: i32) {
        self.signal(signal);
        assert_eq!(self.wait().code(), Some(code), "{}", self.log());
    }

    /// Kills the gateway as `kill -9` does, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Waits until the gateway has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "it does not end:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts the gateway again after its end, on the same store and a new port.
    pub(crate) fn restart(&mut self) {
        (self.child, self.address, self.greeting) = spawn(&self.setup, &self.directory);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The gateway may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(setup: &Setup, directory: &TempDir) -> (Child, SocketAddr, String) {
    let log = directory.path().join("log");
    let store = format!("embedded:{}", directory.path().join("data").display());
    let mut command: Command = program();
    let child = command
        .env("LATCHGATE_STORE", store)
        .envs(setup.variables.clone())
        .args(["serve", "--listen", setup.listen.unwrap_or("127.0.0.1:0")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(
            File::options()
                .create(true)
                .append(true)
                .open(&log)
                .unwrap(),
        )
        .spawn();
    let mut child = child.unwrap();
    let (line_read, lines) = mpsc::sync_channel(16);
    let out = BufReader::new(child.stdout.take().unwrap());
    // Reads to the end, so that the gateway never waits for a full pipe.
    thread::spawn(move || {
        for line in out.lines() {
            drop(line_read.try_send(line.unwrap()));
        }
    });
    let mut greeting = String::new();
    while !greeting.contains("curl") {
        if let Ok(line) = lines.recv_timeout(TIMEOUT) {
            greeting = greeting + &line + "\n";
        } else {
            drop(child.kill());
            panic!(
                "it does not start:\n{}",
                std::fs::read_to_string(&log).unwrap()
            );
        }
    }
    // The last URL of the greeting is for other commands to use: it has an address that can be reached.
    let (_, address) = greeting.rsplit_once("://").unwrap();
    let end = address.find(['/', '\n']).unwrap();
    let address = address[..end].parse().unwrap();
    (child, address, greeting)
}
