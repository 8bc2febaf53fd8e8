//! Gives a vote to nodes that have lost their data, once the largest granted fence is known.
//!
//! A node that lost its data would propose fences again that it has accepted before. So it has no vote until a gateway
//! has asked the other nodes for the largest fence. A majority of nodes with a vote is enough, because any granted
//! fence was accepted by one of them. Otherwise all other nodes must answer, and a node without a vote must not have
//! had one at any time between its two answers. A node that is asked no longer accepts a fence that it was asked to
//! propose before: otherwise such a fence could be granted without the knowledge of the learning node. The answers
//! count only for the life of the node's data in which they were asked for. Several gateways may do this at once, and
//! one may die half-way: then another starts from the beginning. `tests/it/model/fence` shows what each of these rules
//! is for.

use std::{collections::HashMap, sync::Arc};

use tokio::{
    select,
    time::{Duration, sleep},
};
use tracing::{Instrument as _, debug, info, warn};

use crate::store::{StoreError, Unavailability};

use super::{
    super::client::dispatch::Pauses,
    node::{LearnState, Node, TeachReply},
    quorum::NodeReplies,
    scripts::Nonce,
    shared::Shared,
};

/// Outcome of learning, for one node.
enum LearnOutcome {
    /// The node had a vote already.
    Before,
    /// The node has a vote now, and proposes only fences above this one.
    Now(u64),
    /// The node cannot learn, because this is missing.
    Missing(String),
}

/// How often a node without requests is checked for lost data. The time without a vote begins when the loss is found,
/// so a loss must not stay unnoticed for long.
const PERIOD: Duration = Duration::from_secs(10);

// === impl Shared ===

impl Shared {
    /// Starts a task for each node, which gives the node its vote when it has none.
    pub(super) fn start_learning(self: &Arc<Self>) {
        for node in self.quorum.nodes() {
            let (shared, index) = (Arc::clone(self), node.index);
            let span = tracing::info_span!("node", node = node.name);
            let learning = async move { shared.keep_learning(index).await };
            self.start_background(learning.instrument(span));
        }
    }

    async fn keep_learning(&self, index: usize) {
        let node = &self.quorum.nodes()[index];
        let mut pauses = Pauses::new();
        loop {
            let missing = match self.learn(node).await {
                Ok(learnt @ (LearnOutcome::Before | LearnOutcome::Now(_))) => {
                    if let LearnOutcome::Now(top) = learnt {
                        info!(
                            top,
                            "the node has a vote: it has learnt the grants of the other nodes"
                        );
                    }
                    *node.learning.missing.lock() = None;
                    pauses = Pauses::new();
                    select! {
                        () = node.learning.wanted.notified() => {}
                        () = sleep(PERIOD) => {}
                    }
                    continue;
                }
                Ok(LearnOutcome::Missing(what)) => Some(what),
                Err(error) => {
                    debug!(%error, "the vote of the node is checked again");
                    None
                }
            };
            if let Some(what) = missing {
                let mut last = node.learning.missing.lock();
                if last.as_ref() != Some(&what) {
                    warn!(
                        what,
                        "the node has no vote: it has to learn the grants of the other nodes"
                    );
                    *last = Some(what);
                }
            }
            sleep(pauses.next()).await;
        }
    }

    /// Has a node learn the largest granted fence, and gives the node its vote.
    async fn learn(&self, node: &Node) -> Result<LearnOutcome, StoreError> {
        let life = match node.learn_state(&Nonce::random(), true).await? {
            LearnState::Learnt(_) => return Ok(LearnOutcome::Before),
            LearnState::Unlearnt(life) => life,
        };
        let majority = self.quorum.majority();
        let is_taught =
            |answer: &Result<TeachReply, _>| matches!(answer, Ok(TeachReply::Taught(_)));
        // Asks the other nodes only after this life of the node has begun, so that no earlier life of it knows their
        // answers.
        let lessons = self.quorum.ask_some(
            |other| other.index != node.index,
            |other| other.teach(&life),
            |lessons| lessons.count(is_taught) >= majority,
        );
        let lessons = lessons.await;
        if lessons.count(is_taught) < majority {
            if lessons.count(Result::is_ok) + 1 < lessons.nodes() {
                return Ok(LearnOutcome::Missing(self.missing(node, &lessons)));
            }
            self.none_has_learnt_since(&life, &lessons).await?;
        }
        let tops = lessons.iter().map(|lesson| match lesson {
            Ok(TeachReply::Taught(top) | TeachReply::Unlearnt(top, _)) => *top,
            Err(_) => 0,
        });
        let top = tops.max().unwrap_or_default();
        if node.admit(&life, top).await? {
            return Ok(LearnOutcome::Now(top));
        }
        let why = "it has lost its data again".to_owned();
        Err(Unavailability::Refused(why).into())
    }

    /// Makes sure that no node that answered without a vote had one when the last other node answered. Otherwise a node
    /// that answered first may since have learnt a fence that another node forgot before it was asked.
    async fn none_has_learnt_since(
        &self,
        life: &str,
        lessons: &NodeReplies<Result<TeachReply, StoreError>>,
    ) -> Result<(), StoreError> {
        let lives: HashMap<usize, &str> = lessons
            .by_node()
            .filter_map(|(node, lesson)| match lesson {
                Some(Ok(TeachReply::Unlearnt(_, life))) => Some((node, life.as_str())),
                _ => None,
            })
            .collect();
        let again = self.quorum.ask_some(
            |other| lives.contains_key(&other.index),
            |other| other.teach(life),
            |_| false,
        );
        let again = again.await;
        let same = again.by_node().filter(|(node, lesson)| match lesson {
            Some(Ok(TeachReply::Unlearnt(_, life))) => {
                !life.is_empty() && lives.get(node) == Some(&life.as_str())
            }
            _ => false,
        });
        if same.count() == lives.len() {
            return Ok(());
        }
        let why = "other nodes have begun to learn, or have learnt, meanwhile".to_owned();
        Err(Unavailability::Refused(why).into())
    }

    /// Says which nodes have to answer, and why all of them have to.
    fn missing(
        &self,
        node: &Node,
        lessons: &NodeReplies<Result<TeachReply, StoreError>>,
    ) -> String {
        let nodes = self.quorum.nodes();
        let silent = lessons.others(Result::is_ok).into_iter();
        let silent = silent.filter(|&other| other != node.index);
        let silent: Vec<_> = silent.map(|other| nodes[other].name.as_str()).collect();
        let unlearnt = 1 + lessons.count(|lesson| matches!(lesson, Ok(TeachReply::Unlearnt(..))));
        let (of, silent) = (nodes.len(), silent.join(" and "));
        format!("{unlearnt} of {of} nodes have lost their data, or are new; {silent} must answer")
    }
}
