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
    claim::{is_ratified, least_of_majority, majority_validity, validity},
    quorum::NodeReplies,
    record::NodeHolder,
    shared::Shared,
    walk::ListWalk,
};

/// What the nodes say of a lock.
pub(super) struct QuorumView {
    answers: Answers,
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
                async |node| {
                    let seen = timeout(node.timeout, node.view(keys)).await;
                    seen.unwrap_or_else(|_elapsed| Err(Uncertainty::TimedOut.into()))
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
        let errors = || answers.iter().filter_map(|answer| answer.as_ref().err());
        let foreign = errors().find(|error| matches!(error, StoreError::ForeignData { .. }));
        Err(foreign.map_or_else(|| self.too_few(answered, errors()), Clone::clone))
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
        let found = found(&self.answers);
        let best = possible_holders(&found, self.majority).max_by_key(|(holding, count)| {
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
        let mut leases = self.of(token);
        leases.any(|(at, lease)| at < node && walk.is_younger_than(lease))
    }

    /// Which nodes have the lock for this token, as far as is known.
    pub(super) fn of(&self, token: &TokenHash) -> impl Iterator<Item = (usize, &HeldLease)> {
        let answers = self.answers.by_node();
        answers.filter_map(move |(node, answer)| match answer {
            Some(Ok(Some(NodeHolder::Lease(of, lease)))) if of == token => Some((node, lease)),
            _ => None,
        })
    }
}

/// What the nodes say, or what went wrong there.
type Answers = NodeReplies<Result<Option<NodeHolder>, StoreError>>;

fn holding(answers: &Answers, majority: usize) -> QuorumHolder {
    let silent = silent(answers);
    if silent >= majority {
        return QuorumHolder::Unknown;
    }
    let mut possible = false;
    for (suspect, count) in possible_holders(&found(answers), majority) {
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

fn found(answers: &Answers) -> Vec<&NodeHolder> {
    answers.iter().flatten().flatten().collect()
}

/// Who has the lock at some node, and at how many; each as often as there are such nodes. A lease of which no node
/// knows the fence is only being tried for, and nobody to speak of.
pub(super) fn possible_holders(
    found: &[&NodeHolder],
    majority: usize,
) -> impl Iterator<Item = (QuorumHolder, usize)> {
    found.iter().filter_map(move |holder| match holder {
        NodeHolder::Lease(token, _) => {
            let same = found.iter().filter_map(|other| match other {
                NodeHolder::Lease(of, lease) if of == token => Some(lease),
                _ => None,
            });
            let same: Vec<_> = same.collect();
            let lease = agreed(&same, majority)?;
            Some((QuorumHolder::Lease(*token, lease), same.len()))
        }
        NodeHolder::Foreign(left, mark) => {
            let same = found
                .iter()
                .filter(|other| matches!(other, NodeHolder::Foreign(_, other) if other == mark));
            Some((QuorumHolder::Foreign(*left, *mark), same.count()))
        }
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
pub(super) fn agreed(leases: &[&HeldLease], majority: usize) -> Option<HeldLease> {
    let as_of = leases.iter().map(|lease| lease.as_of).min()?;
    valid_lease(leases, majority, as_of, as_of)
}

/// The lease that a majority has accepted by one fence, as it is `now`. Less than that is none: a
/// try may be given up when a minority has accepted it.
pub(super) fn accepted(
    leases: &[&HeldLease],
    majority: usize,
    began: Instant,
    now: Instant,
) -> Option<HeldLease> {
    let accepted: Vec<_> = with(leases, fence(leases)?).collect();
    if accepted.len() < majority {
        return None;
    }
    valid_lease(&accepted, majority, began, now)
}

/// How many of these have accepted the lease by one fence.
pub(super) fn accepting(leases: &[&HeldLease]) -> usize {
    fence(leases).map_or(0, |fence| with(leases, fence).count())
}

/// The lease that a majority has made last anew. Who renews it was granted it, so
/// that a node keeps it too which was never told its fence.
pub(super) fn renewed(
    leases: &[&HeldLease],
    majority: usize,
    began: Instant,
    now: Instant,
) -> Option<HeldLease> {
    if leases.len() < majority {
        return None;
    }
    valid_lease(leases, majority, began, now)
}

fn with<'a>(leases: &[&'a HeldLease], fence: FencingToken) -> impl Iterator<Item = &'a HeldLease> {
    leases
        .iter()
        .copied()
        .filter(move |lease| lease.fence == fence)
}

/// The fence by which most nodes have accepted the lease. Another one is of a try that came to nothing,
/// and may be the higher one.
fn fence(leases: &[&HeldLease]) -> Option<FencingToken> {
    let ratified = leases.iter().filter(|lease| is_ratified(lease));
    let fences = ratified.map(|lease| lease.fence);
    fences.max_by_key(|fence| (with(leases, *fence).count(), *fence))
}

/// The lease `now`, of nodes that were asked since `began`. One reading of the clock for what has passed and for when the
/// times count from: if the process stands still after that, the holder knows that its time has gone on.
fn valid_lease(
    leases: &[&HeldLease],
    majority: usize,
    began: Instant,
    now: Instant,
) -> Option<HeldLease> {
    let spent = now.saturating_duration_since(began);
    let lease = with(leases, fence(leases)?).next()?;
    // A renewal that a majority has refused may have changed that of the others.
    let ttls = leases.iter().map(|lease| lease.ttl).collect();
    let ttl = least_of_majority(ttls, majority)?;
    let left = majority_validity(
        leases.iter().map(|lease| lease.expires_in).collect(),
        majority,
    );
    let limits = leases.iter().filter_map(|lease| lease.hold_expires_in);
    let limit = majority_validity(limits.collect(), majority);
    let expires_in = validity(left, spent);
    let held_for = leases.iter().map(|lease| lease.held_for).min();
    // A node may have missed it.
    let requests = leases
        .iter()
        .filter_map(|lease| lease.release_requested.as_deref());
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
        as_of: now,
        ..lease.clone()
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
    use std::sync::LazyLock;

    use crate::lock::{Metadata, Reason, Ttl};

    use super::*;

    /// When the nodes were asked.
    static THEN: LazyLock<Instant> = LazyLock::new(Instant::now);

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
        renewed(&leases, 2, *THEN, *THEN + Duration::from_millis(spent))
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
        let held = renewed(&[&high, &low, &low], 2, *THEN, *THEN).unwrap();
        assert_eq!(held.fence.get(), 7);
        let held = accepted(&[&high, &low, &low], 2, *THEN, *THEN).unwrap();
        assert_eq!(held.fence.get(), 7);
    }

    #[test]
    fn a_minority_that_has_accepted_it_makes_no_lease() {
        let (named, unnamed) = (lease(7, 900, None), lease(1, 900, None));
        assert_eq!(
            accepted(&[&named, &unnamed, &unnamed], 2, *THEN, *THEN),
            None
        );
        let other = lease(9, 900, None);
        assert_eq!(accepted(&[&named, &other, &unnamed], 2, *THEN, *THEN), None);
        // Whoever renews it was granted it, and knows that it was accepted.
        assert!(renewed(&[&named, &unnamed], 2, *THEN, *THEN).is_some());
        assert_eq!(renewed(&[&named], 2, *THEN, *THEN), None);
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
