//! Finds the holder of a lock from the answers of the nodes of a quorum.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{
    lock::{HeldLease, LockName, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{FenceCheck, FenceQuery, Inspection},
    },
};

use super::{
    super::keys::Keys,
    agreement::agreed,
    quorum::{Backoff, NodeReplies},
    record::NodeHolder,
    shared::Shared,
};

/// Answers of the nodes to the question who holds a lock.
pub(super) struct QuorumView {
    answers: Answers,
    majority: usize,
}

/// The error that the holder of the lock is not known: the nodes that have not answered decide who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotKnown;

/// For how long the nodes are asked again if they disagree about the holder, because a command is in progress.
const RETRY_FOR: Duration = Duration::from_secs(1);

// === impl Shared ===

impl Shared {
    /// Asks the nodes for the holder of a lock until a majority agrees, or no holder can have a majority. If that takes
    /// too long, the holder is not known. `delivered_only` is as for [`Node::view`](super::node::Node::view).
    pub(super) async fn consistent_view(
        &self,
        keys: &Keys,
        delivered_only: bool,
    ) -> Result<QuorumView, StoreError> {
        let (began, majority) = (Instant::now(), self.quorum.majority());
        let mut view = self.view(keys, delivered_only).await?;
        let mut pauses = Backoff::new();
        while view.holding().is_err() && began.elapsed() < RETRY_FOR.min(self.deadline) {
            // A command may have reached some of the nodes and not the other nodes yet.
            sleep(pauses.next(Duration::ZERO)).await;
            let answers = self.quorum.ask(
                async |node| {
                    let seen = timeout(node.timeout, node.view(keys, delivered_only)).await;
                    seen.unwrap_or_else(|_elapsed| Err(Uncertainty::TimedOut.into()))
                },
                |answers| holding(answers, majority).is_ok(),
            );
            let answers = answers.await;
            view = QuorumView { answers, majority };
        }
        Ok(view)
    }

    /// Asks the nodes once for the holder of a lock. Fails unless a majority of the nodes answers.
    pub(super) async fn view(
        &self,
        keys: &Keys,
        delivered_only: bool,
    ) -> Result<QuorumView, StoreError> {
        let majority = self.quorum.majority();
        let answers = self.quorum.ask(
            |node| node.view(keys, delivered_only),
            |answers| answers.count(Result::is_ok) >= majority,
        );
        let answers = answers.await;
        if answers.count(Result::is_ok) >= majority {
            return Ok(QuorumView { answers, majority });
        }
        let mut errors = answers.errors();
        let foreign = errors.find(|error| matches!(error, StoreError::ForeignData { .. }));
        Err(foreign.map_or_else(|| answers.too_few(), Clone::clone))
    }
}

// === impl QuorumView ===

impl QuorumView {
    /// The holder of the lock; an error if the missing answers of nodes could change it.
    pub(super) fn holding(&self) -> Result<Option<NodeHolder>, NotKnown> {
        holding(&self.answers, self.majority)
    }

    /// The holder of the lock, or if it is not known, the likely holder: the holder at the largest number of nodes, and
    /// of several such holders the one with the highest fence.
    pub(super) fn likely_holder(&self) -> Result<Option<NodeHolder>, NotKnown> {
        self.holding().or_else(|not_known| {
            let found = found(&self.answers);
            let best = possible_holders(&found, self.majority).max_by_key(|(holding, count)| {
                let fence = match holding {
                    NodeHolder::Lease(_, lease) => Some(lease.fence),
                    NodeHolder::Foreign(..) => None,
                };
                (*count, fence)
            });
            match best {
                Some((holding, count)) if count + self.answers.silent() >= self.majority => {
                    Ok(Some(holding))
                }
                _ => Err(not_known),
            }
        })
    }

    /// The nodes that report the lease of this token as the holder of the lock.
    pub(super) fn nodes_holding(
        &self,
        token: &TokenHash,
    ) -> impl Iterator<Item = (usize, &HeldLease)> {
        let answers = self.answers.by_node();
        answers.filter_map(move |(node, answer)| match answer {
            Some(Ok(Some(NodeHolder::Lease(of, lease)))) if of == token => Some((node, lease)),
            _ => None,
        })
    }
}

