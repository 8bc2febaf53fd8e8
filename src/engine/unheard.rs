//! Of which leases nobody has heard, although they were answered, as far as that can be known here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::time::{Duration, Instant};

use crate::lock::{KeeperId, TokenHash};

/// The answers by which this gateway gave away leases with an idempotency key. Cheap to clone.
///
/// A lease that was answered again may be given back only if nobody has heard of it: if each of its answers
/// was lost. Answers of other gateways are not known here, but the store tells with each answer
/// who kept the lease before, which is the answer before it. So where the answers from the first to the
/// last are all known here, there are no others.
#[derive(Debug, Clone, Default)]
pub(super) struct Unheard {
    leases: Arc<Mutex<Leases>>,
}

#[derive(Debug, Default)]
struct Leases {
    answered: HashMap<TokenHash, Answers>,
    /// How long the list may grow before what is over is struck off.
    sweep_at: usize,
}

/// The answers of one lease.
#[derive(Debug)]
struct Answers {
    /// In no order.
    given: Vec<Answer>,
    /// How many of them are on their way.
    on_their_way: usize,
    /// When the lease is over.
    until: Instant,
}

/// One of them, by the attempt that was answered, which is the keeper from then on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) keeper: KeeperId,
    pub(super) before: Before,
}

/// What came before an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing: the lease was new to everybody.
    Nothing,
    /// The answer to this keeper.
    Answer(KeeperId),
    /// Nobody knows.
    Unknown,
}

/// A list as short as this is not worth sweeping.
const SWEEP_FROM: usize = 1024;

// === impl Unheard ===

impl Unheard {
    /// An answer is on its way, of a lease with so long to live.
    pub(super) fn answered(&self, token: TokenHash, answer: Answer, expires_in: Duration) {
        let now = Instant::now();
        let mut leases = self.lock();
        let until = now + expires_in;
        let answers = leases.answered.entry(token).or_insert_with(|| Answers {
            given: Vec::new(),
            on_their_way: 0,
            until,
        });
        answers.given.push(answer);
        answers.on_their_way += 1;
        answers.until = answers.until.max(until);
        if leases.answered.len() > leases.sweep_at.max(SWEEP_FROM) {
            leases.answered.retain(|_, answers| answers.until > now);
            // Twice as many as live, so that sweeping costs a fixed share of answering.
            leases.sweep_at = 2 * leases.answered.len();
        }
    }

    /// Somebody has heard of the lease, so it is theirs.
    pub(super) fn heard(&self, token: &TokenHash) {
        self.lock().answered.remove(token);
    }

    /// An answer was lost. If it was the last one on its way and nobody has heard of the lease: who keeps it,
    /// unless somebody was answered at another gateway since.
    pub(super) fn lost(&self, token: &TokenHash) -> Option<KeeperId> {
        let mut leases = self.lock();
        let answers = leases.answered.get_mut(token)?;
        answers.on_their_way = answers.on_their_way.saturating_sub(1);
        (answers.on_their_way == 0)
            .then(|| answers.last_of_all())
            .flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Leases> {
        self.leases
            .lock()
            .expect("no code panics while it holds the list")
    }
}

// === impl Answers ===

impl Answers {
    /// The last of the answers, if they are all known from the first one on.
    fn last_of_all(&self) -> Option<KeeperId> {
        let is_followed = |answer: &&Answer| {
            let mut others = self.given.iter();
            others.any(|other| other.before == Before::Answer(answer.keeper))
        };
        let mut last = self.given.iter().filter(|answer| !is_followed(answer));
        let (Some(last), None) = (last.next(), last.next()) else {
            return None;
        };
        let mut at = last;
        for _ in &self.given {
            let before = match at.before {
                Before::Nothing => return Some(last.keeper),
                Before::Answer(before) => before,
                Before::Unknown => return None,
            };
            at = self.given.iter().find(|answer| answer.keeper == before)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Token;

    const TTL: Duration = Duration::from_secs(30);

    fn first(token: TokenHash) -> Answer {
        Answer {
            keeper: KeeperId::of_attempt(&token),
            before: Before::Nothing,
        }
    }

    fn after(answer: Answer) -> Answer {
        Answer {
            keeper: KeeperId::random(),
            before: Before::Answer(answer.keeper),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_of_the_answers_that_are_all_lost_keeps_the_lease() {
        let (unheard, token) = (Unheard::default(), Token::random().hash());
        let one = first(token);
        let two = after(one);
        let three = after(two);
        // As they come by here, which is not the order in which the store gave them.
        for answer in [three, one] {
            unheard.answered(token, answer, TTL);
        }
        assert_eq!(unheard.lost(&token), None, "one is on its way");
        assert_eq!(unheard.lost(&token), None, "the second is not known yet");
        unheard.answered(token, two, TTL);
        assert_eq!(unheard.lost(&token), Some(three.keeper));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_which_somebody_has_heard_is_theirs_whatever_is_lost_later() {
        let (unheard, token) = (Unheard::default(), Token::random().hash());
        let one = first(token);
        unheard.answered(token, one, TTL);
        unheard.heard(&token);
        unheard.answered(token, after(one), TTL);
        assert_eq!(unheard.lost(&token), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_known_here_may_have_been_heard() {
        for before in [Before::Unknown, Before::Answer(KeeperId::random())] {
            let (unheard, token) = (Unheard::default(), Token::random().hash());
            unheard.answered(token, first(token), TTL);
            let keeper = KeeperId::random();
            unheard.answered(token, Answer { keeper, before }, TTL);
            for _ in 0..2 {
                assert_eq!(unheard.lost(&token), None);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_grow_with_what_is_over() {
        let unheard = Unheard::default();
        for _ in 0..10 {
            for _ in 0..SWEEP_FROM {
                let token = Token::random().hash();
                unheard.answered(token, first(token), Duration::from_secs(1));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let listed = unheard.lock().answered.len();
        assert!(listed <= 2 * SWEEP_FROM, "{listed} are listed");
    }
}
