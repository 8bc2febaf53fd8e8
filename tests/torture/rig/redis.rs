//! A `redis-server` process with a fixed address.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use bb8_redis::redis::{self, Cmd, RedisResult, Value};
use tokio::time::{Instant, sleep, timeout};

use super::{
    address,
    process::{Process, command},
};
use crate::clock::Clock;

/// A `redis-server` process with a fixed address.
pub(crate) struct Redis {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
    directory: PathBuf,
    options: Vec<String>,
    /// Its own clock, if it has one, and by how many seconds the clock is ahead.
    clock: Option<Clock>,
    ahead: i64,
}

/// The longest time of a start, and of a reply.
const TIMEOUT: Duration = Duration::from_secs(20);

// === impl Redis ===

impl Redis {
    /// Starts a server that keeps acknowledged data over a restart.
    pub(super) async fn start(directory: &Path, name: &str, options: &[&str]) -> Self {
        Self::start_with(directory, name, options, None).await
    }

    /// Starts a server that keeps acknowledged data over a restart, and has a clock that can be set.
    pub(super) async fn start_with_clock(directory: &Path, name: &str, options: &[&str]) -> Self {
        Self::start_with(directory, name, options, Some(Clock::ahead(0))).await
    }

    async fn start_with(
        directory: &Path,
        name: &str,
        options: &[&str],
        clock: Option<Clock>,
    ) -> Self {
        let address = address::free();
        let directory = directory.join(name);
        std::fs::create_dir(&directory).unwrap();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut redis = Self {
            name: name.to_owned(),
            address,
            process: launch(&directory, address, &options, clock.as_ref()),
            directory,
            options,
            clock,
            ahead: 0,
        };
        redis.answers().await;
        redis
    }

    /// Starts the server again after its end, with the data that it has kept.
    pub(crate) async fn start_again(&mut self) {
        self.process = launch(
            &self.directory,
            self.address,
            &self.options,
            self.clock.as_ref(),
        );
        self.answers().await;
    }

    /// Removes the data that the server has kept.
    pub(crate) fn forget(&self) {
        // There may be no data.
        drop(std::fs::remove_dir_all(
            self.directory.join("appendonlydir"),
        ));
    }

    /// Sets the server's clock forward. Answers whether the server shows it.
    pub(crate) async fn step_clock(&mut self, seconds: i64) -> bool {
        let before = self.time().await;
        self.ahead += seconds;
        let clock = self.clock.as_ref().expect("it has a clock of its own");
        clock.set(self.ahead);
        let after = self.time().await;
        matches!((before, after), (Some(before), Some(after)) if after >= before + seconds)
    }

    /// The time of the server in seconds.
    async fn time(&self) -> Option<i64> {
        let time = self.run(&["TIME"]).await.ok()?;
        let time: (i64, i64) = redis::from_redis_value(time).ok()?;
        Some(time.0)
    }

    /// Runs a command.
    pub(crate) async fn run(&self, words: &[&str]) -> RedisResult<Value> {
        run(self.address, words).await
    }

    /// Runs a command whose answer is a text.
    pub(crate) async fn text(&self, words: &[&str]) -> String {
        let value = self.run(words).await.unwrap_or(Value::Nil);
        redis::from_redis_value(value).unwrap_or_default()
    }

    async fn answers(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while self.run(&["PING"]).await.is_err() {
            assert!(
                !self.process.has_ended() && Instant::now() < deadline,
                "{} does not start; see {}",
                self.name,
                self.directory.display()
            );
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Runs a command on the server at an address.
pub(super) async fn run(address: SocketAddr, words: &[&str]) -> RedisResult<Value> {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word);
    }
    let run = async {
        let client = redis::Client::open(format!("redis://{address}"))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        connection.send_packed_command(&command).await
    };
    match timeout(TIMEOUT, run).await {
        Ok(reply) => reply?.extract_error(),
        Err(late) => Err(std::io::Error::from(late).into()),
    }
}

fn launch(
    directory: &Path,
    address: SocketAddr,
    options: &Vec<String>,
    clock: Option<&Clock>,
) -> Process {
    let mut command = command(Path::new("redis-server"));
    command
        .args([
            "--port",
            &address.port().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ])
        .args(["--daemonize", "no", "--enable-debug-command", "yes"])
        .args(options)
        .envs(clock.iter().flat_map(|clock| clock.environment()))
        .current_dir(directory);
    Process::start(command, directory, "redis")
}
