//! Nodes of a cluster take over from each other, are replaced and are added, while gateways get requests without a
//! pause.

use super::{
    super::sentinel::observer::{Observer, until_heard},
    servers::{BACK_WITHIN, SOON},
};
use crate::redis::prelude::*;

/// Two gateways on a cluster, with callers for locks of the first master and for locks of the others.
struct BusyCallers {
    cluster: Cluster,
    stores: Vec<Arc<RedisStore>>,
    /// What callers for locks of the first master have seen.
    struck: Arc<Observer>,
    spared: Arc<Observer>,
    callers: JoinSet<()>,
}

const CALLERS: usize = 4;

// === impl BusyCallers ===

impl BusyCallers {
    async fn start() -> Self {
        Self::on(Cluster::start(3, true, SOON).await).await
    }

    async fn on(cluster: Cluster) -> Self {
        let stores: Vec<_> = (0..2).map(|_| Arc::new(open(&cluster.url()))).collect();
        let [struck, spared] = [(); 2].map(|()| Arc::new(Observer::default()));
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            for (observer, server) in [(&struck, 0), (&spared, 1)] {
                let store = Arc::clone(&stores[caller % 2]);
                let observer = Arc::clone(observer);
                let names = cluster.names_on(server, 2 * CALLERS);
                let names = names[2 * caller..2 * caller + 2].to_vec();
                callers.spawn(async move { observer.call_for(&*store, &names).await });
            }
        }
        let busy = Self {
            cluster,
            stores,
            struck,
            spared,
            callers,
        };
        for observer in [&busy.struck, &busy.spared] {
            observer.served(Instant::now(), BACK_WITHIN).await;
        }
        busy
    }

    /// Waits until this server is a master that accepts writes.
    async fn takes_over(&self, server: usize) -> Instant {
        let start = Instant::now();
        while !self.is_master(server).await {
            assert!(start.elapsed() < 2 * BACK_WITHIN, "nobody takes over");
            sleep(Duration::from_millis(5)).await;
        }
        Instant::now()
    }

    /// Makes this replica take over, by `CLUSTER FAILOVER` with these options. On a busy machine the servers may give
    /// up, and the failover is requested again.
    async fn hand_over_to(&self, server: usize, options: &[&str]) -> Instant {
        let start = Instant::now();
        let asked_again = Duration::from_secs(6);
        loop {
            let asked = Instant::now();
            let role = &self.cluster.servers[server];
            role.run(&[&["CLUSTER", "FAILOVER"], options].concat())
                .await;
            while asked.elapsed() < asked_again {
                if self.is_master(server).await {
                    return Instant::now();
                }
                sleep(Duration::from_millis(5)).await;
            }
            let expected = start.elapsed() < 3 * BACK_WITHIN;
            assert!(expected, "the replica does not take over");
        }
    }

    async fn is_master(&self, server: usize) -> bool {
        let server = &self.cluster.servers[server];
        let role = server.run(&["ROLE"]).await;
        let master = matches!(&role, Value::Array(role)
            if matches!(&role[0], Value::BulkString(it) if it == b"master"));
        master && self.cluster.info(server, "cluster_state").await == "ok"
    }

    /// Introduces a node without slots to the cluster, and makes it a replica of this master.
    async fn join_as_replica(&self, server: usize, master: usize) {
        self.cluster.introduce(server).await;
        let joining = &self.cluster.servers[server];
        let id = self.cluster.id(master).await;
        until("the node becomes a replica", async || {
            let done = joining.run(&["CLUSTER", "REPLICATE", &id]).await;
            matches!(done, Value::Okay)
        })
        .await;
        self.has_replica(master).await;
    }

    /// Waits until the cluster is whole and this master has a replica.
    async fn has_replica(&self, master: usize) {
        until("the replica has come", async || {
            let Value::Array(role) = self.cluster.servers[master].run(&["ROLE"]).await else {
                return false;
            };
            matches!(role.get(2), Some(Value::Array(online)) if !online.is_empty())
        })
        .await;
        self.cluster.is_whole().await;
    }

    /// Lets the two servers with the slots of the first master replace each other, and waits each time until the
    /// callers are served again. `replace`: ends the first server as a master, so that the second takes over. `rejoin`:
    /// makes the first server a replica of the second.
    async fn take_turns(
        mut self,
        what: &str,
        replace: impl AsyncFn(&mut Self, usize, usize),
        rejoin: impl AsyncFn(&mut Self, usize, usize),
    ) {
        let mut back = Vec::new();
        for turn in 0..turns() {
            let (ends, next) = if turn % 2 == 0 { (0, 3) } else { (3, 0) };
            let ended = Instant::now();
            replace(&mut self, ends, next).await;
            self.spared.served(ended, BACK_WITHIN).await;
            let writable = self.takes_over(next).await;
            self.struck.served(writable, BACK_WITHIN).await;
            back.push(writable.elapsed());
            rejoin(&mut self, ends, next).await;
        }
        self.end(what, &back).await;
    }

    #[expect(clippy::print_stdout, reason = "the figures are what one wants to see")]
    async fn end(self, what: &str, back: &[Duration]) {
        for observer in [&self.struck, &self.spared] {
            observer.stop();
        }
        // No caller got a wrong answer.
        self.callers.join_all().await;
        let worst = back.iter().max().copied().unwrap_or_default();
        let (struck, spared) = (self.struck.seen(), self.spared.seen());
        println!("{what}: back after {worst:?} at most; {struck:?}, the others {spared:?}");
        assert!(worst < BACK_WITHIN, "{back:?}");
        until_heard(&self.stores).await;
    }
}

