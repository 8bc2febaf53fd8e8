//! A node of a quorum: a database of the server, with the scripts.

use std::collections::HashMap;

use bb8_redis::redis::{
    self, AsyncConnectionConfig, Value, aio::MultiplexedConnection, from_redis_value,
};

use super::variant::Texts;
use crate::support::{RedisServer, cmd};

/// A node of a quorum.
pub(super) struct Node {
    connection: MultiplexedConnection,
    /// The hash of each script.
    scripts: HashMap<&'static str, String>,
}

/// The proposal of a node in the first round: the fencing token, and the vote that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) fence: u64,
    pub(super) vote: String,
}

/// Longer than a walk takes.
const TTL: &str = "600000";
/// How long an end is remembered.
const TOMBSTONE: &str = "60000";

// === impl Node ===

impl Node {
    pub(super) async fn start(server: &RedisServer, database: usize, texts: &Texts) -> Self {
        let url = format!("redis://127.0.0.1:{}/{database}", server.port());
        let client = redis::Client::open(url).unwrap();
        // On a busy machine a reply may take longer than the library waits by default.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        let mut connection = connection.await.unwrap();
        let mut scripts = HashMap::new();
        for (name, text) in texts {
            let load = cmd(&["SCRIPT", "LOAD", text]);
            let hash = connection.send_packed_command(&load).await.unwrap();
            scripts.insert(*name, from_redis_value::<String>(hash).unwrap());
        }
        Self {
            connection,
            scripts,
        }
    }

    /// Empties the node, and sets its counter.
    pub(super) async fn reset(&mut self, counter: u64) {
        self.run(&["FLUSHDB"]).await;
        let learnt = ["life", "1", "run", "", "epoch", "0", "top", "0"];
        self.run(&[&["HSET", "node"], &learnt[..]].concat()).await;
        self.run(&["SET", "fence", &counter.to_string()]).await;
    }

    /// Loses all data of the node.
    pub(super) async fn flush(&mut self) {
        self.run(&["FLUSHDB"]).await;
    }

    /// Begins to catch up. Answers the new life, if the node has to catch up.
    pub(super) async fn learn(&mut self, new: &str) -> Option<String> {
        let (kind, reply) = self.script("learn", &["node"], &[new, "", "1"]).await;
        (kind == "unlearnt").then(|| text(&reply[2]))
    }

    /// What the node tells another node that catches up; `None` if it must catch up itself.
    pub(super) async fn teach(&mut self, life: &str) -> Option<u64> {
        let (kind, reply) = self.script("teach", &["node"], &[life, ""]).await;
        (kind == "taught").then(|| text(&reply[2]).parse().unwrap())
    }

    pub(super) async fn admit(&mut self, life: &str, top: u64) {
        let top = top.to_string();
        self.script("admit", &["node"], &[life, &top]).await;
    }

    /// Runs the first round. Answers the proposed fencing token, if there is one.
    pub(super) async fn reserve(
        &mut self,
        name: usize,
        token: &str,
        nonce: &str,
    ) -> Option<Proposal> {
        self.take(name, token, nonce, 1).await
    }

    /// Runs the first round, or takes a lease that a majority has already granted with a fencing token.
    pub(super) async fn take(
        &mut self,
        name: usize,
        token: &str,
        nonce: &str,
        fence: u64,
    ) -> Option<Proposal> {
        let keys = keys(name, ["lock", "info", "ended", "wanted"]);
        let [lock, info, ended, wanted] = keys.each_ref().map(String::as_str);
        let keys = [lock, info, ended, "fence", wanted, "node"];
        let fence = fence.to_string();
        let mut arguments = vec![token, nonce, TTL];
        arguments.extend([""; 8]);
        arguments.extend([fence.as_str(), "", "0", "0", "0"]);
        let (kind, reply) = self.script("reserve", &keys, &arguments).await;
        (kind == "reserved").then(|| Proposal {
            fence: from_redis_value(reply[2].clone()).unwrap(),
            vote: text(&reply[3]),
        })
    }

    /// Runs the second round. Answers whether the fencing token was accepted.
    pub(super) async fn ratify(
        &mut self,
        name: usize,
        token: &str,
        nonce: &str,
        fence: u64,
        vote: &str,
    ) -> bool {
        let keys = keys(name, ["lock", "info", "ended"]);
        let [lock, info, ended] = keys.each_ref().map(String::as_str);
        let keys = [lock, info, ended, "fence", "node"];
        let fence = fence.to_string();
        let arguments = [token, nonce, &fence, TOMBSTONE, "0", vote, ""];
        self.script("ratify", &keys, &arguments).await.0 == "ratified"
    }

    pub(super) async fn withdraw(&mut self, name: usize, token: &str, nonce: &str) {
        let keys = keys(name, ["lock", "info", "ended", "wanted"]);
        let arguments = [token, nonce, TOMBSTONE, "0"];
        let keys = keys.each_ref().map(String::as_str);
        self.script("withdraw", &keys, &arguments).await;
    }

    pub(super) async fn release(&mut self, name: usize, token: &str) {
        let keys = keys(name, ["lock", "info", "ended", "wanted"]);
        let keys = keys.each_ref().map(String::as_str);
        let arguments = [token, TOMBSTONE, ""];
        self.script("quorum_release", &keys, &arguments).await;
    }

    /// Ends the reservation or lease at this node, as if its time was over.
    pub(super) async fn end(&mut self, name: usize) {
        let keys = keys(name, ["lock", "info"]);
        self.run(&["DEL", &keys[0], &keys[1]]).await;
    }

    /// Runs a script. Answers the first word of the reply, and the whole reply.
    async fn script(
        &mut self,
        name: &str,
        keys: &[&str],
        arguments: &[&str],
    ) -> (String, Vec<Value>) {
        let (hash, count) = (self.scripts[name].clone(), keys.len().to_string());
        let words = [&["EVALSHA", hash.as_str(), &count][..], keys, arguments].concat();
        match self.run(&words).await {
            Value::Array(reply) => (text(&reply[0]), reply),
            other => panic!("no reply of {name}: {other:?}"),
        }
    }

    async fn run(&mut self, words: &[&str]) -> Value {
        let reply = self.connection.send_packed_command(&cmd(words)).await;
        reply.unwrap().extract_error().unwrap()
    }
}

fn keys<const COUNT: usize>(name: usize, keys: [&str; COUNT]) -> [String; COUNT] {
    keys.map(|key| format!("{name}:{key}"))
}

fn text(value: &Value) -> String {
    from_redis_value(value.clone()).unwrap()
}
