//! The lease that nodes agree on, as it can be relied on.

use std::time::Duration;

use crate::lock::{FencingToken, HeldLease};

use super::{
    claim::{Claim, is_ratified},
    validity::{majority_validity, validity},
};

/// The lease that nodes have, as far as is known; `None` if none of them knows its fence.
pub(super) fn agreed<'a>(
    claims: impl IntoIterator<Item = &'a Claim>,
    majority: usize,
) -> Option<HeldLease> {
    valid_lease(&node_leases(claims), majority, Duration::ZERO)
}

/// The lease that a majority has accepted by one fence, asked for so long ago. Less than that is none: a
/// try may be given up when a minority has accepted it.
pub(super) fn accepted<'a>(
    claims: impl IntoIterator<Item = &'a Claim>,
    majority: usize,
    spent: Duration,
) -> Option<HeldLease> {
    of_majority(&node_leases(claims), majority, spent)
}

/// The same of leases that the nodes have confirmed.
pub(super) fn confirmed(
    leases: &[&HeldLease],
    majority: usize,
    spent: Duration,
) -> Option<HeldLease> {
    of_majority(&renewed_leases(leases), majority, spent)
}

/// How many of these have accepted the lease by one fence.
pub(super) fn accepting(leases: &[&HeldLease]) -> usize {
    let leases = renewed_leases(leases);
    fence(&leases).map_or(0, |fence| with(&leases, fence).count())
}

/// The lease that a majority has made last anew, which took so long. Who renews it was granted it, so
/// that a node keeps it too which never heard of its fence.
pub(super) fn renewed(
    leases: &[&HeldLease],
    majority: usize,
    spent: Duration,
) -> Option<HeldLease> {
    if leases.len() < majority {
        return None;
    }
    valid_lease(&renewed_leases(leases), majority, spent)
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

fn of_majority(
    node_leases: &[NodeLease<'_>],
    majority: usize,
    spent: Duration,
) -> Option<HeldLease> {
    let accepted: Vec<_> = with(node_leases, fence(node_leases)?).copied().collect();
    if accepted.len() < majority {
        return None;
    }
    valid_lease(&accepted, majority, spent)
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

fn valid_lease(leases: &[NodeLease<'_>], majority: usize, spent: Duration) -> Option<HeldLease> {
    let (lease, _) = with(leases, fence(leases)?).next()?;
    let left = majority_validity(leases.iter().map(|(_, left)| *left).collect(), majority);
    let limits = leases.iter().filter_map(|(lease, _)| lease.hold_expires_in);
    let limit = majority_validity(limits.collect(), majority);
    let expires_in = validity(left, spent);
    let held_for = leases.iter().map(|(lease, _)| lease.held_for).min();
    Some(HeldLease {
        expires_in,
        // By the last node that took part in it, so that this and what is left are no more than the limit.
        held_for: held_for.unwrap_or_default(),
        // Where it is the limit that ends the lease, both are the same.
        hold_expires_in: lease
            .hold_expires_in
            .map(|_| if limit <= left { expires_in } else { limit }),
        ..(*lease).clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Metadata, Ttl};

    fn lease(fence: u64, left: u64, limit: Option<u64>) -> HeldLease {
        HeldLease {
            fence: FencingToken::new(fence).unwrap(),
            ttl: Ttl::MIN,
            expires_in: Duration::from_millis(left),
            held_for: Duration::ZERO,
            hold_expires_in: limit.map(Duration::from_millis),
            owner: None,
            metadata: Metadata::default(),
        }
    }

    fn agree(leases: &[HeldLease; 3], spent: u64) -> Option<HeldLease> {
        let leases: Vec<_> = leases.iter().collect();
        renewed(&leases, 2, Duration::from_millis(spent))
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
    fn a_try_that_came_to_nothing_does_not_name_the_fence() {
        let (low, high) = (lease(7, 900, None), lease(9, 900, None));
        let held = renewed(&[&high, &low, &low], 2, Duration::ZERO).unwrap();
        assert_eq!(held.fence.get(), 7);
        let held = confirmed(&[&high, &low, &low], 2, Duration::ZERO).unwrap();
        assert_eq!(held.fence.get(), 7);
    }

    #[test]
    fn a_minority_that_has_accepted_it_makes_no_lease() {
        let (named, unnamed) = (lease(7, 900, None), lease(1, 900, None));
        assert_eq!(
            confirmed(&[&named, &unnamed, &unnamed], 2, Duration::ZERO),
            None
        );
        let other = lease(9, 900, None);
        assert_eq!(
            confirmed(&[&named, &other, &unnamed], 2, Duration::ZERO),
            None
        );
        // Whoever renews it was granted it, and knows that it was accepted.
        assert!(renewed(&[&named, &unnamed], 2, Duration::ZERO).is_some());
        assert_eq!(renewed(&[&named], 2, Duration::ZERO), None);
    }

    #[test]
    fn ends_with_its_limit_at_the_same_instant() {
        let limited = |left| lease(7, left, Some(500));
        let held = agree(&[limited(500), limited(500), limited(500)], 0).unwrap();
        assert_eq!(held.hold_expires_in, Some(held.expires_in));
        let held = agree(&[limited(400), limited(400), limited(400)], 0).unwrap();
        assert_eq!(held.hold_expires_in, Some(Duration::from_millis(500)));
    }
}
