//! One node of a quorum: an independent Redis server, and whether it may vote.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{
    clock::Clock,
    config::{RedisConfig, RedisNode},
    lifecycle::Workers,
    lock::FencingToken,
    store::{StoreError, Unavailability, redis::client::failure::Failure},
};

use super::{
    super::{
        SlotTags,
        client::{
            Command, Connection, Endpoint, Reply, Script,
            credentials::Credentials,
            dispatch::{Dispatch, DispatchReply, Sending},
            failure::NODE_ACL_LINE,
            pool::Route,
            shard::Shard,
            topology::Topology,
        },
        health::{examination::Examiner, probe},
        keys::Keys,
        slot::Floors,
    },
    record::millis,
    scripts::{Nonce, QuorumScripts},
};

/// One node of a quorum.
pub(super) struct Node {
    pub(super) index: usize,
    /// Address of the node, for messages.
    pub(super) name: String,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) shard: Arc<Shard>,
    pub(super) examiner: Arc<Examiner>,
    pub(super) scripts: Arc<QuorumScripts>,
    /// How long one answer of the node may take.
    pub(super) timeout: Duration,
    /// For how long the server must have run before it votes.
    pub(super) wait: Duration,
    /// Whether the server may have lost data when it is started again.
    pub(super) forgets: bool,
    pub(super) votes: Votes,
    pub(super) learning: Learning,
}

/// State of the learning of a node.
#[derive(Debug, Default)]
pub(super) struct Learning {
    /// Notified when the node is found to have to learn.
    pub(super) wanted: Notify,
    /// Text that says which answers were missing when the node last tried to learn.
    pub(super) missing: Mutex<Option<String>>,
}

/// Why a node does not vote, and for how long.
#[derive(Debug)]
pub(super) struct VoteRefusal {
    pub(super) why: String,
    /// For how long at least the node does not vote; `None` if that is not known.
    pub(super) left: Option<Duration>,
}

/// Counts of the votes of a node.
#[derive(Debug, Default)]
pub(super) struct Votes {
    pub(super) given: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) missing: AtomicU64,
}

// === impl Node ===

impl Node {
    /// A connection on which the node may be asked to vote.
    pub(super) async fn voting_connection(&self, limit: Instant) -> Result<Connection, StoreError> {
        let admission = &self.shard.admission;
        admission
            .admit_by(&self.shard, &self.examiner, limit)
            .await?;
        let connection = self.shard.pool.connection(limit).await?;
        match self.time_until_vote(&connection) {
            Some(left) if left.is_zero() => Ok(connection),
            left => Err(Unavailability::TooFewNodes(delayed(left)).into()),
        }
    }

    /// Time until the node of this connection votes; `None` if the node does not say for how long it has run.
    fn time_until_vote(&self, connection: &Connection) -> Option<Duration> {
        if self.wait.is_zero() {
            return Some(Duration::ZERO);
        }
        Some(self.wait.saturating_sub(connection.age()?))
    }

    /// Why the node does not vote at present; `None` if it votes.
    pub(super) async fn vote_refusal(&self) -> Result<Option<VoteRefusal>, StoreError> {
        let limit = Instant::now() + self.timeout;
        let connection = self.shard.pool.connection(limit).await?;
        let refusal = |why, left| Some(VoteRefusal { why, left });
        match self.time_until_vote(&connection) {
            Some(left) if left.is_zero() => {}
            left => return Ok(refusal(delayed(left), left)),
        }
        Ok(match self.learn_state(&Nonce::random(), false).await? {
            LearnState::Unlearnt(_) => {
                self.learning.wanted.notify_one();
                refusal(self.learning.to_learn(), None)
            }
            LearnState::Learnt(Some(since)) if since < self.wait => {
                let left = self.wait.saturating_sub(since);
                refusal(delayed_without_data(left), Some(left))
            }
            LearnState::Learnt(_) => None,
        })
    }

