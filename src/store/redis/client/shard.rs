//! One server that has locks: the connections to it, and what is known of it.
//!
//! Each has room of its own for those who ask, so that one that is away takes nothing from the others.

use std::sync::Arc;

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    time::{Duration, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{RedisConfig, RedisNode},
    lifecycle::Workers,
    store::Unavailability,
};

use super::{pool::Pool, replicas::Replicas, route::Route, safety::Admission};

/// One server that has locks, or whichever is the master.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) pool: Pool,
    pub(crate) replicas: Replicas,
    pub(crate) admission: Admission,
    /// Told when it is given up.
    pub(crate) disconnected: CancellationToken,
    /// Where it is, if it is one of several.
    node: Option<RedisNode>,
    /// Room for those who ask for something, among the commands that are under way.
    asking: Semaphore,
    /// Room for those who wait for it while it is away.
    waiting: Arc<Semaphore>,
    /// The same for those who keep a lease or end it: a crowd that wants locks takes nothing from them.
    keeping: Arc<Semaphore>,
}

/// What somebody wants of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandClass {
    /// To get a lock, or to know something.
    Ask,
    /// To keep a lease, or to end it.
    Keep,
}

/// How many acquires and inspections may be under way at once. A renewal or a release waits for no
/// more than these, however many ask: some milliseconds of the server's time.
const ASKING: usize = 1_024;
/// How long the others wait for room at least. Nothing has been sent for them then.
const ROOM_WITHIN: Duration = Duration::from_secs(1);
/// How many of one class may wait at once for one of several servers that is away. The others are
/// told so at once: what they keep busy meanwhile is missed by those who ask the servers that are there.
const WAITING: usize = 256;

// === impl Shard ===

impl Shard {
    /// The only server, or whichever is the master.
    pub(crate) fn only(route: Route, config: &RedisConfig, workers: &Workers) -> Self {
        Self::new(route, None, config, workers)
    }

    /// One of several.
    pub(crate) fn one_of(
        route: Route,
        node: RedisNode,
        config: &RedisConfig,
        workers: &Workers,
    ) -> Self {
        Self::new(route, Some(node), config, workers)
    }

    fn new(route: Route, node: Option<RedisNode>, config: &RedisConfig, workers: &Workers) -> Self {
        Self {
            pool: Pool::new(route, config, workers),
            replicas: Replicas::new(config),
            admission: Admission::new(),
            disconnected: CancellationToken::new(),
            node,
            asking: Semaphore::new(ASKING),
            waiting: Arc::new(Semaphore::new(WAITING)),
            keeping: Arc::new(Semaphore::new(WAITING)),
        }
    }

    /// Where it is, if it is one of several.
    pub(crate) fn node(&self) -> Option<&RedisNode> {
        self.node.as_ref()
    }

    /// Room for a command that does not keep anybody's lease, if there is some.
    pub(crate) fn free_room(&self) -> Option<SemaphorePermit<'_>> {
        self.asking.try_acquire().ok()
    }

    /// Room for such a command. Who is ready to wait for the lock may say that it waits longer than the others.
    pub(crate) async fn room(
        &self,
        ready_to_wait: Duration,
    ) -> Result<SemaphorePermit<'_>, Unavailability> {
        if let Some(room) = self.free_room() {
            return Ok(room);
        }
        match timeout(ROOM_WITHIN.max(ready_to_wait), self.asking.acquire()).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(Unavailability::Overloaded),
        }
    }

    /// Room to wait for it, if it is one of several and away.
    pub(crate) fn wait_permit(
        &self,
        with: CommandClass,
    ) -> Result<Option<OwnedSemaphorePermit>, Unavailability> {
        if self.node.is_none() {
            return Ok(None);
        }
        let Some(why) = self.pool.last_error() else {
            return Ok(None);
        };
        let room = match with {
            CommandClass::Ask => &self.waiting,
            CommandClass::Keep => &self.keeping,
        };
        match Arc::clone(room).try_acquire_owned() {
            Ok(place) => Ok(Some(place)),
            Err(_as_many_as_may) => Err(Unavailability::Connect(self.named(&why))),
        }
    }

    /// Says of which server something is told, if it is one of several.
    pub(crate) fn named(&self, what: &str) -> String {
        match &self.node {
            Some(node) => format!("{node}: {what}"),
            None => what.to_owned(),
        }
    }

    /// Gives it up: from now on nothing is sent to it, and every connection ends.
    pub(crate) fn disconnect(&self) {
        self.disconnected.cancel();
        self.pool.disconnect();
    }
}
