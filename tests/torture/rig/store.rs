//! The whole system under test in a run.

use std::{net::SocketAddr, path::Path};

use bb8_redis::redis;
use tokio::{
    task::JoinSet,
    time::{Duration, Instant, sleep},
};

use super::{Gateway, Kind, Proxy, Redis, sentinel};
use crate::options::Options;

/// The whole system under test in a run. When dropped, its processes end.
pub(crate) struct Rig {
    pub(crate) gateways: Vec<Gateway>,
    /// The proxies between a gateway and its server: one for each gateway and server, if the store has them.
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) servers: Vec<Redis>,
    sentinels: Vec<sentinel::Sentinel>,
}

/// Options of a server that keeps acknowledged data over a restart.
pub(super) const KEEPS: [&str; 6] = [
    "--appendonly",
    "yes",
    // A killed server loses no written data: only a machine that fails does.
    "--appendfsync",
    "no",
    // A script that runs for longer makes the server reply to others that it is busy.
    "--busy-reply-threshold",
    "100",
];
/// The number of nodes of a quorum.
const NODES: usize = 3;
/// How long sentinels may take to know each other.
const TIMEOUT: Duration = Duration::from_secs(30);

// === impl Rig ===

impl Rig {
    /// Starts all processes, and waits until the gateways serve.
    pub(crate) async fn start(
        kind: &Kind,
        options: &Options,
        directory: &Path,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let mut rig = Self {
            gateways: Vec::new(),
            proxies: Vec::new(),
            servers: Vec::new(),
            sentinels: Vec::new(),
        };
        let stores = match kind {
            Kind::Embedded => vec![format!("embedded:{}", directory.join("data").display())],
            Kind::Url(url) => vec![url.clone(); kind.gateways()],
            Kind::Redis => rig.start_redis(kind.gateways(), directory, tasks).await,
            Kind::Sentinel => vec![rig.start_sentinels(directory).await; kind.gateways()],
            Kind::Redlock => rig.start_nodes(kind.gateways(), directory, tasks).await,
            Kind::Cluster => vec![rig.start_cluster(directory).await; kind.gateways()],
        };
        for (number, store) in stores.iter().enumerate() {
            let name = format!("gateway-{number}");
            let (program, mutant) = (&options.program, options.mutant.as_deref());
            let gateway = Gateway::start(program, directory, &name, store, mutant).await;
            rig.gateways.push(gateway);
        }
        rig
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways
            .iter()
            .map(|gateway| gateway.address)
            .collect()
    }

    /// The indexes of all servers that accept writes.
    pub(crate) async fn masters(&self) -> Vec<usize> {
        let mut masters = Vec::new();
        for (place, server) in self.servers.iter().enumerate() {
            let role = server.text(&["INFO", "replication"]).await;
            if role.contains("role:master") {
                masters.push(place);
            }
        }
        masters
    }

    /// Whether another server has taken over from a master.
    pub(crate) async fn is_replaced(&self, place: usize) -> bool {
        if self.sentinels.is_empty() {
            let role = self.partner(place).text(&["INFO", "replication"]).await;
            let state = self.partner(place).text(&["CLUSTER", "INFO"]).await;
            return role.contains("role:master") && state.contains("cluster_state:ok");
        }
        let named = self.named_master().await;
        named.is_some_and(|named| named != self.servers[place].address)
    }

    /// The address of the master that most sentinels name.
    async fn named_master(&self) -> Option<SocketAddr> {
        let mut named = Vec::new();
        for sentinel in &self.sentinels {
            named.extend(sentinel.master().await);
        }
        let most =
            |one: &&SocketAddr| 2 * named.iter().filter(|it| it == one).count() > named.len();
        named.iter().find(most).copied()
    }

    /// Makes a replica take over from a master. Sentinels that have just done a failover may refuse.
    pub(crate) async fn fail_over(&self, place: usize) {
        if self.sentinels.is_empty() {
            let partner = self.partner(place);
            drop(partner.run(&["CLUSTER", "FAILOVER"]).await);
        }
        for sentinel in &self.sentinels {
            let words = ["SENTINEL", "FAILOVER", sentinel::SERVICE];
            if super::redis::run(sentinel.address, &words).await.is_ok() {
                return;
            }
        }
    }

    /// Starts a server, and a proxy in front of it for each gateway.
    async fn start_redis(
        &mut self,
        gateways: usize,
        directory: &Path,
        tasks: &mut JoinSet<()>,
    ) -> Vec<String> {
        let server = Redis::start(directory, "redis", &KEEPS).await;
        for _ in 0..gateways {
            self.proxies.push(Proxy::start(server.address, tasks).await);
        }
        self.servers.push(server);
        let proxies = self.proxies.iter();
        proxies
            .map(|proxy| format!("redis://{}", proxy.address))
            .collect()
    }

    /// Starts three independent servers, and for each gateway a proxy in front of each server.
    async fn start_nodes(
        &mut self,
        gateways: usize,
        directory: &Path,
        tasks: &mut JoinSet<()>,
    ) -> Vec<String> {
        for node in 0..NODES {
            let server = Redis::start_with_clock(directory, &format!("redis-{node}"), &KEEPS).await;
            self.servers.push(server);
        }
        let mut stores = Vec::new();
        for _ in 0..gateways {
            let mut nodes = Vec::new();
            for server in &self.servers {
                let proxy = Proxy::start(server.address, tasks).await;
                nodes.push(proxy.address.to_string());
                self.proxies.push(proxy);
            }
            stores.push(format!("redlock://{}", nodes.join(",")));
        }
        stores
    }

    /// Starts a master, a replica and three sentinels.
    async fn start_sentinels(&mut self, directory: &Path) -> String {
        let master = Redis::start(directory, "redis-0", &KEEPS).await;
        let port = master.address.port().to_string();
        let of_master = [&KEEPS[..], &["--replicaof", "127.0.0.1", &port]].concat();
        let replica = Redis::start(directory, "redis-1", &of_master).await;
        for number in 0..3 {
            let name = format!("sentinel-{number}");
            let sentinel = sentinel::Sentinel::start(directory, &name, master.address).await;
            self.sentinels.push(sentinel);
        }
        self.servers = vec![master, replica];
        self.know_each_other().await;
        let addresses = self.sentinels.iter().map(|it| it.address.to_string());
        let addresses: Vec<_> = addresses.collect();
        format!(
            "redis+sentinel://{}/{}",
            addresses.join(","),
            sentinel::SERVICE
        )
    }

    /// Waits until the sentinels know each other and the replica, without which no failover is possible.
    async fn know_each_other(&self) {
        let deadline = Instant::now() + TIMEOUT;
        for sentinel in &self.sentinels {
            loop {
                let words = ["SENTINEL", "CKQUORUM", sentinel::SERVICE];
                let quorum = super::redis::run(sentinel.address, &words).await;
                let words = ["SENTINEL", "REPLICAS", sentinel::SERVICE];
                let replicas = super::redis::run(sentinel.address, &words).await;
                let replicas: usize = match replicas {
                    Ok(redis::Value::Array(replicas)) => replicas.len(),
                    _ => 0,
                };
                let text: String = quorum
                    .and_then(|value| Ok(redis::from_redis_value(value)?))
                    .unwrap_or_default();
                if text.starts_with("OK 3") && replicas == 1 {
                    break;
                }
                assert!(
                    Instant::now() < deadline,
                    "the sentinels do not find each other"
                );
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
