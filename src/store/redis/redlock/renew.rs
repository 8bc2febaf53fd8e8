//! Renew, over a quorum: the nodes that still have the lease keep it. None takes it again.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    lock::{HeldLease, LockName, TokenHash},
    store::{
        StoreError,
        contract::{Confirmation, Loss, Renewal, RenewalTtl, Renewer},
    },
};

use super::{
    claim::{is_ratified, majority_validity},
    quorum::{NodeReplies, is_decided, loss, unknown},
    shared::{Shared, SweepTarget},
    view::{self, Asked},
};

/// Whether nodes that keep the lease name different fences, none of them so many that it is the one by which it was
/// granted: another is of a try that came to nothing. One answer more may tell.
fn is_disputed(answers: &NodeReplies<Result<Renewal, StoreError>>, majority: usize) -> bool {
    let fences = answers.iter().filter_map(|answer| match answer {
        Ok(Renewal::Renewed(lease, _)) if is_ratified(lease) => Some(lease.fence),
        _ => None,
    });
    let fences: Vec<_> = fences.collect();
    let named = |fence| fences.iter().filter(|it| **it == fence).count();
    let first = fences.first();
    first.is_some_and(|first| named(*first) < fences.len())
        && !fences.iter().any(|fence| named(*fence) >= majority)
}

// === impl Shared ===

impl Shared {
    pub(super) async fn renew(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        let local_queue = self.local_queues.of(name);
        let _adopting = match renewer {
            Renewer::Adopter(_) => Some(local_queue.adopting.lock().await),
            Renewer::Bearer | Renewer::Keeper(_) => None,
        };
        let began = Instant::now();
        let answers = self.quorum.ask(
            |node| node.renew(&keys, renewer, token, ttl),
            |answers| {
                let kept = answers.count(|it| matches!(it, Ok(Renewal::Renewed(..))));
                let lost = is_decided(&losses(answers), majority, answers.nodes());
                let adopted = answers.count(|it| matches!(it, Ok(Renewal::Adopted)));
                (kept >= majority && !is_disputed(answers, majority)) || lost || adopted >= majority
            },
        );
        let answers = answers.await;
        let kept: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                Ok(Renewal::Renewed(lease, _)) => Some(lease),
                _ => None,
            })
            .collect();
        if let Some(lease) = view::renewed(&kept, majority, Asked::since(began)) {
            return Ok(Renewal::Renewed(lease, margin(&answers, majority)));
        }
        let adopted = answers.count(|it| matches!(it, Ok(Renewal::Adopted)));
        if adopted > 0 && adopted + kept.len() >= majority {
            return Ok(Renewal::Adopted);
        }
        if let Some(loss) = loss(&losses(&answers), majority) {
            self.sweep_rest(name, token, &answers);
            return Ok(Renewal::Lost(loss));
        }
        Err(unknown(
            &answers,
            majority,
            !kept.is_empty(),
            |missed, error| self.describe(missed, error),
        ))
    }

    /// A lease without a majority is over; where it still is it only keeps a node from others.
    fn sweep_rest(
        &self,
        name: &LockName,
        token: &TokenHash,
        answers: &NodeReplies<Result<Renewal, StoreError>>,
    ) {
        for (node, answer) in answers.by_node() {
            if matches!(answer, Some(Ok(Renewal::Renewed(..)))) {
                self.sweeper
                    .sweep(node, name, token, SweepTarget::Lease(None));
            }
        }
    }
}

/// How much time a renewed lease had left on a majority of the nodes before its renewal.
fn margin(answers: &NodeReplies<Result<Renewal, StoreError>>, majority: usize) -> Duration {
    let margins: Vec<_> = answers
        .iter()
        .filter_map(|answer| match answer {
            Ok(Renewal::Renewed(_, margin)) => Some(*margin),
            _ => None,
        })
        .collect();
    majority_validity(margins, majority)
}

fn losses(answers: &NodeReplies<Result<Renewal, StoreError>>) -> Vec<Loss> {
    answers
        .iter()
        .filter_map(|answer| match answer {
            Ok(Renewal::Lost(loss)) => Some(*loss),
            _ => None,
        })
        .collect()
}

// === Confirm ===
//
// Confirm, over a quorum: finds out whether an attempt has the lock, and makes it last its full TTL.

// === impl Shared ===

