//! Break, over a quorum: finds the holder of the lock, and ends exactly its lease or value at every node.

use crate::{
    lock::{BreakTarget, LockName, ReleaseRequest},
    store::{
        StoreError,
        contract::{Breaking, Holder, Requesting},
        redis::{client::failure::passes_too_fast, keys::Keys},
    },
};

use super::{
    calls::{NodeBreak, NodeTarget},
    quorum::NodeReplies,
    record::NodeHolder,
    scripts::Nonce,
    shared::Shared,
    sweeper::SweepTarget,
};

/// How many times the holder is looked up, if the lock passes to another holder between the look and the break.
const LOOKS: usize = 32;

// === impl Shared ===

impl Shared {
    pub(super) async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        for _ in 0..LOOKS {
            let (node_target, holder) = match self.choose(&keys, target).await? {
                Ok(chosen) => chosen,
                Err(None) => return Ok(Breaking::NotHeld),
                Err(Some(holder)) => return Ok(Breaking::HolderChanged(holder)),
            };
            let nonce = Nonce::random();
            let answers = self.quorum.ask(
                |node| node.break_lock(&keys, &nonce, &node_target),
                |answers| {
                    let strokes = BreakTally::from_replies(answers);
                    strokes.own >= majority || strokes.own + strokes.silent < majority
                },
            );
            let answers = answers.await;
            let strokes = BreakTally::from_replies(&answers);
            if strokes.own > 0 {
                self.hand_off(name).await;
            }
            if let NodeTarget::Lease(token) = &node_target
                && answers.count(Result::is_ok) >= majority
            {
                for node in answers.others(Result::is_ok) {
                    self.sweeper
                        .sweep(node, name, token, SweepTarget::Lease(None));
                }
            }
            // If no break has a majority, a release at the same time is answered that the release has ended the lease.
            if strokes.own >= majority {
                return Ok(Breaking::Broken(holder));
            }
            if strokes.may_have_ended_it(majority) {
                return Err(self.unknown(&answers, strokes.own > 0));
            }
        }
        Err(passes_too_fast())
    }

    /// Asks the holder of the lock to release it. A majority of nodes then ends the lease after the given time.
    pub(super) async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        for _ in 0..LOOKS {
            let (token, mut holder) = match self.choose(&keys, target).await? {
                Ok((NodeTarget::Lease(token), holder)) => (token, holder),
                Ok((NodeTarget::Foreign(_), holder)) => return Ok(Requesting::Foreign(holder)),
                Err(None) => return Ok(Requesting::NotHeld),
                Err(Some(holder)) => return Ok(Requesting::HolderChanged(holder)),
            };
            let answers = self.quorum.ask(
                |node| node.ask(&keys, &token, request),
                |answers| {
                    let asked = answers.count(|it| *it == Ok(true));
                    let may = answers.nodes() - answers.count(|it| *it == Ok(false));
                    asked >= majority || may < majority
                },
            );
            let answers = answers.await;
            let asked = answers.count(|it| *it == Ok(true));
            if asked >= majority {
                for lease in holder.leases_mut() {
                    lease.request_release(request);
                }
                return Ok(Requesting::Requested(holder));
            }
            if answers.nodes() - answers.count(|it| *it == Ok(false)) >= majority {
                return Err(self.unknown(&answers, asked > 0));
            }
        }
        Err(passes_too_fast())
    }

    /// Finds the lease or foreign value to end at the nodes, and the holder to report. The inner `Err` is the holder
    /// that is not the target, or `None` if the lock is not held.
    async fn choose(
        &self,
        keys: &Keys,
        target: Option<BreakTarget>,
    ) -> Result<Result<(NodeTarget, Holder), Option<Holder>>, StoreError> {
        let view = self.consistent_view(keys, false).await?;
        let known = view.holding();
        let Some(holding) = known.clone().or_else(|_| view.likely_holder())? else {
            return Ok(Err(None));
        };
        let (node_target, found) = match &holding {
            NodeHolder::Lease(token, lease) => {
                (NodeTarget::Lease(*token), BreakTarget::Lease(lease.fence))
            }
            NodeHolder::Foreign(_, mark) => {
                (NodeTarget::Foreign(*mark), BreakTarget::Foreign(*mark))
            }
        };
        let holder = holding.holder();
        // `BreakTarget::All` means all leases. A foreign value is ended only if the target is its mark, or if there is
        // no target.
        let is_lease = matches!(found, BreakTarget::Lease(_));
        if target.is_none_or(|target| target == found || (target == BreakTarget::All && is_lease)) {
            Ok(Ok((node_target, holder)))
        } else {
            known?;
            Ok(Err(Some(holder)))
        }
    }
}

/// How many nodes report that this break, or another break, has ended the lease or value that is the target.
#[derive(Debug, Default, PartialEq, Eq)]
struct BreakTally {
    own: usize,
    /// How many nodes report that another break has ended the target.
    others: usize,
    silent: usize,
}

// === impl BreakTally ===

impl BreakTally {
    fn from_replies(answers: &NodeReplies<Result<NodeBreak, StoreError>>) -> Self {
        let count = |word: NodeBreak| answers.count(|answer| *answer == Ok(word));
        Self {
            own: count(NodeBreak::Broken),
            others: count(NodeBreak::Ended),
            silent: answers.silent(),
        }
    }

    /// Whether this break may have ended the lease: this break may have a majority with the silent nodes, or all breaks
    /// together may have one although no break has a majority alone.
    fn may_have_ended_it(&self, majority: usize) -> bool {
        let own = self.own + self.silent;
        own >= majority || (self.own > 0 && own + self.others >= majority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_that_others_or_nobody_has_ended_the_lease_with_is_not_known() {
        let strokes = |own, others, silent| BreakTally {
            own,
            others,
            silent,
        };
        assert!(strokes(1, 0, 1).may_have_ended_it(2));
        assert!(strokes(1, 1, 0).may_have_ended_it(2));
        assert!(strokes(0, 0, 2).may_have_ended_it(2));
        // The lease was released, and no break has ended it.
        assert!(!strokes(1, 0, 0).may_have_ended_it(2));
        assert!(!strokes(0, 2, 0).may_have_ended_it(2));
        assert!(!strokes(0, 0, 1).may_have_ended_it(2));
    }
}
