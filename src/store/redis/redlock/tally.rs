//! Combines the votes of the nodes in the first round of a try.

use crate::{
    lock::TokenHash,
    store::contract::{Acquisition, Holder},
};

use super::{calls::Vote, quorum::NodeReplies, view::possible_holders};

/// Combined result of the votes in the first round of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VoteVerdict {
    /// A majority of the nodes has reserved the lock; with the highest fence that was proposed.
    Reserved(u64),
    /// A majority of the nodes says that the lock is free, and no node was asked to reserve it.
    Free,
    /// At least one node has this attempt already.
    Again,
    /// A majority of the nodes has the lease of this token under the idempotency key.
    Replay(TokenHash),
    /// A majority of the nodes says that this holder has the lock.
    Held(Holder),
    /// No attempt can have a majority of the nodes, or it is not known which attempt has one, so the try is repeated.
    /// With the likely holder.
    Split(Option<Holder>),
    /// The attempt is refused with this final answer.
    Refused(Acquisition),
    /// The attempt was withdrawn.
    Withdrawn,
    /// Fewer than a majority of the nodes have voted.
    TooFew,
}

// === impl VoteVerdict ===

impl VoteVerdict {
    pub(super) fn from_votes(votes: &NodeReplies<Vote>, majority: usize) -> Self {
        let agree = |so: &dyn Fn(&Vote) -> bool| votes.count(so) >= majority;
        let any = |so: &dyn Fn(&Vote) -> bool| votes.count(so) > 0;
        if any(&|vote| *vote == Vote::Withdrawn) {
            return Self::Withdrawn;
        }
        if any(&|vote| *vote == Vote::Replaced) {
            return Self::Refused(Acquisition::Replaced);
        }
        let reserved = votes.iter().filter_map(|vote| match vote {
            Vote::Reserved(fence, _) => Some(*fence),
            _ => None,
        });
        let reserved: Vec<u64> = reserved.collect();
        if let Some(fence) = reserved.iter().max()
            && reserved.len() >= majority
        {
            return Self::Reserved(*fence);
        }
        if any(&|vote| *vote == Vote::Again) {
            return Self::Again;
        }
        if agree(&|vote| *vote == Vote::Mismatch) {
            return Self::Refused(Acquisition::IdempotencyMismatch);
        }
        if let Some(token) = votes.iter().find_map(|vote| match vote {
            Vote::Replay(token) if agree(&|other| *other == Vote::Replay(*token)) => Some(*token),
            _ => None,
        }) {
            return Self::Replay(token);
        }
        if agree(&|vote| *vote == Vote::Expired) {
            return Self::Refused(Acquisition::IdempotencyExpired);
        }
        if agree(&|vote| *vote == Vote::Free) {
            return Self::Free;
        }
        if !agree(&Vote::counts) {
            return Self::TooFew;
        }
        // The silent nodes decide whether the lease under the idempotency key lives: the lease must not be reported as
        // the lease of another holder.
        let replayed = votes.count(|vote| matches!(vote, Vote::Replay(_)));
        let silent = votes.nodes() - votes.count(Vote::counts);
        if replayed > 0 && silent > 0 && replayed + silent >= majority {
            return Self::TooFew;
        }
        let taken = votes.iter().filter_map(|vote| match vote {
            Vote::Taken(holder) => Some(holder),
            _ => None,
        });
        let taken: Vec<_> = taken.collect();
        let most = possible_holders(&taken, majority).max_by_key(|(_, count)| *count);
        match most {
            Some((holding, count)) if count >= majority => Self::Held(holding.holder()),
            likely => Self::Split(likely.map(|(holding, _)| holding.holder())),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        lock::{ForeignMark, Token},
        store::{Unavailability, Uncertainty},
    };

    use super::{
        super::{
            agreement::{agreed, tests::lease},
            calls::VoteId,
            quorum::tests::replies,
            record::NodeHolder,
        },
        *,
    };

    fn held(token: TokenHash, fence: u64) -> Vote {
        Vote::Taken(NodeHolder::Lease(token, lease(fence, 1_000, None)))
    }

    fn verdict<const N: usize>(votes: [Option<Vote>; N]) -> VoteVerdict {
        VoteVerdict::from_votes(&replies(votes), N / 2 + 1)
    }

    #[expect(clippy::unnecessary_wraps, reason = "a node may have no vote")]
    fn silent() -> Option<Vote> {
        Some(Vote::None(Uncertainty::TimedOut.into()))
    }

    #[expect(clippy::unnecessary_wraps, reason = "a node may have no vote")]
    fn reserved(fence: u64) -> Option<Vote> {
        Some(Vote::Reserved(fence, VoteId::default()))
    }

    #[test]
    fn a_majority_reserves_and_the_highest_proposal_counts() {
        for (votes, expected) in [
            ([reserved(7), None, reserved(9)], VoteVerdict::Reserved(9)),
            (
                [reserved(9), silent(), reserved(7)],
                VoteVerdict::Reserved(9),
            ),
            ([reserved(7), silent(), silent()], VoteVerdict::TooFew),
        ] {
            assert_eq!(verdict(votes), expected);
        }
    }

    #[test]
    fn a_lease_is_held_by_whoever_has_a_majority() {
        let [a, b] = [(); 2].map(|()| Token::random().hash());
        let held = |token, fence| Some(held(token, fence));
        let by_a = Holder::Lease(agreed(&[&lease(7, 1_000, None)], 2).unwrap());
        let votes = [held(a, 7), held(a, 1), silent()];
        assert_eq!(verdict(votes), VoteVerdict::Held(by_a.clone()));
        // The silent node may have the lease of `a` too.
        let votes = [held(a, 7), reserved(8), silent()];
        assert_eq!(verdict(votes), VoteVerdict::Split(Some(by_a)));
        // Both holders are only tries, because no node knows a fence.
        let votes = [held(a, 1), held(b, 1), reserved(8)];
        assert_eq!(verdict(votes), VoteVerdict::Split(None));
    }

    #[test]
    fn nodes_that_may_not_vote_are_missing_and_do_not_refuse() {
        let delayed = || Some(Vote::None(Unavailability::TooFewNodes("x".into()).into()));
        let mark = ForeignMark::new(&"0".repeat(40)).unwrap();
        let foreign = Some(Vote::Taken(NodeHolder::Foreign(None, mark)));
        assert_eq!(
            verdict([delayed(), delayed(), foreign]),
            VoteVerdict::TooFew
        );
    }

    #[test]
    fn a_key_is_replayed_or_used_where_a_majority_says_so() {
        let token = Token::random().hash();
        let replay = || Some(Vote::Replay(token));
        let expired = || Some(Vote::Expired);
        let other = Some(held(Token::random().hash(), 1));
        let is_used = VoteVerdict::Refused(Acquisition::IdempotencyExpired);
        for (votes, expected) in [
            ([replay(), silent(), replay()], VoteVerdict::Replay(token)),
            ([expired(), expired(), reserved(7)], is_used),
            ([expired(), silent(), reserved(7)], VoteVerdict::Split(None)),
            // The silent node may have the lease under the key, which is then not the lease of another holder.
            ([replay(), silent(), reserved(7)], VoteVerdict::TooFew),
            ([replay(), None, reserved(7)], VoteVerdict::TooFew),
            ([replay(), other, reserved(7)], VoteVerdict::Split(None)),
        ] {
            assert_eq!(verdict(votes), expected);
        }
    }

    #[test]
    fn one_node_that_knows_of_the_withdrawal_is_enough() {
        let votes = [reserved(7), Some(Vote::Withdrawn), reserved(7)];
        assert_eq!(verdict(votes), VoteVerdict::Withdrawn);
    }
}
