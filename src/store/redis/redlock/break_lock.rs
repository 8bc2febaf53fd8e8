//! Break, over a quorum: looks at who has the lock, and ends exactly that at every node.

use crate::{
    lock::{LockName, Meant},
    store::{StoreError, Unavailability, breaks::Breaking},
};

use super::{
    answers::Answers,
    calls::{Struck, Target},
    combined::unknown,
    nonce::Nonce,
    shared::Shared,
    sweeper::Swept,
    view::Holding,
};

/// How often it is looked again if the lock has passed on between the look and the break.
const LOOKS: usize = 32;

// === impl Shared ===

impl Shared {
    pub(super) async fn break_lock(
        &self,
        name: &LockName,
        meant: Option<Meant>,
    ) -> Result<Breaking, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        for _ in 0..LOOKS {
            let view = self.known(&keys).await?;
            let (holding, known) = match view.holding() {
                Holding::Unknown => (view.suspected(), false),
                holding => (holding, true),
            };
            let (target, found) = match &holding {
                Holding::Lease(token, lease) => (Target::Lease(*token), Meant::Lease(lease.fence)),
                Holding::Foreign(_, mark) => (Target::Foreign(*mark), Meant::Foreign(*mark)),
                Holding::Nobody => return Ok(Breaking::NotHeld),
                Holding::Unknown => return Err(not_known().into()),
            };
            let Some(holder) = holding.holder() else {
                return Ok(Breaking::NotHeld);
            };
            if meant.is_some_and(|meant| meant != found) {
                return if known {
                    Ok(Breaking::HolderChanged(holder))
                } else {
                    Err(not_known().into())
                };
            }
            let nonce = Nonce::random();
            let answers = self.quorum.ask(
                |node| node.break_lock(&keys, &nonce, &target),
                |answers| {
                    let strokes = Strokes::of(answers);
                    strokes.own >= majority || strokes.own + strokes.silent < majority
                },
            );
            let answers = answers.await;
            let strokes = Strokes::of(&answers);
            if strokes.own > 0 {
                self.hand_on(name).await;
            }
            if let Target::Lease(token) = &target
                && answers.nodes() - strokes.silent >= majority
            {
                for node in answers.others(Result::is_ok) {
                    self.sweeper.sweep(node, name, token, Swept::Lease(None));
                }
            }
            // Whoever releases it at the same time is told that he has if no break has a majority.
            if strokes.own >= majority {
                return Ok(Breaking::Broken(holder));
            }
            if strokes.may_have_ended_it(majority) {
                return Err(unknown(
                    &answers,
                    majority,
                    strokes.own > 0,
                    |missed, error| self.describe(missed, error),
                ));
            }
        }
        let reason = "the lock passes on faster than it can be broken".to_owned();
        Err(Unavailability::Refused(reason).into())
    }
}

fn not_known() -> Unavailability {
    Unavailability::TooFewNodes("it is not known who holds the lock".to_owned())
}

/// At how many nodes what has ended that which was to be broken.
#[derive(Debug, Default, PartialEq, Eq)]
struct Strokes {
    own: usize,
    /// Another break.
    others: usize,
    silent: usize,
}

// === impl Strokes ===

impl Strokes {
    fn of(answers: &Answers<Result<Struck, StoreError>>) -> Self {
        let count = |word: Struck| answers.count(|answer| *answer == Ok(word));
        Self {
            own: count(Struck::Broken),
            others: count(Struck::Ended),
            silent: answers.nodes() - answers.count(Result::is_ok),
        }
    }

    /// Whether this break has, given the nodes that have not answered, or it and others together, of which
    /// none may have a majority.
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
        let strokes = |own, others, silent| Strokes {
            own,
            others,
            silent,
        };
        assert!(strokes(1, 0, 1).may_have_ended_it(2));
        assert!(strokes(1, 1, 0).may_have_ended_it(2));
        assert!(strokes(0, 0, 2).may_have_ended_it(2));
        // It was released.
        assert!(!strokes(1, 0, 0).may_have_ended_it(2));
        assert!(!strokes(0, 2, 0).may_have_ended_it(2));
        assert!(!strokes(0, 0, 1).may_have_ended_it(2));
    }
}
