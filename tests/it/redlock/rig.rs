//! A quorum, a gateway on it, and short ways to ask both.

use latchgate::{
    config::RedlockConfig,
    lifecycle::Lifecycle,
    lock::{HeldLease, LockName},
    store::{
        Store,
        contract::{Attempt, Check, Health, Release},
        redis::{RedlockStore, Slot, SlotTags},
    },
};

use super::nodes::{self, Nodes, quick};
pub(super) use crate::redis::rig::{attempt, eventually, granted, name, ttl};
use crate::support::{Proxy, RedisServer};

/// A quorum and a gateway on it.
pub(super) struct Rig {
    pub(super) nodes: Nodes,
    pub(super) store: RedlockStore,
    pub(super) lifecycle: Lifecycle,
}

// === impl Rig ===

impl Rig {
    pub(super) async fn start(count: usize) -> Self {
        let rig = Self::on(Nodes::start(count).await, &quick());
        rig.all_vote().await;
        rig
    }

    /// Waits until every node has a vote.
    pub(super) async fn all_vote(&self) {
        let nodes = self.nodes.servers.len();
        // One that does not say whether it has a vote is no reason for a warning.
        let all = Some(format!("{nodes} of {nodes} nodes"));
        eventually("all nodes vote", async || {
            let votes = self.check("votes").await;
            (votes.health == Health::Passing && votes.note == all).then_some(())
        })
        .await;
    }

    pub(super) fn on(nodes: Nodes, config: &RedlockConfig) -> Self {
        let lifecycle = Lifecycle::new();
        let store = nodes::open(&nodes.url(), config, &lifecycle);
        Self {
            nodes,
            store,
            lifecycle,
        }
    }

    /// A quorum whose gateway reaches each node through a proxy.
    pub(super) async fn with_proxies(count: usize) -> (Self, Vec<Proxy>) {
        Self::behind_proxies(count, &quick()).await
    }

    pub(super) async fn behind_proxies(count: usize, config: &RedlockConfig) -> (Self, Vec<Proxy>) {
        let nodes = Nodes::start(count).await;
        let lifecycle = Lifecycle::new();
        let mut proxies = Vec::new();
        for server in &nodes.servers {
            proxies.push(Proxy::start(server.port(), &lifecycle).await);
        }
        let ports: Vec<_> = proxies
            .iter()
            .map(|proxy| proxy.url().node().port())
            .collect();
        let store = nodes::open(&nodes::url(&ports), config, &lifecycle);
        let rig = Self {
            nodes,
            store,
            lifecycle,
        };
        // So that every node knows every script.
        rig.all_vote().await;
        rig.turn("warm").await;
        let asked = attempt("warm");
        rig.store
            .give_back(&asked.name, &asked.token)
            .await
            .unwrap();
        (rig, proxies)
    }

    pub(super) fn server(&self, node: usize) -> &RedisServer {
        &self.nodes.servers[node]
    }

    pub(super) fn server_mut(&mut self, node: usize) -> &mut RedisServer {
        &mut self.nodes.servers[node]
    }

    /// Acquires with an attempt that must be granted.
    pub(super) async fn grant(&self, attempt: &Attempt) -> HeldLease {
        granted(self.store.acquire(attempt).await)
    }

    /// A lease that every node has accepted, and not only a majority of them.
    pub(super) async fn grant_everywhere(&self, lock: &str) -> (Attempt, HeldLease) {
        eventually("every node has it", async || {
            let asked = attempt(lock);
            let lease = self.grant(&asked).await;
            if self.have_accepted(&asked.name, &lease).await == self.nodes.servers.len() {
                return Some((asked, lease));
            }
            self.release(&asked).await;
            None
        })
        .await
    }

    /// How many nodes have accepted the fence of a lease.
    pub(super) async fn have_accepted(&self, lock: &LockName, lease: &HeldLease) -> usize {
        let key = format!("lg:{{{lock}}}:info");
        let mut have = 0;
        for server in &self.nodes.servers {
            let fence = server.text(&["HGET", &key, "fence"]).await;
            have += usize::from(fence == lease.fence.to_string());
        }
        have
    }

    pub(super) async fn release(&self, attempt: &Attempt) {
        let release = self.store.release(&attempt.name, &attempt.token).await;
        assert_eq!(release, Ok(Release::Released));
    }

    /// Acquires and releases, and answers the fence.
    pub(super) async fn turn(&self, lock: &str) -> u64 {
        let asked = attempt(lock);
        let lease = self.grant(&asked).await;
        self.release(&asked).await;
        lease.fence.get()
    }

    /// At how many nodes something holds the lock, however it came about.
    pub(super) async fn holds(&self, lock: &LockName) -> usize {
        let key = format!("lg:{{{lock}}}:lock");
        let mut holds = 0;
        for server in &self.nodes.servers {
            holds += usize::from(server.integer(&["EXISTS", &key]).await == 1);
        }
        holds
    }

    /// Waits until nothing holds the lock at any node.
    pub(super) async fn nothing_left(&self, lock: &LockName) {
        eventually("nothing holds it anywhere", async || {
            (self.holds(lock).await == 0).then_some(())
        })
        .await;
    }

    pub(super) async fn health(&self, check: &str) -> Health {
        self.check(check).await.health
    }

    pub(super) async fn check(&self, check: &str) -> Check {
        let checks = self.store.check().await;
        let found = checks.into_iter().find(|found| found.name == check);
        found.expect("there is such a check")
    }
}

/// The counter of a lock.
pub(super) fn fence_key(lock: &str) -> String {
    let tag = SlotTags::compute().of(Slot::of(lock.as_bytes())).to_owned();
    format!("lg:{{{tag}}}:fence")
}