impl Shared {
    pub(super) async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        // These nodes are not asked: a try that has been confirmed there would not be withdrawn any more.
        let doomed = self.nodes_to_withdraw_from(name, token);
        let pending_withdrawals = &self.sweeper.pending_withdrawals;
        let is_sure = |node| !pending_withdrawals.contains(node, name, token);
        let began = Instant::now();
        let answers = self.quorum.ask_some(
            |node| !doomed.contains(&node.index),
            |node| node.confirm(&keys, token),
            |answers| confirmation(answers, doomed.len(), majority, began, is_sure).is_some(),
        );
        let answers = answers.await;
        let confirmation = confirmation(&answers, doomed.len(), majority, began, is_sure);
        if confirmation == Some(Confirmation::Lost) {
            for (node, answer) in answers.by_node() {
                if matches!(answer, Some(Ok(Confirmation::Confirmed(_)))) {
                    self.sweeper.sweep(node, name, token, SweepTarget::Attempt);
                }
            }
        }
        confirmation.ok_or_else(|| {
            unknown(&answers, majority, false, |missed, error| {
                self.describe(missed, error)
            })
        })
    }
}

/// Whether an attempt has the lock; `None` while the answers do not decide it. `doomed` is the number of nodes that were
/// not asked, because the attempt is withdrawn there. The confirmation of a node counts only if `is_sure(node)`.
fn confirmation(
    answers: &NodeReplies<Result<Confirmation, StoreError>>,
    doomed: usize,
    majority: usize,
    began: Instant,
    is_sure: impl Fn(usize) -> bool,
) -> Option<Confirmation> {
    let confirmed = answers.by_node().filter_map(|(node, answer)| match answer {
        Some(Ok(Confirmation::Confirmed(lease))) => Some((node, lease)),
        _ => None,
    });
    let confirmed: Vec<(usize, &HeldLease)> = confirmed.collect();
    let sure = confirmed.iter().filter(|(node, _)| is_sure(*node));
    let sure: Vec<&HeldLease> = sure.map(|(_, lease)| *lease).collect();
    if let Some(lease) = view::confirmed(&sure, majority, Asked::since(began)) {
        return Some(Confirmation::Confirmed(lease));
    }
    let superseded = answers.count(|answer| *answer == Ok(Confirmation::Superseded));
    if superseded + confirmed.len() >= majority && superseded > 0 {
        return Some(Confirmation::Superseded);
    }
    let lost = answers.count(|answer| *answer == Ok(Confirmation::Lost)) + doomed;
    // What fewer have accepted was never granted; others may have accepted it too.
    let others = answers.nodes() - superseded - lost - confirmed.len();
    (view::accepting(&sure) + others < majority).then_some(Confirmation::Lost)
}

#[cfg(test)]
mod tests {
    use crate::lock::{FencingToken, Metadata, Ttl};

    use super::*;

    fn kept(fence: u64) -> Renewal {
        let lease = HeldLease {
            fence: FencingToken::new(fence).unwrap(),
            mode: crate::lock::Mode::Exclusive,
            ttl: Ttl::MIN,
            expires_in: Duration::from_secs(1),
            held_for: Duration::ZERO,
            hold_expires_in: None,
            owner: None,
            metadata: Metadata::default(),
            release_requested: None,
            as_of: Instant::now(),
        };
        Renewal::Renewed(lease, Duration::ZERO)
    }

    fn disputed(kept_by: &[u64], nodes: usize) -> bool {
        let mut answers = NodeReplies::none(nodes);
        for (node, fence) in kept_by.iter().enumerate() {
            answers.put(node, Ok(kept(*fence)));
        }
        is_disputed(&answers, nodes / 2 + 1)
    }

    #[test]
    fn a_fence_is_disputed_until_a_majority_names_one() {
        for (kept_by, is_disputed) in [
            (&[][..], false),
            (&[7], false),
            (&[7, 7], false),
            (&[7, 9], true),
            (&[7, 9, 7], false),
            // The second round has not named the fence of the second node.
            (&[7, 1], false),
            (&[1, 1], false),
            (&[7, 1, 9], true),
        ] {
            assert_eq!(disputed(kept_by, 3), is_disputed, "{kept_by:?}");
        }
        assert!(disputed(&[7, 7, 9], 5));
        assert!(!disputed(&[7, 7, 9, 7], 5));
        assert!(!disputed(&[7, 9, 9, 9], 5));
    }

    #[test]
    fn nodes_that_lost_the_lease_dispute_no_fence() {
        let mut answers = NodeReplies::none(3);
        answers.put(0, Ok(kept(7)));
        answers.put(1, Ok(Renewal::Lost(Loss::Free)));
        assert!(!is_disputed(&answers, 2));
        answers.put(2, Ok(kept(9)));
        assert!(is_disputed(&answers, 2));
    }
}