/// How often a test lets a master be replaced: each server with slots of the first master becomes a master once.
fn turns() -> usize {
    if full() { 20 } else { 2 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_that_are_planned_are_followed_and_the_others_serve_on() {
    let busy = BusyCallers::start().await;
    let mut back = Vec::new();
    for turn in 0..if full() { 20 } else { 1 } {
        // The replica takes over, and then the former master again.
        let next = if turn % 2 == 0 { 3 } else { 0 };
        let writable = busy.hand_over_to(next, &[]).await;
        busy.struck.served(writable, BACK_WITHIN).await;
        back.push(writable.elapsed());
        busy.cluster.is_whole().await;
    }
    let spared = busy.spared.seen();
    // The locks of the other masters are not affected.
    assert_eq!(spared.forgotten, 0, "{spared:?}");
    busy.end("planned failovers", &back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_killed_is_replaced_and_the_others_serve_meanwhile() {
    let busy = BusyCallers::start().await;
    let kill = async |busy: &mut BusyCallers, ends: usize, _| busy.cluster.servers[ends].kill();
    busy.take_turns("a master killed", kill, async |busy, ends, next| {
        eventually(
            "the new master is known, and the one before forgotten",
            async || {
                let nodes = busy.stores[0].figures().masters;
                let port = busy.cluster.servers[next].port();
                let is_known = nodes.contains(&(format!("127.0.0.1:{port}"), true));
                (nodes.len() == 3 && is_known).then_some(())
            },
        )
        .await;
        busy.cluster.servers[ends].start_again().await;
        busy.has_replica(next).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_without_a_vote_is_followed() {
    let busy = BusyCallers::start().await;
    let take_over = async |busy: &mut BusyCallers, _, next: usize| {
        busy.hand_over_to(next, &["TAKEOVER"]).await;
    };
    busy.take_turns("a takeover", take_over, async |busy, _, next| {
        busy.has_replica(next).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_reset_and_joins_again_is_a_new_node_of_the_cluster() {
    let busy = BusyCallers::start().await;
    let reset = async |busy: &mut BusyCallers, ends: usize, next: usize| {
        let master = &busy.cluster.servers[ends];
        // A master can be reset only while it has no key.
        until("the master is reset", async || {
            master.run(&["FLUSHALL"]).await;
            let done = master.run(&["CLUSTER", "RESET", "HARD"]).await;
            matches!(done, Value::Okay)
        })
        .await;
        // The other nodes find another id at the address, and elect no replica.
        busy.hand_over_to(next, &["TAKEOVER"]).await;
    };
    busy.take_turns("a master reset", reset, async |busy, ends, next| {
        busy.join_as_replica(ends, next).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_replaced_by_a_new_node_at_its_address_is_followed() {
    let busy = BusyCallers::start().await;
    let replace = async |busy: &mut BusyCallers, ends: usize, next: usize| {
        let server = &mut busy.cluster.servers[ends];
        server.kill();
        // Without this file the node has a new id and knows no other node.
        std::fs::remove_file(server.directory().join("nodes.conf")).unwrap();
        server.start_again().await;
        busy.hand_over_to(next, &["TAKEOVER"]).await;
    };
    busy.take_turns(
        "a new node in place of a master",
        replace,
        async |busy, ends, next| {
            busy.join_as_replica(ends, next).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_slots_that_joins_takes_over_slots_under_load() {
    let mut cluster = Cluster::start(3, false, NEVER).await;
    let added = cluster.add().await;
    let busy = BusyCallers::on(cluster).await;
    let mut back = Vec::new();
    // Each slot of a lock that has a caller moves once.
    for name in busy.cluster.names_on(0, 2 * CALLERS).iter().take(turns()) {
        let slot = slot_of(name);
        busy.cluster.move_slot(slot, 0, added).await;
        let moved = Instant::now();
        let server = &busy.cluster.servers[added];
        let before = server.calls("evalsha").await;
        until("scripts run at the server that has the slot", async || {
            server.calls("evalsha").await > before
        })
        .await;
        busy.struck.served(moved, BACK_WITHIN).await;
        back.push(moved.elapsed());
    }
    let spared = busy.spared.seen();
    assert_eq!(spared.forgotten, 0, "{spared:?}");
    busy.end("slots moved to a new node", &back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_froze_is_replaced_and_what_it_says_then_is_not_believed() {
    let busy = BusyCallers::start().await;
    let frozen = &busy.cluster.servers[0];
    frozen.freeze();
    let writable = busy.takes_over(3).await;
    busy.struck.served(writable, BACK_WITHIN).await;
    let back = writable.elapsed();
    frozen.thaw();
    for name in busy.cluster.names_on(0, 20) {
        busy.stores[0]
            .must_grant(&attempt(&format!("{name}-x")))
            .await;
    }
    busy.cluster.is_whole().await;
    busy.end("a master frozen", &[back]).await;
}
