//! A `redis-server` process for one test, on a free port and in a temporary directory.

use std::{
    fs::File,
    net::TcpListener,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use bb8_redis::redis::{self, Cmd, Value, aio::MultiplexedConnection};
use latchgate::config::{ServersUrl, StoreUrl};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{Clock, Files, spawn, stopped::stands_still, words};

/// A running Redis server, killed when dropped.
pub(crate) struct RedisServer {
    port: u16,
    directory: TempDir,
    options: Vec<String>,
    clock: Option<Clock>,
    process: Child,
}

/// More time than any machine needs to start a server.
const TIMEOUT: Duration = Duration::from_mins(1);

// === impl RedisServer ===

impl RedisServer {
    /// Placeholder among the options for a free port.
    pub(crate) const FREE_PORT: &str = "FREE_PORT";

    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further options, each a name or a value as on its command line.
    pub(crate) async fn start_with(options: &[&str]) -> Self {
        Self::launched(options, None).await
    }

    /// Starts a server with the options of a line.
    pub(crate) async fn start_as(line: &str) -> Self {
        Self::start_with(&words(line).collect::<Vec<_>>()).await
    }

    /// Starts a server that writes each command to its append-only file before it replies.
    pub(crate) async fn start_logged() -> Self {
        Self::start_as("--appendonly yes --appendfsync always").await
    }

    /// Starts a server that accepts TLS too, with this certificate, from clients with a certificate of `authority`, and
    /// with further options. Answers the server and its TLS port.
    pub(crate) async fn start_tls(
        files: &Files,
        authority: &str,
        options: &[&str],
    ) -> (Self, String) {
        let (certificate, key) = (files.certificate(), files.key());
        let tls = [
            ["--tls-port", Self::FREE_PORT],
            ["--tls-cert-file", &certificate],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", authority],
        ];
        let server = Self::start_with(&[tls.as_flattened(), options].concat()).await;
        let port = server.option("--tls-port").to_owned();
        (server, port)
    }

    /// Starts a server with its own clock.
    pub(crate) async fn start_on(clock: Clock, options: &[&str]) -> Self {
        Self::launched(options, Some(clock)).await
    }

    async fn launched(options: &[&str], clock: Option<Clock>) -> Self {
        let start = Instant::now();
        loop {
            let option = |&option: &&str| match option {
                Self::FREE_PORT => free_port().to_string(),
                option => option.to_owned(),
            };
            let options: Vec<String> = options.iter().map(option).collect();
            let directory = tempfile::tempdir().expect("a temporary directory can be made");
            let port = free_port();
            let mut server = Self {
                port,
                process: launch(port, directory.path(), &options, clock.as_ref()),
                directory,
                options,
                clock: clock.clone(),
            };
            if server.answers().await {
                return server;
            }
            // Another process may have taken the port first: try another port.
            assert!(start.elapsed() < TIMEOUT, "{}", server.log());
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The value of a start option.
    pub(crate) fn option(&self, name: &str) -> &str {
        let mut options = self.options.iter();
        options.find(|option| *option == name);
        options.next().expect("the option has a value")
    }

    /// The directory in which the server keeps its files.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn url(&self) -> ServersUrl {
        url(&format!("redis://127.0.0.1:{}", self.port))
    }

    /// The URL of a database of the server.
    pub(crate) fn url_of_database(&self, number: u16) -> ServersUrl {
        url(&format!("redis://127.0.0.1:{}/{number}", self.port))
    }

    /// The URL of the server with user and password.
    pub(crate) fn url_as(&self, user: &str, password: &str) -> ServersUrl {
        url(&format!(
            "redis://{user}:{password}@127.0.0.1:{}",
            self.port
        ))
    }

    /// Kills the server as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server can be waited for");
    }

    /// Starts the server again, on the same port and in the same directory.
    pub(crate) async fn start_again(&mut self) {
        self.launch_again();
        assert!(self.answers().await, "{}", self.log());
    }

    /// Starts the server again with further options.
    pub(crate) async fn start_again_with(&mut self, options: &[&str]) {
        self.options
            .extend(options.iter().map(|&option| option.to_owned()));
        self.start_again().await;
    }

    /// Starts the server again without waiting until it answers.
    pub(crate) fn launch_again(&mut self) {
        let directory = self.directory.path();
        self.process = launch(self.port, directory, &self.options, self.clock.as_ref());
    }

    /// Stops the process without ending it, and waits until all of its threads are stopped: a thread may get the signal
    /// later, and carry out commands until then.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        stands_still(self.process.id(), TIMEOUT);
    }

    /// Lets a frozen process run again.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Runs a command as the default user and answers its reply, errors included.
    pub(crate) async fn run(&self, command: &[&str]) -> Value {
        let mut connection = self.connection().await;
        let reply = connection.send_packed_command(&cmd(command)).await;
        reply.expect("the server answers a test's own command")
    }

    /// Runs a command on a server that may close the connection.
    pub(crate) async fn try_run(&self, command: &[&str]) -> Option<Value> {
        let mut connection = self.connect().await.ok()?;
        connection.send_packed_command(&cmd(command)).await.ok()
    }

    /// Runs a command whose reply is a text; an empty text stands for no reply.
    pub(crate) async fn text(&self, command: &[&str]) -> String {
        let reply = self.run(command).await;
        redis::from_redis_value::<Option<String>>(reply)
            .expect("the reply is a text")
            .unwrap_or_default()
    }

    /// Sets the rules of a user, in the syntax of `ACL SETUSER`.
    pub(crate) async fn set_user(&self, rules: &str) {
        let command = ["ACL", "SETUSER"].into_iter().chain(words(rules));
        let set = self.text(&command.collect::<Vec<_>>()).await;
        assert_eq!(set, "OK", "{rules}");
    }

    /// Changes a setting of the server.
    pub(crate) async fn set(&self, setting: &str, value: &str) {
        let set = self.text(&["CONFIG", "SET", setting, value]).await;
        assert_eq!(set, "OK", "{setting} {value}");
    }

    /// How often a command was called since the statistics were last reset.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let stats = self.text(&["INFO", "commandstats"]).await;
        let prefix = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        let count = line.and_then(|line| line.split(',').next()?.parse().ok());
        count.unwrap_or_default()
    }

    /// The time of the server in microseconds.
    pub(crate) async fn micros(&self) -> u64 {
        let [seconds, micros]: [u64; 2] =
            redis::from_redis_value(self.run(&["TIME"]).await).expect("a time is two numbers");
        seconds * 1_000_000 + micros
    }

    /// A digest of all data in the server.
    pub(crate) async fn digest(&self) -> String {
        self.text(&["DEBUG", "DIGEST"]).await
    }

    /// Runs a command whose reply is an integer.
    pub(crate) async fn integer(&self, command: &[&str]) -> i64 {
        redis::from_redis_value(self.run(command).await).expect("the reply is an integer")
    }

    /// All keys, in order.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let reply = self.run(&["KEYS", "*"]).await;
        let mut keys: Vec<String> =
            redis::from_redis_value(reply).expect("the reply is a list of keys");
        keys.sort();
        keys
    }

    /// A connection for commands whose replies the test does not wait for.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let start = Instant::now();
        loop {
            match self.connect().await {
                Ok(connection) => return connection,
                // When a Sentinel changes a server, it closes all client connections of this server.
                Err(error) => assert!(
                    start.elapsed() < TIMEOUT && error.is_connection_dropped(),
                    "the server takes a connection: {error}"
                ),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// A connection, if the server accepts one.
    pub(crate) async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    /// Whether the server replies before its process ends.
    async fn answers(&mut self) -> bool {
        let start = Instant::now();
        loop {
            if let Ok(mut connection) = self.connect().await {
                let pong = connection.send_packed_command(&cmd(&["PING"])).await;
                let info = cmd(&["INFO", "server"]);
                let info = connection.send_packed_command(&info);
                // Two servers may have been given the same port: a reply of the other server does not count.
                let ours = match info.await {
                    Ok(Value::BulkString(info)) => {
                        let ours = format!("process_id:{}\r\n", self.process.id());
                        String::from_utf8_lossy(&info).contains(&ours)
                    }
                    _ => true,
                };
                if let (Ok(Value::SimpleString(_) | Value::ServerError(_)), true) = (pong, ours) {
                    return true;
                }
            }
            let ended = self.process.try_wait().expect("the process can be asked");
            if ended.is_some() || start.elapsed() > TIMEOUT {
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("the server takes a signal");
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        format!(
            "redis-server does not answer on port {}; its log:\n{log}",
            self.port
        )
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A command made of its words.
pub(crate) fn cmd(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word);
    }
    command
}

pub(crate) fn url(text: &str) -> ServersUrl {
    match text.parse() {
        Ok(StoreUrl::Servers(url)) => url,
        other => panic!("{text} is no Redis URL: {other:?}"),
    }
}

/// A port on which no process listens now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("a listener has an address");
    address.port()
}

fn launch(port: u16, directory: &Path, options: &[String], clock: Option<&Clock>) -> Child {
    let port = port.to_string();
    let mut arguments = vec!["--port", &port, "--bind", "127.0.0.1", "--save", ""];
    arguments.extend(["--daemonize", "no", "--enable-debug-command", "yes"]);
    arguments.extend(options.iter().map(String::as_str));
    spawn_in(directory, &arguments, clock)
}

/// Starts the program with its log in a directory.
pub(crate) fn spawn_in(directory: &Path, arguments: &[&str], clock: Option<&Clock>) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"));
    let environment = clock.map(Clock::environment);
    spawn::command("redis-server")
        .envs(environment.into_iter().flatten())
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.expect("the log can be opened"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "redis-server cannot be started ({error}); the tests need Redis 7: \
                 apt-get install redis-server, brew install redis, or see https://redis.io"
            )
        })
}
