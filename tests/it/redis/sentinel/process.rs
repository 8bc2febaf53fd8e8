//! A `redis-server --sentinel` process for one test.

use std::process::Child;

use bb8_redis::redis;
use latchgate::config::RedisNode;
use tempfile::TempDir;

use crate::redis::prelude::*;
use crate::support::spawn_in;

/// A running sentinel, killed when dropped.
pub(crate) struct SentinelProcess {
    port: u16,
    directory: TempDir,
    process: Child,
}

/// The name by which the sentinels of the tests know the master.
pub(crate) const SERVICE: &str = "locks";
/// After how many milliseconds without an answer a sentinel takes a server to be down.
pub(crate) const DOWN_AFTER_MS: &str = "500";
/// More time than any machine needs to start a sentinel.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Settings that make a sentinel do its periodic work more often: a second instead of a quarter of a minute.
const QUICK: [(&str, &str); 6] = [
    ("info-period", "200"),
    ("ping-period", "100"),
    ("ask-period", "100"),
    ("publish-period", "200"),
    ("min-link-reconnect-period", "500"),
    ("election-timeout", "2000"),
];

// === impl SentinelProcess ===

impl SentinelProcess {
    /// Starts a sentinel for a master, with further lines in its configuration file.
    pub(crate) async fn start(master: u16, quorum: usize, lines: &[&str]) -> Self {
        let start = Instant::now();
        loop {
            let directory = tempfile::tempdir().expect("a temporary directory can be made");
            let port = free_port();
            let mut file = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\n\
                 sentinel monitor {SERVICE} 127.0.0.1 {master} {quorum}\n\
                 sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n\
                 sentinel failover-timeout {SERVICE} 1000\n\
                 sentinel parallel-syncs {SERVICE} 2\n",
                directory.path().display()
            );
            for line in lines {
                file.push_str(line);
                file.push('\n');
            }
            std::fs::write(directory.path().join("conf"), file).expect("a file can be written");
            let mut sentinel = Self {
                port,
                process: launch(&directory),
                directory,
            };
            if sentinel.answers().await {
                sentinel.hurry().await;
                return sentinel;
            }
            // Another process may have taken the port first: try another port.
            assert!(start.elapsed() < TIMEOUT, "{}", sentinel.log());
        }
    }

    pub(crate) fn node(&self) -> RedisNode {
        RedisNode::new("127.0.0.1", self.port)
    }

    /// Kills the sentinel as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the sentinel can be killed");
        self.process.wait().expect("the sentinel can be waited for");
    }

    /// Starts the sentinel again with its former state.
    pub(crate) async fn start_again(&mut self) {
        self.process = launch(&self.directory);
        assert!(self.answers().await, "{}", self.log());
        self.hurry().await;
    }

    /// Runs a command. A connection error counts as a nil reply.
    pub(crate) async fn run(&self, words: &[&str]) -> Value {
        let run = async {
            let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            connection.send_packed_command(&cmd(words)).await
        };
        let answer = timeout(TIMEOUT, run).await;
        answer.map_or(Value::Nil, |answer| answer.unwrap_or(Value::Nil))
    }

    /// A field of what the sentinel knows about the master.
    pub(crate) async fn master(&self, field: &str) -> String {
        let Value::Array(fields) = self.run(&["SENTINEL", "MASTER", SERVICE]).await else {
            return String::new();
        };
        let texts: Vec<String> = fields
            .into_iter()
            .map(|value| from_redis_value(value).unwrap_or_default())
            .collect();
        let mut pairs = texts.chunks_exact(2);
        let found = pairs.find(|pair| pair[0] == field);
        found.map(|pair| pair[1].clone()).unwrap_or_default()
    }

    async fn hurry(&self) {
        let mut words = vec!["SENTINEL", "DEBUG"];
        words.extend(QUICK.iter().flat_map(|(name, value)| [*name, *value]));
        let done = self.run(&words).await;
        assert!(
            matches!(done, Value::Okay | Value::ServerError(_)),
            "{done:?}, {}",
            self.log()
        );
    }

    async fn answers(&mut self) -> bool {
        let start = Instant::now();
        loop {
            let pong = self.run(&["PING"]).await;
            if matches!(pong, Value::SimpleString(_) | Value::ServerError(_)) {
                return true;
            }
            let ended = self.process.try_wait().expect("the process can be asked");
            if ended.is_some() || start.elapsed() > TIMEOUT {
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The log of the sentinel.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for SentinelProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn launch(directory: &TempDir) -> Child {
    spawn_in(directory.path(), &["conf", "--sentinel"], None)
}
