//! A replica of a cluster takes over from its master, while gateways get requests without a pause.

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
        let cluster = Cluster::start(3, true, SOON).await;
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

    /// Makes this replica take over. On a busy machine the servers may give up, and the failover is requested again.
    async fn hand_over_to(&self, server: usize) -> Instant {
        let start = Instant::now();
        let asked_again = Duration::from_secs(6);
        loop {
            let asked = Instant::now();
            let role = &self.cluster.servers[server];
            role.run(&["CLUSTER", "FAILOVER"]).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_that_are_planned_are_followed_and_the_others_serve_on() {
    let busy = BusyCallers::start().await;
    let mut back = Vec::new();
    for turn in 0..if full() { 20 } else { 1 } {
        // The replica takes over, and then the former master again.
        let next = if turn % 2 == 0 { 3 } else { 0 };
        let writable = busy.hand_over_to(next).await;
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
    let mut busy = BusyCallers::start().await;
    busy.cluster.servers[0].kill();
    let killed = Instant::now();
    busy.spared.served(killed, BACK_WITHIN).await;
    let writable = busy.takes_over(3).await;
    busy.struck.served(writable, BACK_WITHIN).await;
    let back = writable.elapsed();
    eventually(
        "the new master is known, and the one before forgotten",
        async || {
            let nodes = busy.stores[0].figures().masters;
            let node = |server: usize| format!("127.0.0.1:{}", busy.cluster.servers[server].port());
            let has = |server| nodes.contains(&(node(server), true));
            (nodes.len() == 3 && has(3)).then_some(())
        },
    )
    .await;
    busy.end("a master killed", &[back]).await;
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
