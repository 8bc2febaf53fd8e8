//! Makes sure that enough replicas have a grant before it is answered.
//!
//! One marker is good for everybody whose grant was made before it (`marker_connection.rs`). It must be written at
//! the same run of the same server as the grant, and the connection for it is older than the grant: had
//! another server taken over in between, or had this one been started anew, it would have ended. Where the
//! name of the server leads to another one meanwhile, the two say of which run they are.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Duration, Instant, timeout_at},
};

use crate::{config::RedisConfig, store::Unavailability};

use super::{
    marker_connection::{MarkerConnection, ReplicaWait},
    pool::Pool,
    run::RunId,
};

/// Waits for the replicas of one server.
pub(crate) struct Replicas {
    replica_wait: ReplicaWait,
    markers: Mutex<Option<Arc<MarkerConnection>>>,
    /// Held while a connection is opened.
    opening: AsyncMutex<()>,
    /// Why the last one could not be opened, and when that was known.
    failed: Mutex<Option<(Instant, Unavailability)>>,
}

// === impl Replicas ===

impl Replicas {
    pub(crate) fn new(config: &RedisConfig) -> Self {
        Self {
            replica_wait: ReplicaWait {
                wanted: config.wait_replicas,
                timeout: config.wait_timeout_ms.duration(),
                answer_within: config.command_timeout_ms.duration(),
            },
            markers: Mutex::default(),
            opening: AsyncMutex::new(()),
            failed: Mutex::default(),
        }
    }

    /// How many are waited for.
    pub(crate) fn wanted(&self) -> u32 {
        self.replica_wait.wanted
    }

    /// How long it takes at most to find out who has something: the marker of those before, and one's own.
    pub(crate) fn longest(&self) -> Duration {
        2 * self.replica_wait.timeout + self.replica_wait.answer_within
    }

    /// How many had the last marker in time, if that is known.
    pub(crate) fn confirmed(&self) -> Option<u32> {
        let markers = self.markers.lock().clone();
        markers.and_then(|markers| markers.last.lock().as_ref()?.confirmed)
    }

    /// The connection on which it will be found out who has a grant that is made from now on; `None` if
    /// nobody waits for that. Those who ask while it cannot be opened are all told why.
    /// `marker`: what a marker may be called.
    pub(crate) async fn marker_connection(
        &self,
        pool: &Pool,
        marker: impl FnOnce() -> String + Send,
        limit: Instant,
    ) -> Result<Option<Arc<MarkerConnection>>, Unavailability> {
        if self.replica_wait.wanted == 0 {
            return Ok(None);
        }
        if let Some(markers) = self.open_markers() {
            return Ok(Some(markers));
        }
        let opened = timeout_at(limit, self.opened(pool, marker, Instant::now())).await;
        let in_time = opened.unwrap_or_else(|_elapsed| {
            let why = "no connection for replicas to be waited for was made in time";
            Err(Unavailability::Connect(why.to_owned()))
        });
        in_time.map(Some)
    }

    async fn opened(
        &self,
        pool: &Pool,
        marker: impl FnOnce() -> String + Send,
        asked: Instant,
    ) -> Result<Arc<MarkerConnection>, Unavailability> {
        let _opening = self.opening.lock().await;
        if let Some(markers) = self.open_markers() {
            return Ok(markers);
        }
        if let Some((at, why)) = &*self.failed.lock()
            && *at >= asked
        {
            return Err(why.clone());
        }
        let open = async {
            let connection = pool.route.connect().await?;
            let limit = Instant::now() + self.replica_wait.answer_within;
            MarkerConnection::open(connection, marker(), limit).await
        };
        let opened = open.await.map(Arc::new);
        match &opened {
            Ok(markers) => *self.markers.lock() = Some(Arc::clone(markers)),
            Err(why) => *self.failed.lock() = Some((Instant::now(), why.clone())),
        }
        opened
    }

    /// Whether enough replicas have everything that this run of the server had done before this is
    /// called; else how many have, if that is known by `limit`.
    pub(crate) async fn have(
        &self,
        markers: &MarkerConnection,
        run: Option<&RunId>,
        limit: Instant,
    ) -> Result<(), Option<u32>> {
        if run != Some(&markers.run) {
            // Whoever has the marker: what was done at that server is another matter.
            return Err(None);
        }
        let confirmed = timeout_at(limit, self.confirmed_on(markers, limit)).await;
        match confirmed.ok().flatten() {
            Some(count) if count >= self.replica_wait.wanted => Ok(()),
            other => Err(other),
        }
    }

    async fn confirmed_on(&self, markers: &MarkerConnection, limit: Instant) -> Option<u32> {
        let asked = Instant::now();
        let _turn = markers.turn.lock().await;
        let last = *markers.last.lock();
        match last {
            // What came of it, came of it for all who asked before.
            Some(last) if last.begun > asked => last.confirmed,
            _ => markers.round(self.replica_wait, limit).await,
        }
    }

    /// The open connection. When the address of the server leads to another one, it is closed.
    fn open_markers(&self) -> Option<Arc<MarkerConnection>> {
        let now = self.markers.lock();
        let open = now.as_ref();
        open.filter(|markers| !markers.connection.is_broken())
            .cloned()
    }
}

#[cfg(test)]
mod tests;
