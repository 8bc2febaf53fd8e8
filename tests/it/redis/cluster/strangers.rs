//! A server that is no member of the cluster comes up at the address of a master that has died.

use super::servers::BACK_WITHIN;
use crate::redis::prelude::*;

/// How long the gateway must refuse a stranger: several topology refreshes and address checks.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// How many locks are held at the master that dies.
const HELD: usize = 10;

/// A server that comes up at the address of a dead master.
#[derive(Debug, Clone, Copy)]
enum Stranger {
    /// A Redis without a cluster.
    Plain,
    /// A node of another cluster, which has every slot. Its configuration epoch is later than those of the first
    /// cluster, or earlier.
    OfAnotherCluster { epoch: &'static str },
}

const STRANGERS: [Stranger; 3] = [
    Stranger::Plain,
    Stranger::OfAnotherCluster { epoch: "1000" },
    Stranger::OfAnotherCluster { epoch: "1" },
];

// === impl Stranger ===

impl Stranger {
    /// Starts this stranger at the address of a server that was killed. The nodes file of the killed server is kept in
    /// its directory.
    async fn replace(self, server: &mut RedisServer) {
        let nodes = server.directory().join("nodes.conf");
        std::fs::rename(&nodes, nodes.with_extension("kept")).unwrap();
        match self {
            Self::Plain => server.start_again_with(&["--cluster-enabled", "no"]).await,
            Self::OfAnotherCluster { epoch } => {
                server.start_again().await;
                server.run(&["CLUSTER", "SET-CONFIG-EPOCH", epoch]).await;
                server.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
                until("the stranger serves", async || {
                    let info = server.text(&["CLUSTER", "INFO"]).await;
                    info.contains("cluster_state:ok")
                })
                .await;
            }
        }
    }

    /// Ends the stranger, and starts the server whose address it had taken.
    async fn leave(self, server: &mut RedisServer) {
        server.kill();
        let nodes = server.directory().join("nodes.conf");
        std::fs::rename(nodes.with_extension("kept"), &nodes).unwrap();
        server.start_again_with(&["--cluster-enabled", "yes"]).await;
    }
}

/// Asserts that none of these locks is granted by any of the stores for a while.
async fn assert_refused(stores: &[&RedisStore], names: &[String], why: Stranger) {
    let until = Instant::now() + REFUSED_FOR;
    while Instant::now() < until {
        let asked = stores.iter().flat_map(|store| {
            let asked = names.iter().map(|name| attempt(name));
            asked.map(async move |asked| (asked.name.clone(), store.acquire(&asked).await))
        });
        for (name, outcome) in join_all(asked).await {
            let refused = matches!(outcome, Err(StoreError::Unavailable(_)));
            assert!(refused, "{why:?} at the address: {name} is {outcome:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_at_the_address_of_a_dead_master_grants_no_lock() {
    let mut cluster = Cluster::start(3, false, NEVER).await;
    let store = open(&cluster.url());
    let at = format!("127.0.0.1:{}", cluster.servers[0].port());
    for stranger in STRANGERS {
        let held = cluster.names_on(0, HELD);
        let others = [1, 2].map(|server| cluster.names_on(server, 1).remove(0));
        for name in &held {
            store.must_hold(attempt(name)).await;
        }
        cluster.servers[0].kill();
        stranger.replace(&mut cluster.servers[0]).await;
        // The second gateway has never seen the master that died.
        let late = open(&cluster.url());
        assert_refused(&[&store, &late], &held, stranger).await;
        for store in [&store, &late] {
            for name in &others {
                let asked = store.must_hold(attempt(name)).await;
                store.must_release(&asked).await;
            }
            let Some(Health::Outage(why)) = health(store, "connection").await else {
                panic!("{stranger:?}: the master is away");
            };
            assert!(why.contains(&at) && why.contains("not a node"), "{why}");
        }
        // The master is back, with the data that it has kept: none.
        stranger.leave(&mut cluster.servers[0]).await;
        cluster.is_whole().await;
        let back = Instant::now();
        for name in &held {
            until_answered(&store, name).await;
        }
        assert!(back.elapsed() < BACK_WITHIN);
        for name in &held {
            store.break_lock(&attempt(name).name, None).await.unwrap();
        }
    }
}
