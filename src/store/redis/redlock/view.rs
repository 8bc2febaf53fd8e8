//! Who has a lock, by what the nodes say.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{
    lock::{FencingToken, ForeignMark, HeldLease, LockName, ReleaseRequest, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Holder, Inspection},
    },
};

use super::{
    super::keys::Keys,
    backoff::Backoff,
    calls::NodeView,
    claim::{Claim, is_ratified, least_of_majority, majority_validity, validity},
    quorum::NodeReplies,
    shared::Shared,
    walk::ListWalk,
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

// === Agreed ===
//
// The lease that nodes agree on, as it can be relied on.

/// The lease that nodes have, as far as is known; `None` if none of them knows its fence.
pub(super) fn agreed<'a>(
    claims: impl IntoIterator<Item = &'a Claim>,
    majority: usize,
) -> Option<HeldLease> {
    let leases = node_leases(claims);
    let asked = Asked::at(leases.iter().map(|(lease, _)| lease.as_of).min()?);
    valid_lease(&leases, majority, asked)
}

/// The lease that a majority has accepted by one fence. Less than that is none: a
/// try may be given up when a minority has accepted it.
pub(super) fn accepted<'a>(
    claims: impl IntoIterator<Item = &'a Claim>,
    majority: usize,
    asked: Asked,
) -> Option<HeldLease> {
    of_majority(&node_leases(claims), majority, asked)
}

/// The same of leases that the nodes have confirmed.
pub(super) fn confirmed(leases: &[&HeldLease], majority: usize, asked: Asked) -> Option<HeldLease> {
    of_majority(&renewed_leases(leases), majority, asked)
}

/// How many of these have accepted the lease by one fence.
pub(super) fn accepting(leases: &[&HeldLease]) -> usize {
    let leases = renewed_leases(leases);
    fence(&leases).map_or(0, |fence| with(&leases, fence).count())
}

/// The lease that a majority has made last anew. Who renews it was granted it, so
/// that a node keeps it too which was never told its fence.
pub(super) fn renewed(leases: &[&HeldLease], majority: usize, asked: Asked) -> Option<HeldLease> {
    if leases.len() < majority {
        return None;
    }
    valid_lease(&renewed_leases(leases), majority, asked)
}

/// From when until when nodes were asked. What each has told is counted from the beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    began: Instant,
    now: Instant,
}

impl Asked {
    /// From then until now.
    pub(super) fn since(began: Instant) -> Self {
        let now = Instant::now();
        Self { began, now }
    }

    /// Told as of then.
    fn at(began: Instant) -> Self {
        Self { began, now: began }
    }
}

/// A lease as a node tells it, and what is left of it there.
type NodeLease<'a> = (&'a HeldLease, Duration);

fn node_leases<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Vec<NodeLease<'a>> {
    let claims = claims.into_iter();
    claims.map(|claim| (&claim.lease, claim.left)).collect()
}

fn renewed_leases<'a>(leases: &[&'a HeldLease]) -> Vec<NodeLease<'a>> {
    let leases = leases.iter();
    leases.map(|lease| (*lease, lease.expires_in)).collect()
}

fn of_majority(node_leases: &[NodeLease<'_>], majority: usize, asked: Asked) -> Option<HeldLease> {
    let accepted: Vec<_> = with(node_leases, fence(node_leases)?).copied().collect();
    if accepted.len() < majority {
        return None;
    }
    valid_lease(&accepted, majority, asked)
}

fn with<'a, 'b>(
    node_leases: &'a [NodeLease<'b>],
    fence: FencingToken,
) -> impl Iterator<Item = &'a NodeLease<'b>> {
    node_leases
        .iter()
        .filter(move |(lease, _)| lease.fence == fence)
}