    /// The run of the server on this connection, as an argument of its scripts; empty for a node that forgets nothing,
    /// because its run does not matter.
    pub(super) fn run_of<'a>(&self, connection: &'a Connection) -> Result<&'a str, StoreError> {
        match connection.run() {
            _ if !self.forgets => Ok(""),
            Some(run) => Ok(run.as_str()),
            // A node may vote at once only in trials, where its run does not matter.
            None if self.wait.is_zero() => Ok(""),
            None => Err(Unavailability::TooFewNodes(delayed(None)).into()),
        }
    }

    /// The refusal of a node that has no vote until it has learnt the largest fence. Also wakes the task that has it
    /// learn.
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
        fill: impl Fn(&mut Command) + Send + Sync,
    ) -> Result<Reply, StoreError> {
        let limit = Instant::now() + self.timeout;
        let on = (&self.shard, connection);
        let sent = self.dispatch.once_on(on, script, echo, limit, fill).await;
        match sent {
            Ok(reply) => reply.of_known_layout(keys),
            Err(failure) => Err(self.dispatch.refused(failure, keys, echo, limit).await),
        }
    }

    /// Sends a script until its outcome is known, for as long as a caller may wait.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &Keys,
        echo: &str,
        fill: impl Fn(&mut Command, Sending) + Send + Sync,
    ) -> Result<DispatchReply, StoreError> {
        let limit = self.dispatch.limit();
        let run = self.dispatch.run(script, keys, echo, limit, fill);
        let DispatchReply { reply, earlier } = run.await?;
        let reply = reply.of_known_layout(keys)?;
        Ok(DispatchReply { reply, earlier })
    }
}

/// Says for how long a node that was found without its data does not vote.
pub(super) fn delayed_without_data(left: Duration) -> String {
    let seconds = left.as_secs() + 1;
    format!("it votes in {seconds} s, because it was found without its data")
}

/// Says for how long a node that was started does not vote.
pub(super) fn delayed(left: Option<Duration>) -> String {
    match left {
        Some(left) => {
            let seconds = left.as_secs() + 1;
            format!("it votes in {seconds} s, because it was started")
        }
        None => "the node does not say for how long it has run (INFO server), and does not vote"
            .to_owned(),
    }
}

// === impl Learning ===

impl Learning {
    /// Says that a node has to learn, and what is missing for that.
    pub(super) fn to_learn(&self) -> String {
        let to_learn = "the node has no vote until it has learnt the grants of the other nodes";
        match &*self.missing.lock() {
            Some(what) => format!("{to_learn}: {what}"),
            None => to_learn.to_owned(),
        }
    }
}

// === Node maker ===
//
// Makes the nodes of a quorum from the settings and parts that they share.

/// Settings and parts that all nodes of one quorum share.
pub(super) struct NodeMaker {
    pub(super) redis: RedisConfig,
    pub(super) workers: Workers,
    pub(super) credentials: Arc<Credentials>,
    pub(super) scripts: Arc<QuorumScripts>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tags: Arc<SlotTags>,
    /// For how long a server must have run before it votes.
    pub(super) wait: Duration,
    /// Whether a server may have lost data when it is started again.
    pub(super) forgets: bool,
}

// === impl NodeMaker ===

impl NodeMaker {
    pub(super) fn node(&self, index: usize, node: &RedisNode) -> Node {
        let timeout = self.redis.command_timeout_ms.duration();
        let connect_timeout = self.redis.connect_timeout_ms.duration();
        let credentials = Arc::clone(&self.credentials);
        let endpoint = Endpoint::new(node.clone(), credentials, connect_timeout);
        let route = Route::to(endpoint);
        let shard = Arc::new(Shard::new(route, None, &self.redis, &self.workers));
        let topology = Topology::One(Arc::clone(&shard));
        let dispatch = Arc::new(Dispatch::new(topology, &self.redis, Keys::of_node));
        let examiner = Examiner {
            dispatch: Arc::clone(&dispatch),
            probe: probe::script(include_str!("lua/quorum_probe.lua")),
            floors: Arc::new(Floors::new()),
            clock: Arc::clone(&self.clock),
            acl_line: NODE_ACL_LINE,
            accept_eviction: self.redis.accept_eviction,
            tags: Arc::clone(&self.tags),
            limit: timeout,
        };
        Node {
            index,
            name: node.to_string(),
            dispatch,
            shard,
            examiner: Arc::new(examiner),
            scripts: Arc::clone(&self.scripts),
            timeout,
            wait: self.wait,
            forgets: self.forgets,
            votes: Votes::default(),
            learning: Learning::default(),
        }
    }
}

