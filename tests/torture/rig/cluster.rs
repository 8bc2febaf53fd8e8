//! A cluster of server processes, and moves of its slots.

use std::{collections::BTreeSet, path::Path, time::Duration};

use bb8_redis::redis::{self, RedisResult};
use tokio::time::{Instant, sleep};

use super::{Redis, Rig, address, store::KEEPS};

/// A wait with a deadline, and what it waits for.
struct Patience {
    awaited: &'static str,
    deadline: Instant,
}

/// The number of masters at the beginning, each of which has a replica.
const MASTERS: usize = 3;
const SLOTS: usize = 16_384;
const OPTIONS: [&str; 14] = [
    "--cluster-enabled",
    "yes",
    // How long a server may be silent before its replica takes over.
    "--cluster-node-timeout",
    "2000",
    "--cluster-require-full-coverage",
    "no",
    // A replica may take over even if it has not heard of its master for a while.
    "--cluster-replica-validity-factor",
    "0",
    "--cluster-allow-replica-migration",
    "no",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "1",
];
/// How long the servers may take to agree.
const IN_TIME: Duration = Duration::from_secs(30);
const OFTEN: Duration = Duration::from_millis(50);

// === impl Rig ===

impl Rig {
    /// Starts three masters with a replica each, and connects them to a cluster.
    pub(super) async fn start_cluster(&mut self, directory: &Path) -> String {
        for number in 0..2 * MASTERS {
            let bus = address::free().port().to_string();
            let options = [&KEEPS[..], &OPTIONS, &["--cluster-port", &bus]].concat();
            let server = Redis::start(directory, &format!("redis-{number}"), &options).await;
            // Each server needs its own configuration epoch.
            let epoch = (number + 1).to_string();
            server
                .run(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await
                .unwrap();
            if let Some(first) = self.servers.first() {
                let port = server.address.port().to_string();
                let meets = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus];
                first.run(&meets).await.unwrap();
            }
            self.servers.push(server);
        }
        let of_each = SLOTS.div_ceil(MASTERS);
        for (number, server) in self.servers[..MASTERS].iter().enumerate() {
            let last = ((number + 1) * of_each).min(SLOTS) - 1;
            let (first, last) = ((number * of_each).to_string(), last.to_string());
            let takes = ["CLUSTER", "ADDSLOTSRANGE", &first, &last];
            server.run(&takes).await.unwrap();
        }
        for (number, replica) in self.servers[MASTERS..].iter().enumerate() {
            let of = self.servers[number].text(&["CLUSTER", "MYID"]).await;
            let patience = Patience::new("a server becomes a replica");
            while replica.run(&["CLUSTER", "REPLICATE", &of]).await.is_err() {
                patience.bear().await;
            }
        }
        self.is_whole().await;
        let masters = self.servers[..MASTERS].iter();
        let masters: Vec<_> = masters.map(|it| it.address.to_string()).collect();
        format!("redis+cluster://{}", masters.join(","))
    }

    /// The server with the same data, as its replica or as its master. The first masters come first in the list.
    pub(crate) fn partner(&self, place: usize) -> &Redis {
        let servers = self.servers.len();
        &self.servers[(place + servers / 2) % servers]
    }

    /// Waits until all servers find the cluster complete, and half of them are replicas.
    pub(crate) async fn is_whole(&self) {
        let patience = Patience::new("the cluster is whole");
        while self.following().await != MASTERS {
            patience.bear().await;
        }
    }

    /// How many servers are replicas; 0 while a server finds the cluster incomplete.
    async fn following(&self) -> usize {
        let mut following = 0;
        for server in &self.servers {
            let state = server.text(&["CLUSTER", "INFO"]).await;
            if !state.contains("cluster_state:ok") || !state.contains("cluster_known_nodes:6") {
                return 0;
            }
            let role = server.text(&["INFO", "replication"]).await;
            following += usize::from(role.contains("master_link_status:up"));
        }
        following
    }

    /// Moves the slot of a lock to another master. For some time its keys are at both servers.
    pub(crate) async fn move_slot_of(&self, lock: &str, lasts: Duration) -> RedisResult<()> {
        let slot = self.servers[0].run(&["CLUSTER", "KEYSLOT", lock]).await?;
        let slot = redis::from_redis_value::<usize>(slot)?.to_string();
        let mut masters = self.masters().await;
        let key = format!("lg:{{{lock}}}:lock");
        let patience = Patience::new("one of them has the slot");
        while self.servers[masters[0]]
            .run(&["EXISTS", &key])
            .await
            .is_err()
        {
            // The server redirects to another master, which is asked next.
            masters.rotate_left(1);
            patience.bear().await;
        }
        let [giver, taker] = [masters[0], masters[1]].map(|place| &self.servers[place]);
        let from = giver.text(&["CLUSTER", "MYID"]).await;
        let to = taker.text(&["CLUSTER", "MYID"]).await;
        let words = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from];
        taker.run(&words).await?;
        let words = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to];
        giver.run(&words).await?;
        // Some keys move ahead, and callers find the rest at the old server.
        send(&slot, 2, giver, taker).await?;
        sleep(lasts).await;
        while send(&slot, 100, giver, taker).await? > 0 {}
        // The new server must get the slot first: if the old server came first and died, the slot would have no server.
        masters.swap(0, 1);
        for &place in &masters {
            let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &to];
            self.servers[place].run(&words).await?;
        }
        // A master that has not heard of the move could take the next slot with an epoch that is too low, and lose it
        // again.
        let patience = Patience::new("all masters are at the same epoch");
        while !self.are_at_one_epoch(&masters).await {
            patience.bear().await;
        }
        Ok(())
    }

    async fn are_at_one_epoch(&self, masters: &[usize]) -> bool {
        let mut epochs = BTreeSet::new();
        for &place in masters {
            let info = self.servers[place].text(&["CLUSTER", "INFO"]).await;
            let epoch = |line: &&str| line.starts_with("cluster_current_epoch:");
            epochs.insert(info.lines().find(epoch).map(str::to_owned));
        }
        epochs.len() == 1
    }
}

/// Moves some keys of a slot from one server to another. Answers their number.
async fn send(slot: &str, count: usize, giver: &Redis, taker: &Redis) -> RedisResult<usize> {
    let words = ["CLUSTER", "GETKEYSINSLOT", slot, &count.to_string()];
    let keys: Vec<String> = redis::from_redis_value(giver.run(&words).await?)?;
    let port = taker.address.port().to_string();
    for key in &keys {
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
        giver.run(&words).await?;
    }
    Ok(keys.len())
}

// === impl Patience ===

impl Patience {
    fn new(awaited: &'static str) -> Self {
        Self {
            awaited,
            deadline: Instant::now() + IN_TIME,
        }
    }

    async fn bear(&self) {
        assert!(
            Instant::now() < self.deadline,
            "{}: not in time",
            self.awaited
        );
        sleep(OFTEN).await;
    }
}
