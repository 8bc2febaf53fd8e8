//! The servers of a cluster for one test.

use crate::redis::prelude::*;

/// The servers of a cluster.
pub(crate) struct Cluster {
    /// The first masters, and then a replica of each.
    pub(crate) servers: Vec<RedisServer>,
    masters: usize,
}

/// How long a server may be silent before the other servers take it for dead: a second if the test waits for a
/// failover, and long if a busy machine must not cause one.
pub(crate) const SOON: &str = "1000";
pub(crate) const NEVER: &str = "60000";
/// Service must be back this soon after another server has taken over: ten times the documented time.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(20);

// === impl Cluster ===

impl Cluster {
    /// Starts this many masters that share all slots, each with a replica or without.
    pub(crate) async fn start(masters: usize, with_replicas: bool, timeout: &str) -> Self {
        let count = if with_replicas { 2 * masters } else { masters };
        let servers = join_all((0..count).map(|_| Self::node(timeout))).await;
        let cluster = Self { servers, masters };
        cluster.form().await;
        cluster
    }

    /// Starts a server that is not yet part of a cluster with others.
    async fn node(timeout: &str) -> RedisServer {
        // A replica may take over even if it has not heard of its master for a while.
        let options = format!(
            "--cluster-enabled yes --cluster-port {} --cluster-node-timeout {timeout} \
             --cluster-replica-validity-factor 0 --cluster-allow-replica-migration no \
             --repl-diskless-sync-delay 0 --repl-ping-replica-period 1",
            RedisServer::FREE_PORT
        );
        RedisServer::start_as(&options).await
    }

    /// Adds a server without slots. Answers its index.
    pub(crate) async fn add(&mut self) -> usize {
        self.servers.push(Self::node(NEVER).await);
        let added = self.servers.len() - 1;
        self.introduce(added).await;
        for server in &self.servers {
            self.knows_all(server).await;
        }
        let sees_slots = async || self.info(&self.servers[added], "cluster_state").await == "ok";
        until("the server sees all slots served", sees_slots).await;
        added
    }

    async fn form(&self) {
        let of_each = Slot::COUNT.div_ceil(self.masters);
        for (n, server) in self.servers.iter().enumerate() {
            // Each server needs its own configuration epoch.
            let epoch = ["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()];
            server.run(&epoch).await;
            if n < self.masters {
                let last = ((n + 1) * of_each).min(Slot::COUNT) - 1;
                let (first, last) = ((n * of_each).to_string(), last.to_string());
                let range = ["CLUSTER", "ADDSLOTSRANGE", &first, &last];
                server.run(&range).await;
            }
        }
        for server in 1..self.servers.len() {
            self.introduce(server).await;
        }
        for (n, server) in self.servers.iter().enumerate() {
            self.knows_all(server).await;
            if n >= self.masters {
                let id = self.id(n - self.masters).await;
                until("it becomes a replica", async || {
                    let done = server.run(&["CLUSTER", "REPLICATE", &id]).await;
                    matches!(done, Value::Okay)
                })
                .await;
            }
        }
        self.is_whole().await;
    }

    /// Introduces a server to the cluster.
    pub(crate) async fn introduce(&self, server: usize) {
        let server = &self.servers[server];
        let (port, bus) = (server.port().to_string(), server.option("--cluster-port"));
        let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, bus];
        let known = self.servers.iter().find(|it| it.port() != server.port());
        known.expect("there are other servers").run(&meet).await;
    }

    async fn knows_all(&self, server: &RedisServer) {
        until("the server knows all of them", async || {
            let known = self.info(server, "cluster_known_nodes").await;
            known == self.servers.len().to_string()
        })
        .await;
    }

    /// Waits until every server sees all slots served, and every replica is connected.
    pub(crate) async fn is_whole(&self) {
        for (n, server) in self.servers.iter().enumerate() {
            let state = async || self.info(server, "cluster_state").await;
            let is_so = async || state().await == "ok";
            until("the server finds the cluster whole", is_so).await;
            if n < self.masters && self.servers.len() > self.masters {
                eventually("the replica has come", async || {
                    let Value::Array(role) = server.run(&["ROLE"]).await else {
                        return None;
                    };
                    match role.get(2) {
                        Some(Value::Array(online)) => (!online.is_empty()).then_some(()),
                        // The server is a replica now.
                        _ => Some(()),
                    }
                })
                .await;
            }
        }
    }

    pub(crate) fn url(&self) -> ServersUrl {
        let nodes = self.servers.iter().take(self.masters);
        let nodes: Vec<_> = nodes.map(|it| format!("127.0.0.1:{}", it.port())).collect();
        cluster_url(&format!("redis+cluster://{}", nodes.join(",")))
    }

