//! Release, also of undelivered leases, over a quorum: the lease ends at every node, now or when the node answers
//! again.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tracing::debug;

use crate::{
    lock::{LockName, RecipientId, TokenHash},
    store::{
        StoreError,
        contract::{GiveBack, Loss, Release},
        history::EndedLease,
    },
};

use super::{
    super::{client::dispatch::Pauses, keys::Keys},
    acquire::ask_to_take,
    agreement::{UNRATIFIED, majority_validity},
    calls::NodeRelease,
    quorum::{NodeReplies, is_decided, loss},
    shared::Shared,
    sweeper::{Sweep, SweepTarget},
};

// === impl Shared ===

impl Shared {
    pub(super) async fn release(
        self: &Arc<Self>,
        recipient: Option<RecipientId>,
        name: &LockName,
        token: &TokenHash,
        granted_here: bool,
    ) -> Result<Release, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        let began = Instant::now();
        let answers = self.quorum.ask(
            |node| node.release(&keys, recipient, token, granted_here),
            |answers| ReleaseTally::from_replies(answers).is_decided(majority),
        );
        let answers = answers.await;
        let release_tally = ReleaseTally::from_replies(&answers);
        let outcome = release_tally.final_outcome(majority);
        if release_tally.released > 0 && !matches!(outcome, Some(Release::Adopted(_))) {
            // Parts of the lease may be at the other nodes, and a copy of its acquire may still be on its way, so the
            // lease is swept there.
            for node in answers.others(|answer| matches!(answer, Ok(NodeRelease::Released(_)))) {
                self.sweeper
                    .sweep(node, name, token, SweepTarget::Lease(recipient));
            }
            self.hand_off(name).await;
        }
        if let (Some(Release::Adopted(recipient)), Some(released_by)) = (&outcome, recipient) {
            let released = (name, token, released_by);
            self.restore_where_released(released, &answers, *recipient, began);
        }
        outcome.ok_or_else(|| self.unknown(&answers, release_tally.released > 0))
    }
}

// === Restore ===
//
// Gives an adopted lease back to the nodes that have released it, because they missed the adoption. With a bare
// majority, the lease would end with the clock of one node.

// === impl Shared ===

impl Shared {
    /// Makes the nodes that have released the lease take it again, in the background. A node whose answer is missing
    /// may have released the lease too, or does so soon.
    fn restore_where_released(
        self: &Arc<Self>,
        (name, token, released_by): (&LockName, &TokenHash, RecipientId),
        answers: &NodeReplies<Result<NodeRelease, StoreError>>,
        recipient: RecipientId,
        began: Instant,
    ) {
        let copies = answers.iter().filter_map(|answer| match answer {
            Ok(NodeRelease::Adopted(copy)) => Some(copy),
            _ => None,
        });
        let (copies, majority): (Vec<_>, _) = (copies.collect(), self.quorum.majority());
        let Some(&copy) = copies.iter().find(|copy| copy.recipient == recipient) else {
            return;
        };
        // Where fewer nodes have the lease, it may have ended, and another caller may have the lock.
        if copies.len() < majority {
            return;
        }
        let left = majority_validity(copies.iter().map(|copy| copy.left).collect(), majority);
        for (node, answer) in answers.by_node() {
            if !matches!(answer, None | Some(Err(_) | Ok(NodeRelease::Released(_)))) {
                continue;
            }
            let (shared, name, token) = (Arc::clone(self), name.clone(), *token);
            let copy = copy.clone();
            self.start_background(async move {
                let (node, keys) = (&shared.quorum.nodes()[node], shared.keys(&name));
                // The release has woken gateways with waiters, whose tries may be at the node for a moment.
                let restore = || async {
                    // A node may have said what was left before this node released the lease.
                    let left = left.saturating_sub(began.elapsed());
                    let restored = node.restore(&keys, &token, released_by, left, &copy).await;
                    restored == Ok(false)
                };
                ask_to_take(began + left, restore).await;
            });
        }
    }
}

// === Release tally ===
//
// Decides the outcome of a release by the answers of the nodes.

/// How many nodes gave which answer to a release.
///
/// A break may come at the same time as the release, and each node lets only one of the two end the lease. The break
/// succeeds if it ended the lease at a majority. So the release succeeds if no break can have a majority.
#[derive(Debug, Default)]
pub(super) struct ReleaseTally {
    nodes: usize,
    answered: usize,
    pub(super) released: usize,
    broken: usize,
    /// The other recipients that have the lease.
    adopted: Vec<RecipientId>,
    /// The lease that the nodes have released, from a node that knows its fence.
    ended: Option<EndedLease>,
    /// How the lease was lost, for each node that did not have the lease or where it was broken.
    losses: Vec<Loss>,
}

