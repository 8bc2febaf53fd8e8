//! A `redis-server` as a process.

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

/// A `redis-server` as a process, always on the same address.
pub(crate) struct Redis {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
    directory: PathBuf,
    options: Vec<String>,
}

/// How long it may take to start, and to answer a command.
const TIMEOUT: Duration = Duration::from_secs(20);

// === impl Redis ===

impl Redis {
    /// Starts one that keeps what it has answered.
    pub(super) async fn start(directory: &Path, name: &str, options: &[&str]) -> Self {
        let address = address::free();
        let directory = directory.join(name);
        std::fs::create_dir(&directory).unwrap();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut redis = Self {
            name: name.to_owned(),
            address,
            process: launch(&directory, address, &options),
            directory,
            options,
        };
        redis.answers().await;
        redis
    }

    /// Starts it again after its end, with what it has kept.
    pub(crate) async fn start_again(&mut self) {
        self.process = launch(&self.directory, self.address, &self.options);
        self.answers().await;
    }

    /// Removes what it has kept.
    pub(crate) fn forget(&self) {
        // It may keep nothing.
        drop(std::fs::remove_dir_all(
            self.directory.join("appendonlydir"),
        ));
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

/// Runs a command on whatever answers at an address.
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

fn launch(directory: &Path, address: SocketAddr, options: &Vec<String>) -> Process {
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
        .current_dir(directory);
    Process::start(command, directory, "redis")
}
