//! A master, its replicas, and sentinels that watch them.

use latchgate::config::{RedisNode, ServersUrl};

use super::process::DOWN_AFTER_MS;
use crate::redis::prelude::*;

/// A master, its replicas, and sentinels that watch them.
pub(crate) struct Watched {
    /// The servers, the first master first.
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) sentinels: Vec<SentinelProcess>,
}

/// A replica synchronises at once instead of waiting for further replicas.
pub(super) const OPTIONS: &str = "--repl-diskless-sync-delay 0 --repl-ping-replica-period 1";

// === impl Watched ===

impl Watched {
    /// A master with two replicas and three sentinels, two of which decide.
    pub(crate) async fn start() -> Self {
        Self::begin_to_watch(None).await
    }

    /// A master with sentinels, and replicas that have their own clock.
    pub(super) async fn start_with_replicas_on(clock: &Clock) -> Self {
        Self::begin_to_watch(Some(clock)).await
    }

    /// During the start, a master that is slow to answer is busy and must not be replaced.
    async fn begin_to_watch(clock: Option<&Clock>) -> Self {
        let watched = Self::begin(2, 3, clock).await;
        watched.settled(0).await;
        watched.notices_after(DOWN_AFTER_MS).await;
        watched
    }

    /// Sets after how many milliseconds without an answer a master counts as gone. A replica whose link to the master
    /// was down for ten times as long before that may not take over.
    pub(super) async fn notices_after(&self, ms: &str) {
        for sentinel in &self.sentinels {
            let set = ["SENTINEL", "SET", SERVICE, "down-after-milliseconds", ms];
            assert_eq!(sentinel.run(&set).await, Value::Okay);
        }
    }

    /// A master with one replica, and a sentinel that knows no other sentinels. The sentinel replaces no server that a
    /// busy machine delays: grants that wait for the replica would be refused then.
    pub(crate) async fn start_small() -> Self {
        let watched = Self::begin(1, 1, None).await;
        watched.has_replicas(0).await;
        watched
    }

    async fn begin(replicas: usize, sentinels: usize, clock: Option<&Clock>) -> Self {
        let patient = format!("sentinel down-after-milliseconds {SERVICE} {PATIENT_MS}");
        let lines = &[&*patient];
        let master = RedisServer::start_as(OPTIONS).await;
        let options = format!("{OPTIONS} --replicaof 127.0.0.1 {}", master.port());
        let options: Vec<_> = words(&options).collect();
        let replicas = join_all((0..replicas).map(async |_| match clock {
            Some(clock) => RedisServer::start_on(clock.clone(), &options).await,
            None => RedisServer::start_with(&options).await,
        }));
        let replicas = replicas.await;
        let mut servers = vec![master];
        servers.extend(replicas);
        let quorum = sentinels / 2 + 1;
        let watch =
            (0..sentinels).map(|_| SentinelProcess::start(servers[0].port(), quorum, lines));
        Self {
            sentinels: join_all(watch).await,
            servers,
        }
    }

    /// The URL with the addresses of the sentinels.
    pub(crate) fn url(&self) -> ServersUrl {
        url(self.sentinels.iter().map(SentinelProcess::node))
    }

    /// Waits until this server is the master, all others are its replicas with the same data, and all running sentinels
    /// know this.
    pub(crate) async fn settled(&self, master: usize) {
        self.has_replicas(master).await;
        let replicas = self.servers.len() - 1;
        let port = self.servers[master].port().to_string();
        let others = (self.sentinels.len() - 1).to_string();
        for sentinel in &self.sentinels {
            let start = Instant::now();
            loop {
                let known = [
                    (sentinel.master("port").await, port.clone()),
                    (sentinel.master("flags").await, "master".to_owned()),
                    (sentinel.master("num-slaves").await, replicas.to_string()),
                    (sentinel.master("num-other-sentinels").await, others.clone()),
                ];
                let healthy = healthy(sentinel).await == replicas;
                if healthy && known.iter().all(|(found, wanted)| found == wanted) {
                    break;
                }
                assert!(
                    start.elapsed() < TIMEOUT,
                    "the sentinel does not know all of them: {known:?}, {healthy}, {}",
                    sentinel.log()
                );
                sleep(Duration::from_millis(5)).await;
            }
        }
    }

    async fn has_replicas(&self, master: usize) {
        let replicas = self.servers.len() - 1;
        eventually("the replicas have come", async || {
            let role = self.servers[master].run(&["ROLE"]).await;
            let Value::Array(role) = role else {
                return None;
            };
            match role.get(2) {
                Some(Value::Array(online)) => (online.len() == replicas).then_some(()),
                _ => None,
            }
        })
        .await;
    }

