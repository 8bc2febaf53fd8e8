//! Renew, over a quorum: the nodes that still have the lease keep it. No node takes the lease again.

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
    agreement::{accepted, accepting, is_ratified, majority_validity, renewed},
    quorum::{NodeReplies, is_decided, loss},
    shared::Shared,
    sweeper::SweepTarget,
};

/// Answers of the nodes of a quorum to a renewal.
struct RenewalTally<'a> {
    /// The lease as each node that keeps it reports it.
    kept: Vec<&'a HeldLease>,
    /// How much time the lease had left, before the renewal, at each node that keeps it.
    margins: Vec<Duration>,
    losses: Vec<Loss>,
    adopted: usize,
}

// === impl RenewalTally ===

impl<'a> RenewalTally<'a> {
    fn from_replies(answers: &'a NodeReplies<Result<Renewal, StoreError>>) -> Self {
        let mut tally = Self {
            kept: Vec::new(),
            margins: Vec::new(),
            losses: Vec::new(),
            adopted: 0,
        };
        for renewal in answers.iter().flatten() {
            match renewal {
                Renewal::Renewed(lease, margin) => {
                    tally.kept.push(lease);
                    tally.margins.push(*margin);
                }
                Renewal::Lost(loss) => tally.losses.push(*loss),
                Renewal::Adopted => tally.adopted += 1,
            }
        }
        tally
    }

    /// Whether nodes that keep the lease name different fences, none of them by a majority. All fences but one are of
    /// failed tries, and one more answer may show which fence is the lease's.
    fn is_disputed(&self, majority: usize) -> bool {
        let named = self.kept.iter().filter(|lease| is_ratified(lease)).count();
        let agreeing = accepting(&self.kept);
        agreeing < named && agreeing < majority
    }
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
        let local_queue = self.local_queues.get_or_create(name);
        let _adopting = match renewer {
            Renewer::Adopter(_) => Some(local_queue.adopting.lock().await),
            Renewer::Bearer | Renewer::Recipient(_) => None,
        };
        let began = Instant::now();
        let answers = self.quorum.ask(
            |node| node.renew(&keys, renewer, token, ttl),
            |answers| {
                let tally = RenewalTally::from_replies(answers);
                (tally.kept.len() >= majority && !tally.is_disputed(majority))
                    || is_decided(&tally.losses, majority, answers.nodes())
                    || tally.adopted >= majority
            },
        );
        let answers = answers.await;
        let tally = RenewalTally::from_replies(&answers);
        if let Some(lease) = renewed(&tally.kept, majority, began, Instant::now()) {
            let margin = majority_validity(tally.margins, majority);
            return Ok(Renewal::Renewed(lease, margin));
        }
        if tally.adopted > 0 && tally.adopted + tally.kept.len() >= majority {
            return Ok(Renewal::Adopted);
        }
        if let Some(loss) = loss(&tally.losses, majority) {
            // A lease without a majority is over. At a node that still has the lease, it only keeps other attempts from
            // the lock.
            for (node, answer) in answers.by_node() {
                if matches!(answer, Some(Ok(Renewal::Renewed(..)))) {
                    let swept = SweepTarget::Lease(None);
                    self.sweeper.sweep(node, name, token, swept);
                }
            }
            return Ok(Renewal::Lost(loss));
        }
        Err(self.unknown(&answers, !tally.kept.is_empty()))
    }
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
        // Nodes where a withdrawal is pending are not asked: a try that was confirmed there would not be withdrawn any
        // more.
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
        confirmation.ok_or_else(|| self.unknown(&answers, false))
    }
}

/// Whether an attempt has the lock; `None` while the answers do not decide it. `doomed` is the number of nodes that
/// were not asked, because the attempt is withdrawn there. The confirmation of a node counts only if `is_sure(node)`.
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
    if let Some(lease) = accepted(&sure, majority, began, Instant::now()) {
        return Some(Confirmation::Confirmed(lease));
    }
    let replaced = answers.count(|answer| *answer == Ok(Confirmation::Replaced));
    if replaced + confirmed.len() >= majority && replaced > 0 {
        return Some(Confirmation::Replaced);
    }
    let lost = answers.count(|answer| *answer == Ok(Confirmation::Lost)) + doomed;
    // A lease that only a minority of the nodes has accepted was never granted. But the nodes that have not answered
    // may have accepted it too.
    let others = answers.nodes() - replaced - lost - confirmed.len();
    (accepting(&sure) + others < majority).then_some(Confirmation::Lost)
}

#[cfg(test)]
mod tests {
    use super::{super::agreement::tests::lease, *};

    fn kept(fence: u64) -> Renewal {
        Renewal::Renewed(lease(fence, 1_000, None), Duration::ZERO)
    }

    fn disputed(kept_by: &[u64], nodes: usize) -> bool {
        let mut answers = NodeReplies::none(nodes);
        for (node, fence) in kept_by.iter().enumerate() {
            answers.put(node, Ok(kept(*fence)));
        }
        RenewalTally::from_replies(&answers).is_disputed(nodes / 2 + 1)
    }

    #[test]
    fn a_fence_is_disputed_until_a_majority_names_one() {
        for (kept_by, is_disputed) in [
            (&[][..], false),
            (&[7], false),
            (&[7, 7], false),
            (&[7, 9], true),
            (&[7, 9, 7], false),
            // At the second node, the second round has not named the fence of the lease.
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
        assert!(!RenewalTally::from_replies(&answers).is_disputed(2));
        answers.put(2, Ok(kept(9)));
        assert!(RenewalTally::from_replies(&answers).is_disputed(2));
    }
}