// === impl ReleaseTally ===

impl ReleaseTally {
    pub(super) fn from_replies(answers: &NodeReplies<Result<NodeRelease, StoreError>>) -> Self {
        let mut release_tally = Self {
            nodes: answers.nodes(),
            ..Self::default()
        };
        for node_release in answers.iter().flatten() {
            release_tally.answered += 1;
            match node_release {
                NodeRelease::Released(ended) => {
                    release_tally.released += 1;
                    // A node that the second round of the acquire has not reached does not know the fence.
                    let ended = ended.filter(|it| it.fence.get() > UNRATIFIED);
                    release_tally.ended = release_tally.ended.or(ended);
                }
                NodeRelease::Adopted(copy) => release_tally.adopted.push(copy.recipient),
                NodeRelease::Broken { held } => {
                    release_tally.broken += 1;
                    release_tally.losses.push(Loss::Broken { held: *held });
                }
                NodeRelease::Lost(loss) => release_tally.losses.push(*loss),
            }
        }
        release_tally
    }

    /// The outcome of the release for the caller; `None` if the missing answers can change the outcome.
    pub(super) fn outcome(&self, majority: usize) -> Option<Release> {
        let (released, losses) = (self.released, self.losses.len());
        let silent = self.nodes - self.answered;
        let adopted = self.adopted.len();
        if adopted >= majority || (released == 0 && adopted + losses >= majority) {
            // A node may have missed the last adoption.
            let named = |recipient| self.adopted.iter().filter(|it| **it == recipient).count();
            if let Some(recipient) = self.adopted.iter().max_by_key(|it| named(**it)) {
                return Some(Release::Adopted(*recipient));
            }
        }
        // A majority of the nodes has broken the lease, or did not have the lease any more when the release came.
        if self.broken >= majority || losses - self.broken >= majority {
            return loss(&self.losses, majority).map(Release::Lost);
        }
        // A lease that is gone from a majority of the nodes cannot be renewed any more.
        let gone = released > 0 && released + losses >= majority;
        (gone && self.broken + silent < majority).then_some(Release::Released(self.ended))
    }

    /// The outcome of the release when the gateway no longer waits for the missing answers. A lease that no node has
    /// released is lost to its holder, whether or not a break has ended it.
    pub(super) fn final_outcome(&self, majority: usize) -> Option<Release> {
        let lost = || loss(&self.losses, majority).filter(|_| self.released == 0);
        self.outcome(majority).or_else(|| lost().map(Release::Lost))
    }

    /// Whether no missing answer can change the outcome of the release, or no missing answer is worth waiting for.
    pub(super) fn is_decided(&self, majority: usize) -> bool {
        match self.outcome(majority) {
            Some(Release::Lost(_)) => is_decided(&self.losses, majority, self.nodes),
            Some(Release::Released(_) | Release::Adopted(_)) => true,
            // Without a break, more answers are not worth waiting for: if a recipient has adopted the lease, the lease
            // has not ended at the nodes where it is kept.
            None => self.answered >= majority && self.broken == 0,
        }
    }
}

// === Give back ===
//
// Releases an undelivered lease, over a quorum: makes sure that an attempt without a waiting caller holds nothing.

// === impl Shared ===

impl Shared {
    pub(super) async fn give_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        unanswered: Option<RecipientId>,
    ) -> Result<GiveBack, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        let local_queue = self.local_queues.get_or_create(name);
        local_queue.leave(token, None, Instant::now(), true);
        // Waits for the turn at this gateway, so that no try for the attempt is in progress any more.
        let turn = self.turn(&local_queue).await?;
        let answers = self.quorum.ask(
            |node| node.withdraw(&keys, token, None, unanswered),
            |answers| answers.count(Result::is_ok) >= majority,
        );
        let answers = answers.await;
        drop(turn);
        let count = |word: GiveBack| answers.count(|answer| *answer == Ok(word));
        let (given_back, kept) = (count(GiveBack::GivenBack), count(GiveBack::Kept));
        let nothing = count(GiveBack::NothingHeld);
        if kept >= majority {
            return Ok(GiveBack::Kept);
        }
        if given_back > 0 {
            self.hand_off(name).await;
        }
        if given_back + nothing < majority {
            return Err(self.unknown(&answers, given_back > 0));
        }
        for node in answers.others(Result::is_ok) {
            self.sweeper.sweep(node, name, token, SweepTarget::Attempt);
        }
        // If a majority of the nodes had nothing of the attempt, the attempt had no lease: a try at a minority is none.
        Ok(if nothing >= majority {
            GiveBack::NothingHeld
        } else {
            GiveBack::GivenBack
        })
    }
}