    pub(crate) fn masters(&self) -> &[RedisServer] {
        &self.servers[..self.masters]
    }

    pub(crate) async fn id(&self, server: usize) -> String {
        self.servers[server].text(&["CLUSTER", "MYID"]).await
    }

    /// The server that has the slot of a lock before any move.
    pub(crate) fn owner(&self, lock: &str) -> usize {
        Slot::of_tag(lock.as_bytes()).index() / Slot::COUNT.div_ceil(self.masters)
    }

    /// Names of `count` locks whose slots are on this server before any move.
    pub(crate) fn names_on(&self, server: usize, count: usize) -> Vec<String> {
        let names = (0..).map(|n| format!("lock-{n}"));
        names
            .filter(|name| self.owner(name) == server)
            .take(count)
            .collect()
    }

    /// Begins the move of a slot from one server to another.
    pub(crate) async fn begin_move(&self, slot: Slot, from: usize, to: usize) {
        let number = slot.index().to_string();
        let (giver, taker) = (self.id(from).await, self.id(to).await);
        for (server, what, id) in [(to, "IMPORTING", &giver), (from, "MIGRATING", &taker)] {
            let set = ["CLUSTER", "SETSLOT", &number, what, id];
            let done = self.servers[server].run(&set).await;
            assert!(matches!(done, Value::Okay), "{done:?}");
        }
    }

    /// Moves some keys of the slot ahead.
    pub(crate) async fn move_keys(&self, keys: &[&str], from: usize, to: usize) {
        let port = self.servers[to].port().to_string();
        for key in keys {
            let moved = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
            let done = self.servers[from].run(&moved).await;
            let expected = matches!(&done, Value::Okay)
                || matches!(&done, Value::SimpleString(it) if it == "NOKEY");
            assert!(expected, "{done:?}");
        }
    }

    /// Moves all other keys of the slot, and ends the move.
    pub(crate) async fn end_move(&self, slot: Slot, from: usize, to: usize) {
        let number = slot.index().to_string();
        loop {
            let keys = ["CLUSTER", "GETKEYSINSLOT", &number, "100"];
            let left = self.servers[from].run(&keys).await;
            let left: Vec<String> = from_redis_value(left).unwrap();
            if left.is_empty() {
                break;
            }
            let left: Vec<&str> = left.iter().map(String::as_str).collect();
            self.move_keys(&left, from, to).await;
        }
        let taker = self.id(to).await;
        // The new server must get the slot first: if the old server came first and died, the slot would have no server.
        let mut others: Vec<usize> = (0..self.masters).filter(|&it| it != to).collect();
        others.insert(0, to);
        for server in others {
            let set = ["CLUSTER", "SETSLOT", &number, "NODE", &taker];
            self.servers[server].run(&set).await;
        }
        self.have_heard().await;
    }

    /// Waits until all masters have heard of the last move. A master that has not could take the next slot with an
    /// epoch that is too low, and lose it again.
    async fn have_heard(&self) {
        until("all masters are at the same epoch", async || {
            let mut epochs = Vec::new();
            for server in self.masters() {
                epochs.push(self.info(server, "cluster_current_epoch").await);
            }
            epochs.iter().all(|epoch| *epoch == epochs[0])
        })
        .await;
    }

    /// Moves a slot with all its keys.
    pub(crate) async fn move_slot(&self, slot: Slot, from: usize, to: usize) {
        self.begin_move(slot, from, to).await;
        self.end_move(slot, from, to).await;
    }

    /// A field of the server's view of the cluster.
    pub(crate) async fn info(&self, server: &RedisServer, field: &str) -> String {
        let Some(info) = server.try_run(&["CLUSTER", "INFO"]).await else {
            return String::new();
        };
        let info: String = from_redis_value(info).unwrap_or_default();
        let value = |line: &'_ str| {
            line.strip_prefix(field)?
                .strip_prefix(':')
                .map(str::to_owned)
        };
        info.lines().find_map(value).unwrap_or_default()
    }
}

/// Waits until a store has found that a master is away.
pub(crate) async fn until_away(store: &RedisStore, node: &str) {
    let away = (node.to_owned(), false);
    let is_so = async || store.figures().masters.contains(&away);
    until("it is found to be away", is_so).await;
}

/// The slot of a lock.
pub(crate) fn slot_of(lock: &str) -> Slot {
    Slot::of_tag(lock.as_bytes())
}

pub(crate) fn cluster_url(text: &str) -> ServersUrl {
    match text.parse() {
        Ok(StoreUrl::Servers(url)) => url,
        other => panic!("{text} is no URL of a cluster: {other:?}"),
    }
}
