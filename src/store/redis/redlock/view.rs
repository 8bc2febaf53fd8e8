//! Who has a lock, by what the nodes say.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{
    lock::{ForeignMark, HeldLease, TokenHash},
    store::{StoreError, Unavailability, Uncertainty, contract::Holder},
};

use super::{
    super::keys::Keys, agreed::agreed, backoff::Backoff, calls::NodeView, claim::Claim,
    node_replies::NodeReplies, shared::Shared, walk::ListWalk,
};

/// What the nodes say of a lock.
pub(super) struct QuorumView {
    answers: NodeReplies<Result<NodeView, StoreError>>,
    majority: usize,
}

/// Who has a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QuorumHolder {
    /// The lease of this token.
    Lease(TokenHash, HeldLease),
    /// A foreign client, with a mark of what it has written.
    Foreign(Option<Duration>, ForeignMark),
    /// Not known: the nodes that do not answer decide it.
    Unknown,
    /// Nobody, or some who only try.
    Nobody,
}

/// For how long it is asked again where the nodes do not agree, because something is just happening.
const RETRY_FOR: Duration = Duration::from_secs(1);

// === impl Shared ===

impl Shared {
    /// Asks the nodes who has a lock until a majority says the same, or nobody can have one. If it does not
    /// come to that soon, nobody knows.
    pub(super) async fn consistent_view(&self, keys: &Keys) -> Result<QuorumView, StoreError> {
        let (began, majority) = (Instant::now(), self.quorum.majority());
        let mut view = self.view(keys).await?;
        let mut pauses = Backoff::new();
        while view.holding() == QuorumHolder::Unknown
            && began.elapsed() < RETRY_FOR.min(self.deadline)
        {
            // Somebody's command may be at some of the nodes and not at the others yet.
            sleep(pauses.next(Duration::ZERO)).await;
            let answers = self.quorum.ask(
                async |node| match timeout(node.timeout, node.view(keys)).await {
                    Ok(seen) => seen,
                    Err(_elapsed) => Err(Uncertainty::TimedOut.into()),
                },
                |answers| holding(answers, majority) != QuorumHolder::Unknown,
            );
            let answers = answers.await;
            view = QuorumView { answers, majority };
        }
        Ok(view)
    }

    /// Asks the nodes who has a lock. A majority of them must answer.
    pub(super) async fn view(&self, keys: &Keys) -> Result<QuorumView, StoreError> {
        let majority = self.quorum.majority();
        let answers = self.quorum.ask(
            |node| node.view(keys),
            |answers| answers.count(Result::is_ok) >= majority,
        );
        let answers = answers.await;
        let answered = answers.count(Result::is_ok);
        if answered >= majority {
            return Ok(QuorumView { answers, majority });
        }
        let missed = answers.nodes() - answered;
        let error = answers.iter().find_map(|answer| answer.as_ref().err());
        let foreign = answers.iter().find_map(|answer| match answer {
            Err(error @ StoreError::ForeignData { .. }) => Some(error),
            _ => None,
        });
        Err(match (foreign, error) {
            (Some(foreign), _) => foreign.clone(),
            (None, Some(error)) => self.describe(missed, error),
            (None, None) => {
                Unavailability::TooFewNodes(format!("{missed} have not answered")).into()
            }
        })
    }
}

// === impl QuorumView ===

impl QuorumView {
    /// Who has the lock, as far as no node that has not answered can say otherwise.
    pub(super) fn holding(&self) -> QuorumHolder {
        holding(&self.answers, self.majority)
    }

    /// Who may have the lock, if it is not known who has: whoever has it at most nodes, and of several
    /// the last.
    pub(super) fn likely_holder(&self) -> QuorumHolder {
        let known = self.holding();
        if known != QuorumHolder::Unknown {
            return known;
        }
        let silent = silent(&self.answers);
        let possible_holders = possible_holders(&self.answers, self.majority);
        let best = possible_holders.max_by_key(|(holding, count)| {
            let fence = match holding {
                QuorumHolder::Lease(_, lease) => Some(lease.fence),
                QuorumHolder::Foreign(..) | QuorumHolder::Unknown | QuorumHolder::Nobody => None,
            };
            (*count, fence)
        });
        match best {
            Some((holding, count)) if count + silent >= self.majority => holding,
            _ => QuorumHolder::Unknown,
        }
    }

    /// Whether a node before this one has had the lease of this token since before a walk began.
    pub(super) fn is_before(&self, node: usize, token: &TokenHash, walk: &ListWalk) -> bool {
        let mut claims = self.of(token).into_iter();
        claims.any(|(at, claim)| at < node && walk.is_younger_than(claim))
    }

    /// Which nodes have the lock for this token, as far as is known.
    pub(super) fn of(&self, token: &TokenHash) -> Vec<(usize, &Claim)> {
        self.claims()
            .filter(|(_, claim)| claim.token == *token)
            .collect()
    }

    fn claims(&self) -> impl Iterator<Item = (usize, &Claim)> {
        claims(&self.answers)
    }
}

fn holding(answers: &NodeReplies<Result<NodeView, StoreError>>, majority: usize) -> QuorumHolder {
    let silent = silent(answers);
    if silent >= majority {
        return QuorumHolder::Unknown;
    }
    let mut possible = false;
    for (suspect, count) in possible_holders(answers, majority) {
        if count >= majority {
            return suspect;
        }
        possible |= count + silent >= majority;
    }
    // Of a lease that was granted one of a majority knows the fence. All others only try.
    if possible {
        QuorumHolder::Unknown
    } else {
        QuorumHolder::Nobody
    }
}

/// Who has the lock at some node, and at how many; each as often as there are such nodes.
fn possible_holders(
    answers: &NodeReplies<Result<NodeView, StoreError>>,
    majority: usize,
) -> impl Iterator<Item = (QuorumHolder, usize)> {
    let leases = claims(answers).filter_map(move |(_, claim)| {
        let same = || claims(answers).filter(|(_, other)| other.token == claim.token);
        let lease = agreed(same().map(|(_, claim)| claim), majority)?;
        Some((QuorumHolder::Lease(claim.token, lease), same().count()))
    });
    let foreign = answers.iter().filter_map(|answer| match answer {
        Ok(NodeView::Foreign(left, mark)) => {
            let same = |answer: &Result<NodeView, StoreError>| {
                matches!(answer, Ok(NodeView::Foreign(_, other)) if other == mark)
            };
            Some((QuorumHolder::Foreign(*left, *mark), answers.count(same)))
        }
        _ => None,
    });
    leases.chain(foreign)
}

fn claims(
    answers: &NodeReplies<Result<NodeView, StoreError>>,
) -> impl Iterator<Item = (usize, &Claim)> {
    answers.by_node().filter_map(|(node, answer)| match answer {
        Some(Ok(NodeView::Claim(claim))) => Some((node, claim)),
        _ => None,
    })
}

fn silent<T>(answers: &NodeReplies<Result<T, StoreError>>) -> usize {
    answers.nodes() - answers.count(Result::is_ok)
}

// === impl QuorumHolder ===

impl QuorumHolder {
    /// The same for everybody.
    pub(super) fn holder(self) -> Option<Holder> {
        match self {
            Self::Lease(_, lease) => Some(Holder::Lease(lease)),
            Self::Foreign(expires_in, mark) => Some(Holder::Foreign {
                expires_in,
                mark: Some(mark),
            }),
            Self::Unknown | Self::Nobody => None,
        }
    }
}
