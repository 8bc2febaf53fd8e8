//! The steps of the hand-off that may happen next, and the states that must not be reached.

use super::{
    super::search::{Heard, Model},
    attempts::Transitions,
    state::{Faults, Mark, Mode, Phase, State},
    variant::Variant,
};

/// The protocol of the hand-off, with bounds that limit its states.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandOff<const ATTEMPTS: usize> {
    pub(super) variant: Variant,
    /// How each attempt wants to hold the lock.
    pub(super) modes: [Mode; ATTEMPTS],
    /// Whether each release comes before the minimum hold of the lease is over.
    pub(super) min_hold: bool,
    pub(super) faults: Faults,
}

/// One step of the model.
#[derive(Debug, Clone, Copy)]
#[expect(
    dead_code,
    reason = "whoever reads the way to what is wrong reads them"
)]
pub(super) enum Step {
    /// A step of an attempt.
    Attempt(usize, Event),
    /// A step of a gateway.
    Gateway(usize, GatewayTask),
    /// A holder that is none of the attempts releases the lock through a gateway; the answer may be lost.
    SomebodyElseReleases(usize, Heard),
    /// The lease of the holder that is none of the attempts expires.
    SomebodyElseExpires,
}

/// A step of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Comes,
    /// A script runs. If its answer is lost, the gateway asks for it again.
    Acquires(Heard),
    Confirms(Heard),
    Leaves(Heard),
    GivesBack(Heard),
    /// Acquire is sent again while an earlier copy is on its way.
    SendsAgain,
    /// The earlier copy of acquire arrives.
    CopyArrives,
    CopyVanishes,
    /// A command of the attempt is not answered in time.
    IsUncertain,
    /// A message about its grant arrives at its gateway; `old`: that grant is over.
    HearsWord {
        old: bool,
    },
    LosesWord {
        old: bool,
    },
    /// The gateway looks at the news of the attempt; `over`: the wait is over as well.
    LooksAtNews {
        over: bool,
    },
    WaitIsOver,
    HangsUp,
    /// The gateway releases a grant for which no caller waited when the message about it came.
    GivesBackOrphan,
    /// The caller releases the lease through this gateway.
    Releases(usize, Heard),
    /// The lease that its caller relies on ends.
    Expires,
    /// The minimum hold of a released lease is over.
    RestEnds,
    /// The grant ends before the caller has heard of it.
    EndsEarly,
    /// The provisional grant ends, and no attempt is left to confirm it.
    EndsUnconfirmed,
    /// The TTL ends a lease that a dead gateway has left.
    EndsAbandoned,
    /// Its gateway finds that the attempt holds the lock and was not told.
    IsFoundHolding,
    /// Its gateway finds that the attempt has no position in the queue.
    IsFoundMissing,
}

/// A step of a gateway, or a change of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatewayTask {
    /// The gateway passes on a lock whose lease has ended.
    Advances(Heard),
    /// The gateway finds in its round that it does not count as alive.
    FindsItselfDead,
    Dies,
    /// The store does not count a dead gateway as alive any more.
    IsForgotten,
    /// The store does not count a gateway as alive any more, although it lives.
    IsTakenForDead,
}

// === impl HandOff ===

impl<const ATTEMPTS: usize> Model for HandOff<ATTEMPTS> {
    type State = State<ATTEMPTS>;
    type Step = Step;

    fn beginning(&self) -> Self::State {
        State::beginning(self.faults)
    }

    fn next(&self, from: &Self::State, to: &mut Vec<(Step, Self::State)>) {
        let mut happening = Transitions {
            from,
            variant: self.variant,
            modes: &self.modes,
            min_hold: self.min_hold,
            to,
        };
        for attempt in 0..ATTEMPTS {
            happening.at_attempt(attempt);
            happening.at_lease(attempt);
        }
        for gateway in 0..2 {
            happening.at_gateway(gateway);
        }
        happening.at_somebody_else();
    }

