//! The store itself: what it is made of, and the contract in terms of the scripts.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use tokio::time::{Duration, timeout};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::{
    clock::Clock,
    config::{RedisConfig, RedisUrl},
    lifecycle::Lifecycle,
    lock::{LockName, TokenHash, Ttl},
    store::{
        Store, StoreError, Unavailability,
        contract::{Acquisition, Attempt, Check, GiveBack, Health, Inspection, Release, Renewal},
    },
};

use super::{
    SlotTags, admission::Admission, dispatch::Dispatch, examination::Examiner, floors::Floors,
    keys::Keys, pool::Pool, scripts::Scripts, topology::Topology,
};

/// Leases in Redis.
///
/// It starts whether or not the server does, and comes back by itself when the server does. Before
/// the server has been reached once and found safe, nothing is granted.
pub struct RedisStore {
    dispatch: Arc<Dispatch>,
    scripts: Arc<Scripts>,
    floors: Arc<Floors>,
    admission: Arc<Admission>,
    tags: SlotTags,
    description: String,
    closed: AtomicBool,
    /// The commands that are under way.
    working: TaskTracker,
    deadline: Duration,
}

// === impl RedisStore ===

impl RedisStore {
    /// Opens the store. It connects when it is needed, and at once in a task of its own.
    ///
    /// The clock is only compared with the server's, to warn of a difference.
    pub fn open(
        url: &RedisUrl,
        config: &RedisConfig,
        clock: Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) -> Self {
        let topology = Topology::Single(Pool::new(url, config));
        let dispatch = Arc::new(Dispatch::new(topology, config));
        let scripts = Arc::new(Scripts::new());
        let floors = Arc::new(Floors::new());
        let examiner = Examiner {
            dispatch: Arc::clone(&dispatch),
            scripts: Arc::clone(&scripts),
            floors: Arc::clone(&floors),
            clock,
            accept_eviction: config.accept_eviction,
        };
        let limit = config.command_timeout_ms.duration();
        let admission = Arc::new(Admission::new(examiner, limit));
        let (watcher, stopped) = (Arc::clone(&admission), lifecycle.stopped());
        lifecycle.spawn(async move { watcher.watch(stopped).await });
        Self {
            dispatch,
            scripts,
            floors,
            admission,
            tags: SlotTags::compute(),
            description: format!("Redis at {url}"),
            closed: AtomicBool::new(false),
            working: TaskTracker::new(),
            deadline: config.deadline_ms.duration(),
        }
    }

    /// Counts a command as under way for as long as the token lives.
    fn enter(&self) -> Result<TaskTrackerToken, Unavailability> {
        let token = self.working.token();
        if self.closed.load(Ordering::SeqCst) {
            return Err(Unavailability::Closing);
        }
        Ok(token)
    }

    fn keys(&self, name: &LockName) -> Keys {
        Keys::of(name, &self.tags)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let _working = self.enter()?;
        self.admission.admit().await?;
        let keys = self.keys(&attempt.name);
        let scripts = &self.scripts;
        scripts
            .acquire(&self.dispatch, &keys, &self.floors, attempt)
            .await
    }

    async fn renew(
        &self,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        self.scripts.renew(&self.dispatch, &keys, token, ttl).await
    }

    async fn release(&self, name: &LockName, token: &TokenHash) -> Result<Release, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        self.scripts.release(&self.dispatch, &keys, token).await
    }

    async fn give_back(&self, name: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        self.scripts.give_back(&self.dispatch, &keys, token).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        self.scripts.inspect(&self.dispatch, &keys).await
    }

    async fn check(&self) -> Vec<Check> {
        match self.enter() {
            Ok(_working) => self.admission.check().await,
            Err(closing) => vec![Check {
                name: "connection",
                health: Health::Outage(closing.to_string()),
            }],
        }
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.working.close();
        // No command lasts longer than its deadline, the giving back after an acquire included.
        drop(timeout(2 * self.deadline, self.working.wait()).await);
        for pool in self.dispatch.topology.pools() {
            pool.close().await;
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}
