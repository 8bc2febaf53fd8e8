//! A connection on which markers are written, to find out which replicas have what was done before.
//!
//! `WAIT` tells of what its own connection wrote before. So a marker is written on a connection that is
//! kept for this, and all that the server did before the marker is on a replica that has the marker.

use bb8_redis::redis::{Cmd, Pipeline, Value};
use parking_lot::Mutex;
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Duration, Instant},
};

use crate::store::Unavailability;

use super::{
    calls::{Parts, Script, ScriptCall},
    connection::{Connection, answered},
    failure::{ACL_LINE, Failure, hint},
    run::RunId,
};

/// A connection on which markers are written.
pub(crate) struct MarkerConnection {
    pub(super) connection: Connection,
    /// Which run of which server it leads to.
    pub(crate) run: RunId,
    /// What the marker is called.
    marker: String,
    script: Script,
    /// Held while replicas are waited for, so that those who wait together share a marker.
    pub(super) turn: AsyncMutex<()>,
    /// What came of the last marker.
    pub(super) last: Mutex<Option<MarkerRound>>,
    /// By when a marker should have been counted whose caller has gone meanwhile.
    unanswered: Mutex<Option<Instant>>,
}

/// What came of a marker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkerRound {
    pub(crate) begun: Instant,
    /// How many replicas have it; `None` if that is not known.
    pub(crate) confirmed: Option<u32>,
}

/// How replicas are waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaWait {
    /// How many are waited for.
    pub(crate) wanted: u32,
    /// For how long they are.
    pub(crate) timeout: Duration,
    /// How much longer the server may take to say so.
    pub(crate) answer_within: Duration,
}

/// For how long the marker stays: longer than it takes to come to a replica.
const MARKER_LASTS_MS: u64 = 1_000;

// === impl MarkerConnection ===

impl MarkerConnection {
    /// Finds out on a new connection whether replicas can be waited for there, before anything is
    /// granted.
    pub(crate) async fn open(
        connection: Connection,
        marker: String,
        limit: Instant,
    ) -> Result<Self, Unavailability> {
        let Some(run) = connection.run().cloned() else {
            let why = "the server does not say its run_id (INFO server), without which nobody knows \
                       whose replicas have a grant";
            return Err(Unavailability::Misconfigured(why.to_owned()));
        };
        let mut command = Cmd::new();
        command.arg("WAIT").arg(0).arg(1);
        let waited = connection.send(&command, limit).await;
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

    /// Writes a marker, and waits for those who have it. All is over by `limit`.
    pub(crate) async fn round(&self, replica_wait: ReplicaWait, limit: Instant) -> Option<u32> {
        let begun = Instant::now();
        let confirmed = self.mark(replica_wait, limit).await;
        *self.last.lock() = Some(MarkerRound { begun, confirmed });
        confirmed
    }

    async fn mark(&self, replica_wait: ReplicaWait, limit: Instant) -> Option<u32> {
        let now = Instant::now();
        let left = limit.saturating_duration_since(now);
        let for_the_answer = replica_wait.answer_within.min(left / 4);
        let timeout = replica_wait
            .timeout
            .min(left.saturating_sub(for_the_answer));
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        // A wait whose caller has gone keeps the connection busy until its time is over.
        let earlier = *self.unanswered.lock();
        if earlier.is_some_and(|due| due <= now) {
            self.connection.retire();
        }
        // Zero would be for ever.
        if self.connection.is_broken() || timeout == 0 {
            return None;
        }
        let due = earlier.unwrap_or(now) + replica_wait.timeout + replica_wait.answer_within;
        *self.unanswered.lock() = Some(earlier.unwrap_or(due));
        let wait = |mut script: ScriptCall| {
            script.arg(&self.marker).arg(MARKER_LASTS_MS);
            let mut commands = Pipeline::with_capacity(2);
            commands.add_command(script.as_command());
            commands.cmd("WAIT").arg(replica_wait.wanted).arg(timeout);
            commands
        };
        let connection = &self.connection;
        let mut replies = connection.send_all(&wait(self.script.by_hash()), due).await;
        if let Ok([Value::ServerError(error), _]) = replies.as_deref()
            && answered(error) == Failure::NoScript
        {
            replies = connection.send_all(&wait(self.script.in_full()), due).await;
        }
        *self.unanswered.lock() = None;
        match replies.as_deref() {
            Ok([Value::Okay, Value::Int(count)]) => u32::try_from(*count).ok(),
            Ok([Value::ServerError(error), _] | [_, Value::ServerError(error)]) => {
                // Of a cluster the slot of the marker may have gone: the next connection has another one.
                if let Failure::WrongNode(_) | Failure::Elsewhere(_) = answered(error) {
                    self.connection.retire();
                }
                None
            }
            _ => None,
        }
    }
}