// === Learn ===
//
// Calls `learn.lua`, `teach.lua` and `admit.lua`, which give a node its vote.

/// Whether a node has learnt the largest granted fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LearnState {
    /// The node has learnt; with the time since it was found without its data, if it ever was.
    Learnt(Option<Duration>),
    /// The node has not learnt in this life of its data. The life is empty if none has begun.
    Unlearnt(String),
}

/// Answer of a node that is asked for the largest fence, for another node that learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TeachReply {
    /// The largest fence that the node has accepted, or has learnt of.
    Taught(u64),
    /// The node itself has not learnt: the largest fence that it knew when it last had, and the life of its data. The
    /// life is empty if none has begun.
    Unlearnt(u64, String),
}

// === impl Node ===

impl Node {
    /// Whether the node has learnt. If not, `begin` starts a life of its data with the name `new`, unless one has
    /// begun.
    pub(crate) async fn learn_state(
        &self,
        new: &Nonce,
        begin: bool,
    ) -> Result<LearnState, StoreError> {
        let asked = self.of_node(&self.scripts.learn, new.as_str(), |command, run| {
            command.arg(new.as_str()).arg(run).arg(u8::from(begin));
        });
        let mut reply = asked.await?;
        let state = match reply.kind() {
            "learnt" => reply.integer().map(|ms| LearnState::Learnt(millis(ms))),
            "unlearnt" => reply.text().map(LearnState::Unlearnt),
            _ => None,
        };
        state.ok_or_else(|| reply.unexpected())
    }

    /// Asks the node for the largest fence, for another node that learns in this life.
    pub(crate) async fn teach(&self, life: &str) -> Result<TeachReply, StoreError> {
        let asked = self.of_node(&self.scripts.teach, life, |command, run| {
            command.arg(life).arg(run);
        });
        let mut reply = asked.await?;
        let fence = reply.text().and_then(|fence| fence.parse().ok());
        let fence = fence.filter(|fence| *fence <= FencingToken::MAX.get());
        let said = match (reply.kind(), fence) {
            ("taught", Some(fence)) => Some(TeachReply::Taught(fence)),
            ("unlearnt", Some(fence)) => {
                let life = reply.text();
                life.map(|life| TeachReply::Unlearnt(fence, life))
            }
            _ => None,
        };
        said.ok_or_else(|| reply.unexpected())
    }

    /// Gives the node its vote, if this life of its data is not over. Answers whether the node has a vote.
    pub(crate) async fn admit(&self, life: &str, top: u64) -> Result<bool, StoreError> {
        let asked = self.of_node(&self.scripts.admit, life, |command, _run| {
            command.arg(life).arg(top);
        });
        let reply = asked.await?;
        match reply.kind() {
            "admitted" => Ok(true),
            "over" => Ok(false),
            _ => Err(reply.unexpected()),
        }
    }

    /// Runs a script on the learning state of the node, once.
    async fn of_node(
        &self,
        script: &Script,
        echo: &str,
        fill: impl Fn(&mut Command, &str) + Send + Sync,
    ) -> Result<Reply, StoreError> {
        let limit = Instant::now() + self.timeout;
        let connection = self.shard.pool.connection(limit).await?;
        let run = self.run_of(&connection)?.to_owned();
        let fill = |command: &mut Command| {
            command.arg(Keys::NODE);
            fill(command, &run);
        };
        let on = (&self.shard, connection);
        let sent = self.dispatch.once_on(on, script, echo, limit, fill).await;
        sent.map_err(|failure| match failure {
            Failure::WrongType => StoreError::ForeignData {
                key: Keys::NODE.to_owned(),
                found: "no hash".into(),
            },
            Failure::Unknown(why) => why.into(),
            known => known.reason().into(),
        })
    }
}