    /// The server that more than half of the sentinels name.
    pub(crate) async fn master(&self) -> Option<usize> {
        let mut votes = vec![0; self.servers.len()];
        for sentinel in &self.sentinels {
            let named = named(sentinel).await;
            let found = self.servers.iter().position(|it| Some(it.port()) == named);
            if let Some(found) = found {
                votes[found] += 1;
            }
        }
        votes
            .iter()
            .position(|&votes| votes > self.sentinels.len() / 2)
    }

    /// Waits until another server is the master and accepts writes. Answers this server.
    pub(crate) async fn replaced(&self, before: usize) -> usize {
        let start = Instant::now();
        loop {
            if let Some(master) = self.master().await.filter(|&master| master != before)
                && is_master(&self.servers[master]).await
            {
                return master;
            }
            assert!(
                start.elapsed() < ELECTED_WITHIN,
                "no other master; a sentinel says\n{}",
                self.sentinels[0].log()
            );
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until another server accepts writes. Answers since when.
    pub(crate) async fn writable(&self, before: usize) -> Instant {
        let start = Instant::now();
        loop {
            for (n, server) in self.servers.iter().enumerate() {
                let asked = Instant::now();
                if n != before && is_master(server).await {
                    return asked;
                }
            }
            assert!(start.elapsed() < ELECTED_WITHIN, "no other master");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Cuts the link of the replicas to their master, so that they miss all further writes. (A frozen replica misses
    /// nothing: the writes wait in its socket.)
    pub(crate) async fn cut_off_replicas(&self, master: usize) {
        for (n, server) in self.servers.iter().enumerate() {
            if n != master {
                server.set("masterauth", "wrong").await;
            }
        }
        let master = &self.servers[master];
        until("no replica is left", async || {
            master.run(&["CLIENT", "KILL", "TYPE", "replica"]).await;
            let info = master.text(&["INFO", "replication"]).await;
            info.contains("connected_slaves:0")
        })
        .await;
    }

    /// Kills the first master, whose replicas were cut off, and lets them find the next one. Answers the new master.
    pub(super) async fn lose_master(&mut self) -> usize {
        self.servers[0].kill();
        let master = self.replaced(0).await;
        self.join_replicas(0).await;
        master
    }

    /// Lets the servers that were cut off find a master again.
    pub(crate) async fn join_replicas(&self, but: usize) {
        for (n, server) in self.servers.iter().enumerate() {
            if n != but {
                server.run(&["CONFIG", "SET", "masterauth", ""]).await;
            }
        }
    }

    /// Makes the sentinels replace the master, as an operator would.
    pub(crate) async fn fail_over(&self) {
        eventually("a failover begins", async || {
            for sentinel in &self.sentinels {
                let begun = sentinel.run(&["SENTINEL", "FAILOVER", SERVICE]).await;
                if begun == Value::Okay {
                    return Some(());
                }
            }
            None
        })
        .await;
    }
}

/// The URL with the addresses of these sentinels.
pub(crate) fn url(sentinels: impl Iterator<Item = RedisNode>) -> ServersUrl {
    let sentinels: Vec<_> = sentinels.map(|node| node.to_string()).collect();
    let text = format!("redis+sentinel://{}/{SERVICE}/0", sentinels.join(","));
    match text.parse() {
        Ok(StoreUrl::Servers(url)) => url,
        other => panic!("{text} names no sentinels: {other:?}"),
    }
}

/// Whether a server says that it is the master. A server that is just made a replica closes the connection.
pub(crate) async fn is_master(server: &RedisServer) -> bool {
    match server.try_run(&["ROLE"]).await {
        Some(Value::Array(role)) => role.first() == Some(&Value::BulkString("master".into())),
        _ => false,
    }
}

async fn named(sentinel: &SentinelProcess) -> Option<u16> {
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
    let address: Vec<String> = from_redis_value(sentinel.run(&words).await).ok()?;
    address.get(1)?.parse().ok()
}

/// How many replicas a sentinel could make the master.
pub(super) async fn healthy(sentinel: &SentinelProcess) -> usize {
    let Value::Array(replicas) = sentinel.run(&["SENTINEL", "REPLICAS", SERVICE]).await else {
        return 0;
    };
    let healthy = replicas.into_iter().filter(|replica| {
        let fields: Vec<String> = from_redis_value(replica.clone()).unwrap_or_default();
        let has = |name: &str, value: &str| {
            let mut pairs = fields.chunks_exact(2);
            pairs.any(|pair| pair[0] == name && pair[1] == value)
        };
        has("flags", "slave") && has("master-link-status", "ok")
    });
    healthy.count()
}

/// Longer than any test takes.
pub(super) const PATIENT_MS: &str = "600000";
/// How long the sentinels may take to elect a leader, and the leader to make a replica the master.
const ELECTED_WITHIN: Duration = Duration::from_mins(1);
/// How soon service must be back after a new master accepts writes: ten times the documented time, for a busy machine.
/// The real time is printed.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(20);
