//! A node: a database of its own, with the scripts.

use bb8_redis::redis::{
    self, AsyncConnectionConfig, Value, aio::MultiplexedConnection, from_redis_value,
};

use super::variant::Scripts;
use crate::support::{RedisServer, cmd};

/// A node.
pub(super) struct Node {
    connection: MultiplexedConnection,
    reserve: String,
    ratify: String,
    withdraw: String,
    release: String,
    learn: String,
    teach: String,
    admit: String,
}

/// What a node proposes in the first round, by which vote.
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
    pub(super) async fn start(server: &RedisServer, database: usize, scripts: &Scripts) -> Self {
        let url = format!("redis://127.0.0.1:{}/{database}", server.port());
        let client = redis::Client::open(url).unwrap();
        // On a busy machine a reply may take longer than the library waits by itself.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        let mut connection = connection.await.unwrap();
        let mut hashes = Vec::new();
        for script in [
            &scripts.reserve,
            &scripts.ratify,
            &scripts.withdraw,
            &scripts.release,
            &scripts.learn,
            &scripts.teach,
            &scripts.admit,
        ] {
            let load = cmd(&["SCRIPT", "LOAD", script]);
            let hash = connection.send_packed_command(&load).await.unwrap();
            hashes.push(from_redis_value::<String>(hash).unwrap());
        }
        let [reserve, ratify, withdraw, release, learn, teach, admit] = hashes.try_into().unwrap();
        Self {
            connection,
            reserve,
            ratify,
            withdraw,
            release,
            learn,
            teach,
            admit,
        }
    }

    /// Begins anew, with a counter.
    pub(super) async fn reset(&mut self, counter: u64) {
        self.run(&["FLUSHDB"]).await;
        let learnt = ["life", "1", "run", "", "epoch", "0", "top", "0"];
        self.run(&[&["HSET", "node"], &learnt[..]].concat()).await;
        self.run(&["SET", "fence", &counter.to_string()]).await;
    }

    /// Loses everything.
    pub(super) async fn flush(&mut self) {
        self.run(&["FLUSHDB"]).await;
    }

    /// Begins to learn: its life, if it has to.
    pub(super) async fn learn(&mut self, new: &str) -> Option<String> {
        let hash = self.learn.clone();
        match self
            .run(&["EVALSHA", &hash, "1", "node", new, "", "1"])
            .await
        {
            Value::Array(reply) if text(&reply[0]) == "unlearnt" => Some(text(&reply[2])),
            _ => None,
        }
    }

    /// How far it has come, for another that learns; `None` if it has to learn itself.
    pub(super) async fn teach(&mut self, life: &str) -> Option<u64> {
        let hash = self.teach.clone();
        match self.run(&["EVALSHA", &hash, "1", "node", life, ""]).await {
            Value::Array(reply) if text(&reply[0]) == "taught" => {
                Some(text(&reply[2]).parse().unwrap())
            }
            _ => None,
        }
    }

    pub(super) async fn admit(&mut self, life: &str, top: u64) {
        let hash = self.admit.clone();
        self.kind(&["EVALSHA", &hash, "1", "node", life, &top.to_string()])
            .await;
    }

    /// The first round: the fence that is proposed, if it is.
    pub(super) async fn reserve(
        &mut self,
        name: usize,
        token: &str,
        nonce: &str,
    ) -> Option<Proposal> {
        self.take(name, token, nonce, 1).await
    }

    /// The same, or of a lease that a majority has granted already, by a fence.
    pub(super) async fn take(
        &mut self,
        name: usize,
        token: &str,
        nonce: &str,
        fence: u64,
    ) -> Option<Proposal> {
        let keys = keys(name, &["lock", "info", "ended"]);
        let (wanted, fence) = (format!("{name}:wanted"), fence.to_string());
        let hash = self.reserve.clone();
        let mut words = vec!["EVALSHA", &hash, "6"];
        words.extend(keys.iter().map(String::as_str));
        words.extend(["fence", &wanted, "node", token, nonce, TTL]);
        words.extend([""; 8]);
        words.extend([&fence, "", "0", "0", "0"]);
        let reply = self.run(&words).await;
        let Value::Array(reply) = reply else {
            panic!("no vote: {reply:?}");
        };
        match reply.as_slice() {
            [word, _, fence, vote] if text(word) == "reserved" => Some(Proposal {
                fence: from_redis_value(fence.clone()).unwrap(),
                vote: text(vote),
            }),
            _ => None,
        }
    }

    /// The second round: whether the fence is accepted.
    pub(super) async fn ratify(
        &mut self,
        name: usize,
        token: &str,
        nonce: &str,
        fence: u64,
        vote: &str,
    ) -> bool {
        let keys = keys(name, &["lock", "info", "ended"]);
        let (hash, fence) = (self.ratify.clone(), fence.to_string());
        let mut words = vec!["EVALSHA", &hash, "5"];
        words.extend(keys.iter().map(String::as_str));
        words.extend([
            "fence", "node", token, nonce, &fence, TOMBSTONE, "0", vote, "",
        ]);
        self.kind(&words).await == "ratified"
    }

    pub(super) async fn withdraw(&mut self, name: usize, token: &str, nonce: &str) {
        let keys = keys(name, &["lock", "info", "ended", "wanted"]);
        let hash = self.withdraw.clone();
        let mut words = vec!["EVALSHA", &hash, "4"];
        words.extend(keys.iter().map(String::as_str));
        words.extend([token, nonce, TOMBSTONE, "0"]);
        self.kind(&words).await;
    }

    pub(super) async fn release(&mut self, name: usize, token: &str) {
        let keys = keys(name, &["lock", "info", "ended", "wanted"]);
        let hash = self.release.clone();
        let mut words = vec!["EVALSHA", &hash, "4"];
        words.extend(keys.iter().map(String::as_str));
        words.extend([token, TOMBSTONE, ""]);
        self.kind(&words).await;
    }

    /// What somebody has here ends: its time is over.
    pub(super) async fn end(&mut self, name: usize) {
        let keys = keys(name, &["lock", "info"]);
        self.run(&["DEL", &keys[0], &keys[1]]).await;
    }

    async fn kind(&mut self, words: &[&str]) -> String {
        match self.run(words).await {
            Value::Array(reply) => text(&reply[0]),
            other => panic!("no reply of a script: {other:?}"),
        }
    }

    async fn run(&mut self, words: &[&str]) -> Value {
        let reply = self.connection.send_packed_command(&cmd(words)).await;
        reply.unwrap().extract_error().unwrap()
    }
}

fn keys(name: usize, keys: &[&str]) -> Vec<String> {
    let keys = keys.iter();
    keys.map(|key| format!("{name}:{key}")).collect()
}

fn text(value: &Value) -> String {
    from_redis_value(value.clone()).unwrap()
}
