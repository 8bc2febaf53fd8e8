//! A pool of clusters that tests use one after the other, because the start of a cluster takes seconds.

use std::{
    ops::Deref,
    process::{Child, Stdio},
};

use crate::redis::prelude::*;
use crate::support::spawn;

/// An empty cluster from the pool, for as long as this lives.
pub(crate) struct Pooled {
    kept: Option<Kept>,
}

struct Kept {
    cluster: Cluster,
    /// A process that ends the servers after the tests, because static values are not dropped.
    _warden: Child,
}

static FREE: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

// === impl Pooled ===

impl Pooled {
    pub(crate) async fn take() -> Self {
        let free = FREE.lock().unwrap().pop();
        let kept = match free {
            Some(kept) => kept,
            None => Kept::start().await,
        };
        let empty = kept.cluster.masters().iter().map(async |server| {
            for kind in ["normal", "pubsub"] {
                let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
                server.run(&kill).await;
            }
            server.run(&["FLUSHALL"]).await;
        });
        join_all(empty).await;
        Self { kept: Some(kept) }
    }

    /// A cluster, and a store on it.
    pub(crate) async fn open() -> (Self, RedisStore) {
        let cluster = Self::take().await;
        let store = open(&cluster.url());
        (cluster, store)
    }

    /// A cluster, and two gateways on it.
    pub(crate) async fn with_gateways() -> (Self, [TestGateway; 2]) {
        let cluster = Self::take().await;
        let gates = [0, 1].map(|_| TestGateway::with(&cluster.url(), &quick()));
        (cluster, gates)
    }

    /// Ends the servers of this cluster, which does not go back to the pool.
    pub(crate) fn spend(mut self) {
        self.kept = None;
    }
}

impl Deref for Pooled {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        let kept = self.kept.as_ref();
        &kept.expect("it is given back at the very end").cluster
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // After a failed test the state of the cluster is unknown.
        if let Some(kept) = self.kept.take().filter(|_| !std::thread::panicking()) {
            FREE.lock().unwrap().push(kept);
        }
    }
}

// === impl Kept ===

impl Kept {
    async fn start() -> Self {
        let cluster = Cluster::start(3, false, NEVER).await;
        let pids = cluster.servers.iter().map(|it| it.pid().to_string());
        let pids = pids.collect::<Vec<_>>().join(" ");
        // The standard input of the process ends when this process ends, in whatever way.
        let warden = spawn::command("sh")
            .args(["-c", &format!("cat > /dev/null; kill -9 {pids}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell can be started");
        Self {
            cluster,
            _warden: warden,
        }
    }
}