/// The fence by which most nodes have accepted the lease. Another one is of a try that came to nothing,
/// and may be the higher one.
fn fence(node_leases: &[NodeLease<'_>]) -> Option<FencingToken> {
    let ratified = node_leases.iter().filter(|(lease, _)| is_ratified(lease));
    let fences = ratified.map(|(lease, _)| lease.fence);
    fences.max_by_key(|fence| (with(node_leases, *fence).count(), *fence))
}

fn valid_lease(leases: &[NodeLease<'_>], majority: usize, asked: Asked) -> Option<HeldLease> {
    let (lease, _) = with(leases, fence(leases)?).next()?;
    // A renewal that a majority has refused may have changed that of the others.
    let ttls = leases.iter().map(|(lease, _)| lease.ttl).collect();
    let ttl = least_of_majority(ttls, majority)?;
    let left = majority_validity(leases.iter().map(|(_, left)| *left).collect(), majority);
    let limits = leases.iter().filter_map(|(lease, _)| lease.hold_expires_in);
    let limit = majority_validity(limits.collect(), majority);
    let spent = asked.now - asked.began;
    let expires_in = validity(left, spent);
    let held_for = leases.iter().map(|(lease, _)| lease.held_for).min();
    // A node may have missed it.
    let requests = leases
        .iter()
        .filter_map(|(lease, _)| lease.release_requested.as_deref());
    let release_requested = requests.min_by_key(|request| request.within);
    Some(HeldLease {
        ttl,
        expires_in,
        release_requested: release_requested.map(|request| {
            Box::new(ReleaseRequest {
                within: request.within.saturating_sub(spent),
                ..request.clone()
            })
        }),
        // By the last node that took part in it, so that this and what is left are no more than the limit.
        held_for: held_for.unwrap_or_default(),
        // Where it is the limit that ends the lease, both are the same.
        hold_expires_in: lease.hold_expires_in.map(|_| {
            if limit <= left {
                expires_in
            } else {
                limit.saturating_sub(spent)
            }
        }),
        as_of: asked.now,
        ..(*lease).clone()
    })
}

// === Inspect ===
//
// Inspect, over a quorum. Of those who wait it shows the ones at this gateway.

// === impl Shared ===

impl Shared {
    pub(super) async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let holding = self.consistent_view(&self.keys(name)).await?.holding();
        if holding == QuorumHolder::Unknown {
            let why = "it is not known who holds the lock".to_owned();
            return Err(Unavailability::TooFewNodes(why).into());
        }
        let local_queue = self.local_queues.existing(name);
        let (queue, waiters) =
            local_queue.map_or_else(Default::default, |it| it.head_and_len(Instant::now()));
        Ok(Inspection {
            holder: holding.holder(),
            queue,
            waiters,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::lock::{Metadata, Reason, Ttl};

    use super::*;

    fn lease(fence: u64, left: u64, limit: Option<u64>) -> HeldLease {
        HeldLease {
            fence: FencingToken::new(fence).unwrap(),
            mode: crate::lock::Mode::Exclusive,
            ttl: Ttl::MIN,
            expires_in: Duration::from_millis(left),
            held_for: Duration::ZERO,
            hold_expires_in: limit.map(Duration::from_millis),
            owner: None,
            metadata: Metadata::default(),
            release_requested: None,
            as_of: Instant::now(),
        }
    }

    #[test]
    fn a_request_to_release_is_told_if_one_node_of_a_majority_has_it() {
        let mut leases = [
            lease(7, 900, None),
            lease(7, 900, None),
            lease(7, 900, None),
        ];
        leases[1].release_requested = Some(Box::new(ReleaseRequest {
            by: None,
            reason: Reason::new("maintenance").unwrap(),
            within: Duration::from_millis(400),
        }));
        let request = agree(&leases, 100).unwrap().release_requested.unwrap();
        assert_eq!(request.within, Duration::from_millis(300));
    }

    fn agree(leases: &[HeldLease; 3], spent: u64) -> Option<HeldLease> {
        let leases: Vec<_> = leases.iter().collect();
        let began = Instant::now();
        let now = began + Duration::from_millis(spent);
        renewed(&leases, 2, Asked { began, now })
    }

    #[test]
    fn has_the_fence_of_the_second_round_and_lasts_as_long_as_a_majority() {
        let held = agree(
            &[
                lease(7, 900, None),
                lease(1, 1_000, None),
                lease(7, 100, None),
            ],
            10,
        );
        let held = held.unwrap();
        assert_eq!(held.fence.get(), 7);
        assert_eq!(held.expires_in, Duration::from_millis(900 - 9 - 2 - 10));
        assert_eq!(agree(&[(); 3].map(|()| lease(1, 900, None)), 0), None);
    }

    #[test]
    fn has_the_ttl_of_a_majority() {
        let mut leases = [
            lease(7, 900, None),
            lease(7, 900, None),
            lease(7, 900, None),
        ];
        for strays in 0..3 {
            let stray = Ttl::from_millis(1_200_000).unwrap();
            leases[strays].ttl = stray;
            let expected = if strays < 1 { Ttl::MIN } else { stray };
            assert_eq!(agree(&leases, 0).unwrap().ttl, expected, "{strays}");
        }
    }

    #[test]
    fn a_try_that_came_to_nothing_does_not_name_the_fence() {
        let (low, high) = (lease(7, 900, None), lease(9, 900, None));
        let held = renewed(&[&high, &low, &low], 2, Asked::at(Instant::now())).unwrap();
        assert_eq!(held.fence.get(), 7);
        let held = confirmed(&[&high, &low, &low], 2, Asked::at(Instant::now())).unwrap();
        assert_eq!(held.fence.get(), 7);
    }

    #[test]
    fn a_minority_that_has_accepted_it_makes_no_lease() {
        let (named, unnamed) = (lease(7, 900, None), lease(1, 900, None));
        assert_eq!(
            confirmed(&[&named, &unnamed, &unnamed], 2, Asked::at(Instant::now())),
            None
        );
        let other = lease(9, 900, None);
        assert_eq!(
            confirmed(&[&named, &other, &unnamed], 2, Asked::at(Instant::now())),
            None
        );
        // Whoever renews it was granted it, and knows that it was accepted.
        assert!(renewed(&[&named, &unnamed], 2, Asked::at(Instant::now())).is_some());
        assert_eq!(renewed(&[&named], 2, Asked::at(Instant::now())), None);
    }

    #[test]
    fn ends_with_its_limit_at_the_same_instant() {
        let limited = |left| lease(7, left, Some(500));
        let held = agree(&[limited(500), limited(500), limited(500)], 0).unwrap();
        assert_eq!(held.hold_expires_in, Some(held.expires_in));
        let held = agree(&[limited(400), limited(400), limited(400)], 30).unwrap();
        assert_eq!(held.hold_expires_in, Some(Duration::from_millis(470)));
    }
}