// === Sweep ===
//
// Ends tries and leases that could not be ended at once, when their node answers again.

/// How many sweeps run at the same time at one node.
const SWEEPS_TOGETHER: usize = 64;

// === impl Shared ===

impl Shared {
    pub(super) fn start_sweeping(self: &Arc<Self>, lists: Vec<mpsc::Receiver<Sweep>>) {
        for (node, list) in lists.into_iter().enumerate() {
            let shared = Arc::clone(self);
            self.start_background(async move { shared.sweep_node(node, list).await });
        }
    }

    async fn sweep_node(&self, node: usize, mut list: mpsc::Receiver<Sweep>) {
        let mut sweeps = Vec::new();
        let mut pauses = Pauses::new();
        loop {
            if sweeps.is_empty() {
                pauses = Pauses::new();
                let Some(first) = list.recv().await else {
                    return;
                };
                sweeps.push(first);
            }
            while sweeps.len() < SWEEPS_TOGETHER
                && let Ok(next) = list.try_recv()
            {
                sweeps.push(next);
            }
            let swept = join_all(sweeps.iter().map(|sweep| self.sweep_one(node, sweep))).await;
            let now = Instant::now();
            let mut outcomes = swept.into_iter();
            sweeps.retain(|sweep| match outcomes.next() {
                Some(Err(error)) if sweep.until > now => {
                    debug!(name = %sweep.name, %error, "the sweep is repeated later");
                    true
                }
                _ => false,
            });
            if !sweeps.is_empty() {
                sleep(pauses.next()).await;
            }
        }
    }

    async fn sweep_one(&self, node: usize, sweep: &Sweep) -> Result<(), StoreError> {
        let node = &self.quorum.nodes()[node];
        let keys: Keys = self.keys(&sweep.name);
        let nonce = match &sweep.swept {
            SweepTarget::Try(nonce) => Some(nonce),
            SweepTarget::Attempt => None,
            SweepTarget::Lease(recipient) => {
                let released = node.release(&keys, *recipient, &sweep.token, true).await?;
                if matches!(released, NodeRelease::Released(_)) {
                    return Ok(());
                }
                // Without the withdrawal, a copy of the lease's acquire that is still on its way would take the lock.
                None
            }
        };
        let withdraw = node.withdraw(&keys, &sweep.token, nonce, None);
        withdraw.await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::quorum::tests::replies, *};

    const RELEASED: NodeRelease = NodeRelease::Released(None);
    const FREE: NodeRelease = NodeRelease::Lost(Loss::Free);
    const BROKEN: NodeRelease = NodeRelease::Broken { held: false };

    fn release_tally<const N: usize>(said: [Option<NodeRelease>; N]) -> ReleaseTally {
        ReleaseTally::from_replies(&replies(said.map(|it| it.map(Ok))))
    }

    fn outcome<const N: usize>(said: [Option<NodeRelease>; N]) -> Option<Release> {
        release_tally(said).outcome(N / 2 + 1)
    }

    #[test]
    fn what_no_majority_of_breaks_can_have_ended_was_released() {
        let (released, free) = (|| Some(RELEASED), || Some(FREE));
        let broken = || Some(BROKEN);
        let told = Some(Release::Released(None));
        assert_eq!(outcome([released(), released(), None]), told);
        assert_eq!(outcome([released(), free(), None]), told);
        assert_eq!(outcome([released(), broken(), free()]), told);
        assert_eq!(outcome([released(), broken(), released()]), told);
        // A break may have ended the lease at the missing node too.
        assert_eq!(outcome([released(), broken(), None]), None);
        assert_eq!(
            outcome([released(), released(), broken(), None, None]),
            None
        );
        let lost = Some(Release::Lost(Loss::Broken { held: false }));
        assert_eq!(outcome([released(), broken(), broken()]), lost);
    }

    #[test]
    fn what_a_majority_did_not_have_was_lost_before() {
        let lost = Some(Release::Lost(Loss::Free));
        let said = [Some(RELEASED), Some(FREE), Some(FREE)];
        assert_eq!(outcome(said), lost);
        assert_eq!(outcome([Some(FREE), Some(FREE), None]), lost);
    }

    #[test]
    fn a_break_at_a_minority_is_waited_for_and_then_a_loss_all_the_same() {
        let said = release_tally([Some(BROKEN), Some(FREE), None]);
        assert!(!said.is_decided(2));
        let lost = Release::Lost(Loss::Broken { held: false });
        assert_eq!(said.final_outcome(2), Some(lost));
        let said = release_tally([Some(BROKEN), Some(RELEASED), None]);
        assert!(!said.is_decided(2));
        assert_eq!(said.final_outcome(2), None);
    }
}
