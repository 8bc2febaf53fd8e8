//! One node of a quorum: an independent Redis, and whether it may vote.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bb8_redis::redis::Cmd;
use tokio::time::Instant;

use crate::store::{StoreError, Unavailability, Uncertainty};

use super::{
    super::{
        client::Connection,
        client::Pool,
        dispatch::{Dispatch, DispatchReply, Sending},
        examination::Examiner,
        failure::Failure,
        keys::Keys,
        scripts::{Reply, Script},
        sending::no_connection,
        shard::Shard,
    },
    calls::LearnState,
    learning::Learning,
    nonce::Nonce,
    scripts::QuorumScripts,
    vote::Vote,
};

/// One node of a quorum.
pub(super) struct Node {
    pub(super) index: usize,
    /// Where it is, for people.
    pub(super) name: String,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) shard: Arc<Shard>,
    pub(super) examiner: Arc<Examiner>,
    pub(super) scripts: Arc<QuorumScripts>,
    /// How long one answer may take.
    pub(super) timeout: Duration,
    /// For how long it must have run before it votes.
    pub(super) wait: Duration,
    /// Whether it may have forgotten something when it is started again.
    pub(super) forgets: bool,
    pub(super) votes: Votes,
    pub(super) learning: Learning,
}

/// How often a node has voted how.
#[derive(Debug, Default)]
pub(super) struct Votes {
    pub(super) given: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) missing: AtomicU64,
}

// === impl Node ===

impl Node {
    /// A connection on which the node may be asked to vote.
    pub(super) async fn voting_connection(
        &self,
        keys: &Keys,
        limit: Instant,
    ) -> Result<Connection, StoreError> {
        let admission = &self.shard.admission;
        admission
            .admit_by(&self.shard, &self.examiner, limit)
            .await?;
        let connection = match self.shard.pool.connection(limit).await {
            Ok(connection) => connection,
            Err(why) => return Err(self.failed(no_connection(why), keys, limit).await),
        };
        match self.time_until_vote(&connection) {
            Some(left) if left.is_zero() => Ok(connection),
            left => Err(Unavailability::TooFewNodes(delayed(left)).into()),
        }
    }

    /// How long it will be until the node votes to which this connection is; `None` if it does not say
    /// for how long it has run.
    fn time_until_vote(&self, connection: &Connection) -> Option<Duration> {
        if self.wait.is_zero() {
            return Some(Duration::ZERO);
        }
        Some(self.wait.saturating_sub(connection.age()?))
    }

    /// Why the node does not vote, as it can be reached now; `None` if it does.
    pub(super) async fn vote_refusal(&self) -> Result<Option<String>, StoreError> {
        let connection = self
            .shard
            .pool
            .connection(Instant::now() + self.timeout)
            .await?;
        match self.time_until_vote(&connection) {
            Some(left) if left.is_zero() => {}
            left => return Ok(Some(delayed(left))),
        }
        Ok(match self.learn_state(&Nonce::random(), false).await? {
            LearnState::Unlearnt(_) => {
                self.learning.wanted.notify_one();
                Some(self.learning.to_learn())
            }
            LearnState::Learnt(Some(since)) if since < self.wait => {
                Some(delayed_without_data(self.wait.saturating_sub(since)))
            }
            LearnState::Learnt(_) => None,
        })
    }

    /// The run of the node to which a connection is, as its scripts take it: of a node that forgets nothing
    /// it does not matter.
    pub(super) fn run_of<'a>(&self, connection: &'a Connection) -> Result<&'a str, StoreError> {
        match connection.run() {
            _ if !self.forgets => Ok(""),
            Some(run) => Ok(run.as_str()),
            // That is for trials.
            None if self.wait.is_zero() => Ok(""),
            None => Err(Unavailability::TooFewNodes(delayed(None)).into()),
        }
    }

    /// It has no vote until it has learnt how far fences have come.
    pub(super) fn unlearnt(&self) -> Unavailability {
        self.learning.wanted.notify_one();
        Unavailability::TooFewNodes(self.learning.to_learn())
    }

    /// Sends a script on a connection, once.
    pub(super) async fn once(
        &self,
        connection: Connection,
        script: &Script,
        keys: &Keys,
        echo: &str,
        fill: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Reply, StoreError> {
        let limit = Instant::now() + self.timeout;
        let on = (&self.shard, connection);
        let sent = self.dispatch.once_on(on, script, echo, limit, fill).await;
        match sent {
            Ok(reply) => Ok(reply),
            Err(failure) => Err(self.failed(failure, keys, limit).await),
        }
    }

    /// Sends a script until its outcome is known, as long as a caller may wait.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &Keys,
        echo: &str,
        fill: impl Fn(&mut Cmd, Sending) + Send + Sync,
    ) -> Result<DispatchReply, StoreError> {
        self.dispatch.run(script, keys, echo, fill).await
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.shard.pool
    }

    async fn failed(&self, failure: Failure, keys: &Keys, limit: Instant) -> StoreError {
        self.dispatch.refused(failure, keys, limit).await
    }
}

/// Says for how long a node does not vote that was found without its data.
pub(super) fn delayed_without_data(left: Duration) -> String {
    let seconds = left.as_secs() + 1;
    format!("it votes in {seconds} s, because it was found without its data")
}

/// Says for how long a node does not vote.
pub(super) fn delayed(left: Option<Duration>) -> String {
    match left {
        Some(left) => format!(
            "it votes in {} s, because it was started",
            left.as_secs() + 1
        ),
        None => {
            "it does not say for how long it has run (INFO server), and does not vote".to_owned()
        }
    }
}

// === impl Votes ===

impl Votes {
    pub(super) fn note(&self, vote: &Vote) {
        let counter = match vote {
            Vote::Reserved(..) | Vote::Free => &self.given,
            Vote::None(_) => &self.missing,
            Vote::Again
            | Vote::Replay(_)
            | Vote::Held(_)
            | Vote::Foreign(..)
            | Vote::Mismatch
            | Vote::Expired
            | Vote::Superseded
            | Vote::Withdrawn => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether what a node has not answered may have been carried out there.
pub(super) fn is_unknown(error: &StoreError) -> bool {
    matches!(error, StoreError::Indeterminate(why) if !matches!(why, Uncertainty::UnexpectedReply(_)))
}