/// The holder of the lock at each node, or the error of that node.
type Answers = NodeReplies<Result<Option<NodeHolder>, StoreError>>;

fn holding(answers: &Answers, majority: usize) -> Result<Option<NodeHolder>, NotKnown> {
    let silent = answers.silent();
    if silent >= majority {
        return Err(NotKnown);
    }
    let mut possible = false;
    for (suspect, count) in possible_holders(&found(answers), majority) {
        if count >= majority {
            return Ok(Some(suspect));
        }
        possible |= count + silent >= majority;
    }
    // If a lease was granted, a node of each majority knows its fence. Leases without a known fence are only tries.
    if possible { Err(NotKnown) } else { Ok(None) }
}

fn found(answers: &Answers) -> Vec<&NodeHolder> {
    answers.iter().flatten().flatten().collect()
}

/// Each holder that some node reports, with the number of nodes that report it; repeated for each of these nodes. A
/// lease whose fence no node knows is only a try, and is left out.
pub(super) fn possible_holders(
    found: &[&NodeHolder],
    majority: usize,
) -> impl Iterator<Item = (NodeHolder, usize)> {
    found.iter().filter_map(move |holder| match holder {
        NodeHolder::Lease(token, _) => {
            let same = found.iter().filter_map(|other| match other {
                NodeHolder::Lease(of, lease) if of == token => Some(lease),
                _ => None,
            });
            let same: Vec<_> = same.collect();
            let lease = agreed(&same, majority)?;
            Some((NodeHolder::Lease(*token, lease), same.len()))
        }
        NodeHolder::Foreign(left, mark) => {
            let same = found
                .iter()
                .filter(|other| matches!(other, NodeHolder::Foreign(_, other) if other == mark));
            Some((NodeHolder::Foreign(*left, *mark), same.count()))
        }
    })
}

// === impl NotKnown ===

impl From<NotKnown> for StoreError {
    fn from(_: NotKnown) -> Self {
        Unavailability::TooFewNodes("it is not known who holds the lock".to_owned()).into()
    }
}

// === Inspect ===
//
// Inspect and check, over a quorum. Inspect shows only the waiters at this gateway.

// === impl Shared ===

impl Shared {
    pub(super) async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let view = self.consistent_view(&self.keys(name), false).await?;
        let holding = view.holding()?;
        let local_queue = self.local_queues.existing(name);
        let (queue, waiters) =
            local_queue.map_or_else(Default::default, |it| it.head_and_len(Instant::now()));
        Ok(Inspection {
            holder: holding.map(NodeHolder::holder),
            queue,
            waiters,
            granted_order: None,
        })
    }

    /// Says whether a majority of the nodes has a lease with this fencing token as the holder of the lock.
    pub(super) async fn check_fence(&self, query: &FenceQuery) -> Result<FenceCheck, StoreError> {
        let FenceQuery { name, fence, token } = query;
        let keys = &self.keys(name);
        let view = self.consistent_view(keys, true).await?;
        Ok(match view.holding()? {
            Some(NodeHolder::Lease(_, lease)) if lease.fence == *fence => FenceCheck::Held {
                left: lease.expires_in,
                as_of: lease.as_of,
            },
            other => {
                let is_outrun =
                    matches!(other, Some(NodeHolder::Lease(_, lease)) if lease.fence > *fence);
                let ended = self.ended(keys, token.as_ref()).await?;
                ended.unwrap_or(FenceCheck::Stale { is_outrun })
            }
        })
    }

    /// Asks a majority of the nodes how the lease of a token has ended. One node that remembers the end is enough.
    async fn ended(
        &self,
        keys: &Keys,
        token: Option<&TokenHash>,
    ) -> Result<Option<FenceCheck>, StoreError> {
        let Some(token) = token else { return Ok(None) };
        let answers = self.ask_majority(|node| node.ended(keys, token)).await?;
        Ok(answers.iter().flatten().find_map(|ended| *ended))
    }
}
