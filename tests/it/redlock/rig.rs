//! A quorum with a gateway on it, and short helpers for questions to both.

use latchgate::store::contract::Check;

use crate::redlock::prelude::*;

/// A quorum and a gateway on it.
pub(crate) struct Rig {
    pub(crate) nodes: Nodes,
    pub(crate) store: RedlockStore,
    pub(crate) lifecycle: Lifecycle,
}

// === impl Rig ===

impl Rig {
    pub(crate) async fn start(count: usize) -> Self {
        let rig = Self::on(Nodes::start(count).await, &quick());
        rig.all_vote().await;
        rig
    }

    /// Waits until every node has a vote.
    pub(crate) async fn all_vote(&self) {
        let nodes = self.nodes.servers.len();
        // A node that does not say whether it has a vote causes no warning, so the note must list all nodes.
        let all = Some(format!("{nodes} of {nodes} nodes"));
        until("all nodes vote", async || {
            let votes = self.check("votes").await;
            votes.health == Health::Passing && votes.note == all
        })
        .await;
    }

    pub(crate) fn on(nodes: Nodes, config: &RedlockConfig) -> Self {
        let lifecycle = Lifecycle::new();
        let store = nodes::open(&nodes.url(), config, &lifecycle);
        Self {
            nodes,
            store,
            lifecycle,
        }
    }

    /// A quorum whose gateway reaches each node through a proxy.
    pub(crate) async fn with_proxies(count: usize) -> (Self, Vec<Proxy>) {
        Self::behind_proxies(count, &quick()).await
    }

    pub(crate) async fn behind_proxies(count: usize, config: &RedlockConfig) -> (Self, Vec<Proxy>) {
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
        // After this, every node knows every script.
        rig.all_vote().await;
        rig.turn("warm").await;
        let asked = attempt("warm");
        rig.store
            .give_back(&asked.name, &asked.token, None)
            .await
            .unwrap();
        (rig, proxies)
    }

    pub(crate) fn server(&self, node: usize) -> &RedisServer {
        &self.nodes.servers[node]
    }

    pub(crate) fn server_mut(&mut self, node: usize) -> &mut RedisServer {
        &mut self.nodes.servers[node]
    }

    /// Acquires with an attempt, which must be granted.
    pub(crate) async fn grant(&self, attempt: &Attempt) -> HeldLease {
        granted(self.store.acquire(attempt).await)
    }

    /// A lease that all nodes have accepted, and not only a majority.
    pub(crate) async fn grant_everywhere(&self, lock: &str) -> (Attempt, HeldLease) {
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

    /// How many nodes have accepted the fencing token of a lease.
    pub(crate) async fn have_accepted(&self, lock: &LockName, lease: &HeldLease) -> usize {
        let key = format!("lg:{{{lock}}}:info");
        let mut have = 0;
        for server in &self.nodes.servers {
            let fence = server.text(&["HGET", &key, "fence"]).await;
            have += usize::from(fence == lease.fence.to_string());
        }
        have
    }

    pub(crate) async fn release(&self, attempt: &Attempt) {
        let release = self.store.release(&attempt.name, &attempt.token).await;
        assert!(matches!(release, Ok(Release::Released(_))), "{release:?}");
    }

    /// Releases a lease, and waits until no node has it.
    pub(crate) async fn release_everywhere(&self, attempt: &Attempt) {
        self.release(attempt).await;
        self.nothing_left(&attempt.name).await;
    }

    /// Acquires and releases a lock. Answers the fencing token.
    pub(crate) async fn turn(&self, lock: &str) -> u64 {
        let asked = attempt(lock);
        let lease = self.grant(&asked).await;
        self.release(&asked).await;
        lease.fence.get()
    }

    /// Acquires and releases a lock. The fencing token must be greater than `last`, which is replaced by it.
    pub(crate) async fn rises(&self, last: &mut u64) {
        let next = self.turn("lock").await;
        assert!(next > *last, "{next} after {last}");
        *last = next;
    }

    /// Renews a lease, which must keep its fencing token.
    pub(crate) async fn keeps(&self, attempt: &Attempt, lease: &HeldLease) {
        let renewed = self.store.must_renew(attempt, None).await;
        assert_eq!(renewed.fence, lease.fence);
    }

    /// At how many nodes the key of the lock exists, whoever wrote it.
    pub(crate) async fn holds(&self, lock: &LockName) -> usize {
        let key = format!("lg:{{{lock}}}:lock");
        let mut holds = 0;
        for server in &self.nodes.servers {
            holds += usize::from(server.integer(&["EXISTS", &key]).await == 1);
        }
        holds
    }

    /// Waits until the key of the lock exists at this number of nodes.
    pub(crate) async fn until_holds(&self, lock: &LockName, nodes: usize) {
        until("so many nodes have it", async || {
            self.holds(lock).await == nodes
        })
        .await;
    }

    /// Waits until the key of the lock exists at no node.
    pub(crate) async fn nothing_left(&self, lock: &LockName) {
        self.until_holds(lock, 0).await;
    }

    pub(crate) async fn health(&self, check: &str) -> Health {
        self.check(check).await.health
    }

    pub(crate) async fn check(&self, check: &str) -> Check {
        let checks = self.store.check().await;
        let found = checks.into_iter().find(|found| found.name == check);
        found.expect("there is such a check")
    }
}

/// Waits until each proxy has applied this many faults.
pub(crate) async fn all_struck(proxies: &[Proxy], times: usize) {
    for proxy in proxies {
        proxy.struck(times).await;
    }
}

/// The key of the counter of a lock's fencing tokens.
pub(crate) fn fence_key(lock: &str) -> String {
    let tag = SlotTags::compute()
        .for_slot(Slot::of_tag(lock.as_bytes()))
        .to_owned();
    format!("lg:{{{tag}}}:fence")
}
