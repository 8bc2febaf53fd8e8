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
    /// A node of another cluster, which has every slot. Its epoch is later than the epoch of the first cluster, and the
    /// nodes of the first cluster do not notice it, because it listens for other nodes on another port.
    OfNewerCluster,
    /// A node of another cluster, which has every slot. Its epoch is earlier than the epoch of the first cluster, whose
    /// nodes find another id at the address, and forget the address.
    OfOlderCluster,
}

// === impl Stranger ===

impl Stranger {
    /// Starts this stranger at the address of a server that was killed. The nodes file of the killed server is kept in
    /// its directory.
    async fn replace(self, server: &mut RedisServer) {
        let nodes = server.directory().join("nodes.conf");
        std::fs::rename(&nodes, nodes.with_extension("kept")).unwrap();
        let (options, epoch) = match self {
            Self::Plain => {
                return server.start_again_with(&["--cluster-enabled", "no"]).await;
            }
            Self::OfNewerCluster => (
                vec!["--cluster-port".to_owned(), free_port().to_string()],
                "9",
            ),
            Self::OfOlderCluster => (Vec::new(), "1"),
        };
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        server.start_again_with(&options).await;
        server.run(&["CLUSTER", "SET-CONFIG-EPOCH", epoch]).await;
        let all = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
        server.run(&all).await;
        until("the stranger serves", async || {
            let info = server.text(&["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok")
        })
        .await;
    }

    /// Ends the stranger, and starts the server whose address it had taken.
    async fn leave(self, server: &mut RedisServer) {
        server.kill();
        let nodes = server.directory().join("nodes.conf");
        std::fs::rename(nodes.with_extension("kept"), &nodes).unwrap();
        let bus = server.option("--cluster-port").to_owned();
        let options = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        server.start_again_with(&options).await;
    }
}

/// Asserts that none of these locks is granted by any of the stores for a while.
async fn assert_refused(stores: &[&RedisStore], names: &[String], by: Stranger) {
    let until = Instant::now() + REFUSED_FOR;
    while Instant::now() < until {
        let asked = stores.iter().flat_map(|store| {
            let asked = names.iter().map(|name| attempt(name));
            asked.map(async move |asked| (asked.name.clone(), store.acquire(&asked).await))
        });
        for (name, outcome) in join_all(asked).await {
            let refused = matches!(outcome, Err(StoreError::Unavailable(_)));
            assert!(refused, "{by:?} at the address: {name} is {outcome:?}");
        }
    }
}

/// Lets this stranger come up at the address of a master that dies, and then the master again.
async fn assert_grants_nothing(stranger: Stranger) {
    let mut cluster = Cluster::start(3, false, NEVER).await;
    let store = open(&cluster.url());
    let at = format!("127.0.0.1:{}", cluster.servers[0].port());
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
        let (check, told) = match stranger {
            Stranger::OfOlderCluster => ("cluster", "slots have no master"),
            _ => ("connection", "not a node of the cluster"),
        };
        let Some(Health::Outage(why)) = health(store, check).await else {
            panic!("{stranger:?}: the master is away");
        };
        assert!(why.contains(told), "{why}");
        assert!(check == "cluster" || why.contains(&at), "{why}");
    }
    stranger.leave(&mut cluster.servers[0]).await;
    let back = Instant::now();
    for name in &held {
        until_answered(&store, name).await;
    }
    assert!(back.elapsed() < BACK_WITHIN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_redis_at_the_address_of_a_dead_master_grants_no_lock() {
    assert_grants_nothing(Stranger::Plain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_newer_cluster_at_the_address_of_a_dead_master_grants_no_lock() {
    assert_grants_nothing(Stranger::OfNewerCluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_an_older_cluster_at_the_address_of_a_dead_master_grants_no_lock() {
    assert_grants_nothing(Stranger::OfOlderCluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_joins_another_cluster_without_a_restart_is_left() {
    let cluster = Cluster::start(3, false, NEVER).await;
    let store = open(&cluster.url());
    let names = cluster.names_on(0, HELD);
    for name in &names {
        store.must_hold(attempt(name)).await;
    }
    let left = &cluster.servers[0];
    left.run(&["FLUSHALL"]).await;
    // The node keeps its id and its run, and the other nodes still take it for the master.
    left.run(&["CLUSTER", "RESET", "SOFT"]).await;
    left.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually("the node is left", async || {
        let refused = store.acquire(&attempt(&names[0])).await;
        matches!(refused, Err(StoreError::Unavailable(_))).then_some(())
    })
    .await;
    assert_refused(&[&store], &names, Stranger::OfNewerCluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeds_of_two_clusters_lead_to_none_and_most_of_the_seeds_decide() {
    let clusters = [
        Cluster::start(1, false, NEVER).await,
        Cluster::start(2, false, NEVER).await,
    ];
    let [one, two] = [&clusters[0], &clusters[1]].map(|cluster| {
        let nodes = cluster.servers.iter();
        nodes
            .map(|it| format!("127.0.0.1:{}", it.port()))
            .collect::<Vec<_>>()
    });
    let undecided = open(&cluster_url(&format!(
        "redis+cluster://{},{}",
        one[0], two[0]
    )));
    let refused = undecided.acquire(&attempt("lock")).await;
    let Err(StoreError::Unavailable(Unavailability::Misconfigured(why))) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains(&one[0]) && why.contains(&two[0]), "{why}");
    let both = [one, two].concat().join(",");
    let decided = open(&cluster_url(&format!("redis+cluster://{both}")));
    for n in 0..HELD {
        decided.must_hold(attempt(&format!("lock-{n}"))).await;
    }
    assert_eq!(clusters[0].servers[0].keys().await, [""; 0]);
}

#[tokio::test]
async fn nodes_are_recognised_whatever_their_addresses_are_called() {
    let cluster = Pooled::take().await;
    for server in cluster.masters() {
        server.set("cluster-announce-hostname", "localhost").await;
    }
    let store = open(&cluster.url());
    // A server without an address is sought at the host of the server that names it.
    for (kind, host) in [
        ("hostname", "localhost"),
        ("unknown-endpoint", "localhost"),
        ("ip", "127.0.0.1"),
    ] {
        for server in cluster.masters() {
            server.set("cluster-preferred-endpoint-type", kind).await;
        }
        until("the addresses are known by these names", async || {
            let masters = store.figures().masters;
            let is_named =
                |(node, is_reached): &(String, bool)| node.starts_with(host) && *is_reached;
            masters.len() == 3 && masters.iter().all(is_named)
        })
        .await;
        for server in 0..3 {
            let lock = &cluster.names_on(server, 1)[0];
            let asked = store.must_hold(attempt(lock)).await;
            store.must_release(&asked).await;
        }
        // A gateway that starts now finds the servers by the names of their addresses.
        let late = open(&cluster.url());
        let asked = late.must_hold(attempt("late")).await;
        late.must_release(&asked).await;
    }
    for server in cluster.masters() {
        server.set("cluster-announce-hostname", "").await;
    }
}
