//! The answers of a lease with an idempotency key.
//!
//! A lease that was answered again may be given back only if none of its answers arrived. Answers of other gateways are
//! not known here, but the store tells with each answer who kept the lease before, which is the answer before it. So
//! where the answers from the first to the last are all known here, there are no others.

use tokio::time::Instant;

use crate::lock::KeeperId;

/// The answers of one lease.
#[derive(Debug, Default)]
pub(super) struct LeaseReplies {
    /// In no order.
    given: Vec<LeaseReply>,
    /// How many of them are on their way.
    on_their_way: usize,
    /// When the lease is over.
    until: Option<Instant>,
}

/// One of them, by the attempt that was answered, which is the keeper from then on.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseReply {
    pub(super) keeper: KeeperId,
    pub(super) before: PriorReply,
}

/// What came before an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PriorReply {
    /// Nothing: the lease was new to everybody.
    Nothing,
    /// The answer to this keeper.
    Reply(KeeperId),
    /// It is unknown.
    Unknown,
}

// === impl LeaseReplies ===

impl LeaseReplies {
    /// An answer is on its way, of a lease that lasts until then.
    pub(super) fn started(&mut self, reply: LeaseReply, until: Instant) {
        self.given.push(reply);
        self.on_their_way += 1;
        self.until = self.until.max(Some(until));
    }

    /// An answer was lost. If it was the last one on its way: returns the keeper of the lease, if all answers are known.
    pub(super) fn lost(&mut self) -> Option<KeeperId> {
        self.on_their_way = self.on_their_way.saturating_sub(1);
        let is_last = self.on_their_way == 0;
        is_last.then(|| self.last_known()).flatten()
    }

    pub(super) fn are_over(&self, now: Instant) -> bool {
        self.until <= Some(now)
    }

    /// The last of the answers, if they are all known from the first one on.
    fn last_known(&self) -> Option<KeeperId> {
        let is_followed = |answer: &&LeaseReply| {
            let mut others = self.given.iter();
            others.any(|other| other.before == PriorReply::Reply(answer.keeper))
        };
        let mut last = self.given.iter().filter(|answer| !is_followed(answer));
        let (Some(last), None) = (last.next(), last.next()) else {
            return None;
        };
        let mut at = last;
        for _ in &self.given {
            let before = match at.before {
                PriorReply::Nothing => return Some(last.keeper),
                PriorReply::Reply(before) => before,
                PriorReply::Unknown => return None,
            };
            at = self.given.iter().find(|answer| answer.keeper == before)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> LeaseReply {
        LeaseReply {
            keeper: KeeperId::random(),
            before: PriorReply::Nothing,
        }
    }

    fn after(answer: LeaseReply) -> LeaseReply {
        LeaseReply {
            keeper: KeeperId::random(),
            before: PriorReply::Reply(answer.keeper),
        }
    }

    #[test]
    fn the_last_of_the_answers_that_are_all_lost_keeps_the_lease() {
        let (mut replies, until) = (LeaseReplies::default(), Instant::now());
        let one = first();
        let two = after(one);
        let three = after(two);
        // As they come by here, which is not the order in which the store gave them.
        for answer in [three, one] {
            replies.started(answer, until);
        }
        assert_eq!(replies.lost(), None, "one is on its way");
        assert_eq!(replies.lost(), None, "the second is not known yet");
        replies.started(two, until);
        assert_eq!(replies.lost(), Some(three.keeper));
    }

    #[test]
    fn an_answer_that_is_not_known_here_may_have_been_heard() {
        for before in [PriorReply::Unknown, PriorReply::Reply(KeeperId::random())] {
            let (mut replies, until) = (LeaseReplies::default(), Instant::now());
            let keeper = KeeperId::random();
            replies.started(first(), until);
            replies.started(LeaseReply { keeper, before }, until);
            for _ in 0..2 {
                assert_eq!(replies.lost(), None);
            }
        }
    }
}
