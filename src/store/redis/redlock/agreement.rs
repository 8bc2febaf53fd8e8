//! Finds the lease that the nodes of a quorum agree on, and for how long its holder may rely on it.

use std::time::Duration;

use tokio::time::Instant;

use crate::lock::{FencingToken, HeldLease, ReleaseRequest};

/// The fence in a lease record before the second round has named a fence, as in `reserve.lua`.
pub(super) const UNRATIFIED: u64 = 1;

/// Whether the second round of the acquire has named the fence of a lease.
pub(super) fn is_ratified(lease: &HeldLease) -> bool {
    lease.fence.get() > UNRATIFIED
}

/// The lease as these nodes report it, whether or not they are a majority; `None` if no node knows its fence.
pub(super) fn agreed(leases: &[&HeldLease], majority: usize) -> Option<HeldLease> {
    let as_of = leases.iter().map(|lease| lease.as_of).min()?;
    valid_lease(leases, majority, as_of, as_of)
}

/// The lease that a majority has accepted with the same fence, as it is `now`; `None` if fewer nodes have: a try may be
/// withdrawn although a minority has accepted it.
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

/// How many of these nodes have accepted the lease with the fence that most of them accepted.
pub(super) fn accepting(leases: &[&HeldLease]) -> usize {
    fence(leases).map_or(0, |fence| with(leases, fence).count())
}

/// The lease that a majority has just renewed. Only the holder of a granted lease renews it, so a node counts even if
/// it does not know the fence.
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

/// The fence with which most nodes have accepted the lease. A different fence is of a try that failed, and may be
/// higher.
fn fence(leases: &[&HeldLease]) -> Option<FencingToken> {
    let ratified = leases.iter().filter(|lease| is_ratified(lease));
    let fences = ratified.map(|lease| lease.fence);
    fences.max_by_key(|fence| (with(leases, *fence).count(), *fence))
}

/// The lease as it is `now`, from the replies of nodes that were asked since `began`. The elapsed time ends, and the
/// remaining time begins, at the same reading of the clock: if the process stands still afterwards, the holder sees
/// that time pass.
fn valid_lease(
    leases: &[&HeldLease],
    majority: usize,
    began: Instant,
    now: Instant,
) -> Option<HeldLease> {
    let spent = now.saturating_duration_since(began);
    let lease = with(leases, fence(leases)?).next()?;
    // A renewal that only a minority of the nodes has carried out may have changed the TTL at these nodes.
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
    // A node may have missed the release request, so a request at any node counts.
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
        // The time held counts from when the last node took part, so that the time held and the time left together do
        // not exceed the limit.
        held_for: held_for.unwrap_or_default(),
        // If the hold limit is what ends the lease, the time left and the time until the hold limit must be the same.
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

// === Validity ===

/// The part of a time reported by a node that may be relied on. Clocks drift apart by up to a hundredth, and a key
/// expires up to 2 ms before or after its instant.
pub(super) fn validity(reported: Duration, spent: Duration) -> Duration {
    let drift = reported / 100 + Duration::from_millis(2);
    reported.saturating_sub(drift).saturating_sub(spent)
}

/// For how long at least a majority of these leases lasts.
pub(super) fn majority_validity(lefts: Vec<Duration>, majority: usize) -> Duration {
    least_of_majority(lefts, majority).unwrap_or_default()
}

/// The largest value that at least a majority of these values reach; the smallest value if there are fewer values;
/// `None` if there are none.
pub(super) fn least_of_majority<T: Ord + Copy>(mut values: Vec<T>, majority: usize) -> Option<T> {
    values.sort_unstable_by(|a, b| b.cmp(a));
    let least = values.get(majority - 1).or(values.last());
    least.copied()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;

    use crate::lock::{Mode, Reason, Terms, Ttl};

    use super::*;

    /// Time at which the tests' nodes were asked.
    static THEN: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// Makes a lease as a node reports it, with times in milliseconds.
    pub(in super::super) fn lease(fence: u64, left: u64, limit: Option<u64>) -> HeldLease {
        let fence = FencingToken::new(fence).unwrap();
        HeldLease {
            expires_in: Duration::from_millis(left),
            hold_expires_in: limit.map(Duration::from_millis),
            ..Terms::lasting(Ttl::MIN).granted(fence, Mode::Exclusive, *THEN)
        }
    }

    #[test]
    fn a_request_to_release_is_told_if_one_node_of_a_majority_has_it() {
        let mut leases = [(); 3].map(|()| lease(7, 900, None));
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
        let nodes = [(7, 900), (1, 1_000), (7, 100)];
        let held = agree(&nodes.map(|(fence, left)| lease(fence, left, None)), 10);
        let held = held.unwrap();
        assert_eq!(held.fence.get(), 7);
        assert_eq!(held.expires_in, Duration::from_millis(900 - 9 - 2 - 10));
        assert_eq!(agree(&[(); 3].map(|()| lease(1, 900, None)), 0), None);
    }

    #[test]
    fn has_the_ttl_of_a_majority() {
        let mut leases = [(); 3].map(|()| lease(7, 900, None));
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
        // A caller that renews the lease was granted it, and knows that a majority accepted it.
        assert!(renewed(&[&named, &unnamed], 2, *THEN, *THEN).is_some());
        assert_eq!(renewed(&[&named], 2, *THEN, *THEN), None);
    }

    #[test]
    fn ends_with_its_limit_at_the_same_instant() {
        let limited = |left| lease(7, left, Some(500));
        let held = agree(&[500; 3].map(limited), 0).unwrap();
        assert_eq!(held.hold_expires_in, Some(held.expires_in));
        let held = agree(&[400; 3].map(limited), 30).unwrap();
        assert_eq!(held.hold_expires_in, Some(Duration::from_millis(470)));
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn is_what_is_left_without_drift_and_the_time_that_it_took() {
        assert_eq!(validity(ms(30_000), ms(50)), ms(30_000 - 302 - 50));
        assert_eq!(validity(ms(100), ms(97)), Duration::ZERO);
        assert_eq!(validity(ms(100), ms(96)), ms(1));
    }

    #[test]
    fn ends_when_the_first_of_the_majority_ends() {
        assert_eq!(majority_validity(vec![ms(3), ms(9), ms(5)], 2), ms(5));
        assert_eq!(
            majority_validity(vec![ms(3), ms(9), ms(5), ms(1), ms(7)], 3),
            ms(5)
        );
        // Some of the nodes that have the lease have not answered.
        assert_eq!(majority_validity(vec![ms(9)], 2), ms(9));
        assert_eq!(majority_validity(Vec::new(), 2), Duration::ZERO);
    }
}
