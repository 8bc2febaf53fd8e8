//! Makes sure that enough replicas have a grant before its caller is told about it.
//!
//! `WAIT` counts the replicas that have what its own connection wrote before. So a marker is written on a connection
//! that is kept for this purpose: a replica that has the marker also has everything that the server did before the
//! marker.
//!
//! One marker confirms all grants that were made before it. The marker must be written at the same run of the same
//! server as the grant, on a connection that is older than the grant: if another server had taken over in between, or
//! if this server had been restarted, the connection would have ended. If the server's name leads to another server
//! meanwhile, the run ids of the grant and of the marker connection differ.

use std::sync::Arc;

use bb8_redis::redis::Value;
use parking_lot::Mutex;
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Duration, Instant, timeout_at},
};

use crate::{config::RedisConfig, store::Unavailability};

use super::{
    connection::{Connection, answered},
    failure::{ACL_LINE, Failure, hint},
    identity::RunId,
    pool::Pool,
    script::{Command, Parts, Script},
};

/// Checks whether enough replicas of one server have its grants.
pub(crate) struct Replicas {
    /// How many replicas must have a grant.
    wanted: u32,
    /// How long one WAIT waits for the replicas.
    timeout: Duration,
    /// How much longer than `timeout` the server may take to reply.
    answer_within: Duration,
    markers: Mutex<Option<Arc<MarkerConnection>>>,
    /// Held while a marker connection is opened.
    opening: AsyncMutex<()>,
    /// Why the last marker connection could not be opened, and when the failure was known.
    failed: Mutex<Option<(Instant, Unavailability)>>,
}

// === impl Replicas ===

impl Replicas {
    pub(crate) fn new(config: &RedisConfig) -> Self {
        Self {
            wanted: config.wait_replicas,
            timeout: config.wait_timeout_ms.duration(),
            answer_within: config.command_timeout_ms.duration(),
            markers: Mutex::default(),
            opening: AsyncMutex::new(()),
            failed: Mutex::default(),
        }
    }

    /// How many replicas must have a grant.
    pub(crate) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// The error for a grant that too few replicas have.
    pub(crate) fn too_few(&self, confirmed: Option<u32>) -> Unavailability {
        let wanted = self.wanted();
        Unavailability::TooFewReplicas { wanted, confirmed }
    }

    /// Maximum time of one check: the marker of earlier callers, and then the marker of the caller.
    pub(crate) fn longest(&self) -> Duration {
        2 * self.timeout + self.answer_within
    }

    /// How many replicas had the last marker in time, if that is known.
    pub(crate) fn confirmed(&self) -> Option<u32> {
        let markers = self.markers.lock().clone();
        markers.and_then(|markers| markers.last.lock().as_ref()?.1)
    }

    /// The connection whose markers confirm grants that are made from now on; `None` if replicas are not waited for.
    /// If it cannot be opened, all callers that wait for it get the reason. `marker`: returns the key of the marker.
    pub(crate) async fn marker_connection(
        &self,
        pool: &Pool,
        marker: impl FnOnce() -> String + Send,
        limit: Instant,
    ) -> Result<Option<Arc<MarkerConnection>>, Unavailability> {
        if self.wanted == 0 {
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
            let limit = Instant::now() + self.answer_within;
            MarkerConnection::open(connection, marker(), limit).await
        };
        let opened = open.await.map(Arc::new);
        match &opened {
            Ok(markers) => *self.markers.lock() = Some(Arc::clone(markers)),
            Err(why) => *self.failed.lock() = Some((Instant::now(), why.clone())),
        }
        opened
    }

    /// Checks that enough replicas have everything that this run of the server did before the call. Otherwise returns
    /// how many replicas have it, if that is known by `limit`.
    pub(crate) async fn have(
        &self,
        markers: &MarkerConnection,
        run: Option<&RunId>,
        limit: Instant,
    ) -> Result<(), Option<u32>> {
        if run != Some(&markers.run) {
            // Another run or another server made the grant: markers on this connection say nothing about it.
            return Err(None);
        }
        let confirmed = timeout_at(limit, self.confirmed_on(markers, limit)).await;
        match confirmed.ok().flatten() {
            Some(count) if count >= self.wanted => Ok(()),
            other => Err(other),
        }
    }