    fn wrong(&self, state: &Self::State) -> Option<&'static str> {
        for attempt in 0..ATTEMPTS {
            let holds = state.attempts[attempt].phase == Phase::Holding;
            if holds && !state.is_held_by(attempt) {
                return Some("somebody lives by a lease that is not theirs");
            }
        }
        let holding = |&attempt: &usize| state.attempts[attempt].phase == Phase::Holding;
        for attempt in (0..ATTEMPTS).filter(holding) {
            let beside = (0..ATTEMPTS).filter(|&other| other != attempt && state.is_held_by(other));
            // A grant beside a rest is a mistake for an exclusive attempt, and where the rest was exclusive.
            let rests = (0..ATTEMPTS).filter(|&other| other != attempt && state.resting[other]);
            let is_alone = |it: usize| self.modes[it] == Mode::Exclusive;
            if rests
                .into_iter()
                .any(|rest| is_alone(rest) || is_alone(attempt))
            {
                return Some("a lock that rests is granted");
            }
            if self.modes[attempt] == Mode::Exclusive && beside.clone().count() > 0 {
                return Some("one who wants the lock alone is not alone");
            }
            let slots = beside.filter_map(|other| state.slots[other]);
            if slots
                .into_iter()
                .any(|slot| state.slots[attempt] == Some(slot))
            {
                return Some("two have one place");
            }
        }
        // Each limit was kept only at its own grant, so what always holds is the widest limit of the present holders.
        let counts = |&attempt: &usize| state.is_held_by(attempt) || state.resting[attempt];
        let limits = (0..ATTEMPTS).filter(counts);
        let widest = limits.map(|attempt| match self.modes[attempt] {
            Mode::Exclusive => 1,
            Mode::Shared(limit) => usize::from(limit),
        });
        if (0..ATTEMPTS).filter(counts).count() > widest.max().unwrap_or_default() {
            return Some("more hold the lock than any of them allows");
        }
        if state.overtaken {
            return Some("somebody was passed by");
        }
        if state.passed_by {
            return Some("the head could be granted the lock, and nobody looks");
        }
        let wasted = state.gateways.iter().any(|gateway| gateway.wasted > 1);
        wasted.then_some("a gateway that has died is waited for again")
    }

    fn is_calm(&self, step: Step) -> bool {
        match step {
            Step::Attempt(_, event) => match event {
                Event::Acquires(Heard(heard))
                | Event::Confirms(Heard(heard))
                | Event::Leaves(Heard(heard))
                | Event::GivesBack(Heard(heard))
                | Event::Releases(_, Heard(heard)) => heard,
                Event::LooksAtNews { over } => !over,
                Event::CopyArrives
                | Event::CopyVanishes
                | Event::HearsWord { .. }
                | Event::GivesBackOrphan
                | Event::EndsUnconfirmed
                | Event::RestEnds
                | Event::EndsAbandoned
                | Event::IsFoundHolding
                | Event::IsFoundMissing => true,
                Event::Comes
                | Event::SendsAgain
                | Event::IsUncertain
                | Event::LosesWord { .. }
                | Event::WaitIsOver
                | Event::HangsUp
                | Event::Expires
                | Event::EndsEarly => false,
            },
            Step::Gateway(_, work) => match work {
                GatewayTask::Advances(Heard(heard)) => heard,
                GatewayTask::FindsItselfDead | GatewayTask::IsForgotten => true,
                GatewayTask::Dies | GatewayTask::IsTakenForDead => false,
            },
            Step::SomebodyElseReleases(_, Heard(heard)) => heard,
            Step::SomebodyElseExpires => false,
        }
    }

    fn left_over(&self, state: &Self::State) -> Option<&'static str> {
        let waits = |phase| !matches!(phase, Phase::NotCome | Phase::Over);
        if state.attempts.iter().any(|attempt| waits(attempt.phase)) {
            return Some("somebody waits for ever");
        }
        if !state.is_free() {
            return Some("the lock is held by somebody who does not know");
        }
        let mut queue = state.queue.iter();
        let ghost = queue.any(|ticket| state.its_gateway(ticket).runs);
        ghost.then_some("a ticket is left that nobody stands behind")
    }
}

// === impl Event ===

impl Event {
    /// The message that must be on its way for this step to happen.
    pub(super) fn word(old: bool) -> Mark {
        if old { Mark::OldWord } else { Mark::Word }
    }
}