    async fn confirmed_on(&self, markers: &MarkerConnection, limit: Instant) -> Option<u32> {
        let asked = Instant::now();
        let _turn = markers.turn.lock().await;
        let last = *markers.last.lock();
        match last {
            // That marker was begun after this call, so its count holds for this caller as well.
            Some((begun, confirmed)) if begun > asked => confirmed,
            _ => {
                let begun = Instant::now();
                let confirmed = self.mark(markers, limit).await;
                *markers.last.lock() = Some((begun, confirmed));
                confirmed
            }
        }
    }

    /// Writes a marker and counts the replicas that have it, by `limit` at the latest.
    async fn mark(&self, markers: &MarkerConnection, limit: Instant) -> Option<u32> {
        let (connection, now) = (&markers.connection, Instant::now());
        let left = limit.saturating_duration_since(now);
        let for_the_answer = self.answer_within.min(left / 4);
        let timeout = self.timeout.min(left.saturating_sub(for_the_answer));
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        // A WAIT whose caller has gone keeps the connection busy until it times out. If its reply is overdue as well,
        // the connection may be dead.
        let earlier = *markers.unanswered.lock();
        if earlier.is_some_and(|due| due <= now) {
            connection.retire();
        }
        // WAIT with a timeout of 0 would wait for ever.
        if connection.is_broken() || timeout == 0 {
            return None;
        }
        let due = earlier.unwrap_or(now) + self.timeout + self.answer_within;
        *markers.unanswered.lock() = Some(earlier.unwrap_or(due));
        let wait = |script: Command| {
            let wait = Command::new("WAIT").with(self.wanted).with(timeout);
            [script.with(&markers.marker).with(MARKER_LASTS_MS), wait]
        };
        let mut replies = connection
            .send_all(&wait(markers.script.by_hash(1)), due)
            .await;
        if let Ok([Value::ServerError(error), _]) = replies.as_deref()
            && answered(error) == Failure::NoScript
        {
            replies = connection
                .send_all(&wait(markers.script.in_full(1)), due)
                .await;
        }
        *markers.unanswered.lock() = None;
        match replies.as_deref() {
            Ok([Value::Okay, Value::Int(count)]) => u32::try_from(*count).ok(),
            Ok([Value::ServerError(error), _] | [_, Value::ServerError(error)]) => {
                // In a cluster, the slot of the marker may have moved to another server. The next connection uses
                // another slot.
                if let Failure::WrongNode(_) | Failure::Elsewhere(_) = answered(error) {
                    connection.retire();
                }
                None
            }
            _ => None,
        }
    }

    /// The marker connection, if it is open. It is closed when the server's address leads to another server.
    fn open_markers(&self) -> Option<Arc<MarkerConnection>> {
        let now = self.markers.lock();
        let open = now.as_ref();
        open.filter(|markers| !markers.connection.is_broken())
            .cloned()
    }
}

// === Markers ===

/// A connection on which markers are written.
pub(crate) struct MarkerConnection {
    connection: Connection,
    /// Which run of which server the connection leads to.
    pub(crate) run: RunId,
    /// Key of the marker.
    marker: String,
    script: Script,
    /// Held while a marker is counted, so that callers that wait at the same time share the next marker.
    turn: AsyncMutex<()>,
    /// When the last marker was begun, and how many replicas have it, if that is known.
    last: Mutex<Option<(Instant, Option<u32>)>>,
    /// Time by which the reply to the first unanswered WAIT is due. It stays set if the caller of that WAIT goes
    /// away.
    unanswered: Mutex<Option<Instant>>,
}

/// Expiry of a marker, in ms: longer than it takes to reach a replica.
const MARKER_LASTS_MS: u64 = 1_000;

// === impl MarkerConnection ===

impl MarkerConnection {
    /// Checks on a new connection that its server can wait for replicas, before any grant relies on it.
    async fn open(
        connection: Connection,
        marker: String,
        limit: Instant,
    ) -> Result<Self, Unavailability> {
        let Some(run) = connection.run().cloned() else {
            let why = "the server does not say its run_id (INFO server), without which the gateway \
                       cannot tell whose replicas have a grant";
            return Err(Unavailability::Misconfigured(why.to_owned()));
        };
        let waited = connection
            .send(&Command::new("WAIT").with(0).with(1), limit)
            .await;
        waited.map_err(|failure| hint(failure.reason(), ACL_LINE))?;
        Ok(Self {
            connection,
            run,
            marker,
            script: Script::new(include_str!("marker.lua"), 1, &Parts::default()),
            turn: AsyncMutex::new(()),
            last: Mutex::default(),
            unanswered: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests;
