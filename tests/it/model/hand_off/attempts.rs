//! The steps of attempts and their callers that may happen next.

use super::{
    super::search::Heard,
    model::{Event, GatewayTask, Step},
    script::{Acquired, Script},
    state::{Mark, Mode, News, Phase, State},
    variant::Variant,
};

/// Collects the steps that may happen next.
pub(super) struct Transitions<'next, const ATTEMPTS: usize> {
    pub(super) from: &'next State<ATTEMPTS>,
    pub(super) variant: Variant,
    pub(super) modes: &'next [Mode; ATTEMPTS],
    pub(super) min_hold: bool,
    pub(super) to: &'next mut Vec<(Step, State<ATTEMPTS>)>,
}

// === impl Transitions ===

impl<const ATTEMPTS: usize> Transitions<'_, ATTEMPTS> {
    /// Adds a step of an attempt.
    pub(super) fn happens(
        &mut self,
        attempt: usize,
        event: Event,
        act: impl FnOnce(&mut State<ATTEMPTS>),
    ) {
        let mut state = *self.from;
        act(&mut state);
        self.to.push((Step::Attempt(attempt, event), state));
    }

    /// Adds a step of a gateway.
    pub(super) fn works(
        &mut self,
        gateway: usize,
        task: GatewayTask,
        act: impl FnOnce(&mut State<ATTEMPTS>),
    ) {
        let mut state = *self.from;
        act(&mut state);
        self.to.push((Step::Gateway(gateway, task), state));
    }

    /// Adds a step of an attempt in which something is lost, if the bounds allow a loss.
    fn is_lost(&mut self, attempt: usize, event: Event, act: impl FnOnce(&mut State<ATTEMPTS>)) {
        if self.from.faults.losses > 0 {
            self.happens(attempt, event, |state| {
                state.faults.losses -= 1;
                act(state);
            });
        }
    }

    /// Adds the steps in which a gateway runs a script, whose answer is heard or lost.
    pub(super) fn runs(
        &mut self,
        gateway: usize,
        step: impl Fn(Heard) -> Step,
        act: impl Fn(&mut Script<'_, ATTEMPTS>),
    ) {
        for heard in [true, false] {
            if heard || self.from.faults.losses > 0 {
                let mut state = *self.from;
                state.faults.losses -= u8::from(!heard);
                act(&mut self.script(&mut state, gateway, heard));
                self.to.push((step(Heard(heard)), state));
            }
        }
    }

    /// Adds the steps in which the gateway of an attempt runs a script for it.
    fn runs_for(
        &mut self,
        attempt: usize,
        event: fn(Heard) -> Event,
        act: impl Fn(&mut Script<'_, ATTEMPTS>),
    ) {
        let step = |heard| Step::Attempt(attempt, event(heard));
        self.runs(State::<ATTEMPTS>::gateway_of(attempt), step, act);
    }

    /// A script that a gateway is about to run.
    fn script<'state>(
        &'state self,
        state: &'state mut State<ATTEMPTS>,
        me: usize,
        heard: bool,
    ) -> Script<'state, ATTEMPTS> {
        Script {
            state,
            variant: self.variant,
            modes: self.modes,
            min_hold: self.min_hold,
            me,
            heard,
        }
    }

    pub(super) fn at_attempt(&mut self, attempt: usize) {
        let (now, from) = (self.from.attempts[attempt], self.from);
        let gateway = State::<ATTEMPTS>::gateway_of(attempt);
        if now.marks.has(Mark::Copy) {
            let mut state = *from;
            state.attempts[attempt].marks.remove(Mark::Copy);
            self.script(&mut state, gateway, false)
                .acquire(attempt, false);
            // The late copy makes its gateway count as alive again, so the gateway may cost the others one more
            // unconfirmed grant.
            state.gateways[gateway].wasted = 0;
            self.to
                .push((Step::Attempt(attempt, Event::CopyArrives), state));
            self.happens(attempt, Event::CopyVanishes, |state| {
                state.attempts[attempt].marks.remove(Mark::Copy);
            });
        }
        if now.phase == Phase::Holding {
            for through in (0..2).filter(|&through| from.gateways[through].runs) {
                let step = |heard| Step::Attempt(attempt, Event::Releases(through, heard));
                self.runs(through, step, |script| {
                    script.state.finish(attempt, Phase::Over);
                    script.release(Some(attempt));
                });
            }
        }
        if !from.gateways[gateway].runs {
            return;
        }
        match now.phase {
            Phase::NotCome => self.happens(attempt, Event::Comes, |state| {
                state.attempts[attempt].phase = Phase::Asking;
            }),
            Phase::Asking => self.asks(attempt),
            Phase::Waiting => self.waits(attempt),
            Phase::Confirming => self.confirms(attempt),
            Phase::Leaving => self.leaves(attempt),
            Phase::GivingBack => self.gives_back(attempt),
            Phase::Holding | Phase::Over => {}
        }
        if !now.marks.has(Mark::HungUp) && (now.has_place() || now.phase == Phase::Holding) {
            self.happens(attempt, Event::HangsUp, |state| {
                let phase = match state.attempts[attempt].phase {
                    Phase::Waiting => Phase::Leaving,
                    Phase::Holding => Phase::GivingBack,
                    other => other,
                };
                state.attempts[attempt].marks.add(Mark::HungUp);
                state.attempts[attempt].phase = phase;
            });
        }
        self.hears(attempt);
    }

    fn asks(&mut self, attempt: usize) {
        let again = self.from.attempts[attempt].marks.has(Mark::SentAgain);
        self.runs_for(attempt, Event::Acquires, |script| {
            let acquired = script.acquire(attempt, again);
            if !script.heard {
                return;
            }
            let its = &mut script.state.attempts[attempt];
            let hung_up = its.marks.has(Mark::HungUp);
            if script.variant == Variant::SentAgainForgotten {
                its.marks.remove(Mark::SentAgain);
            }
            match acquired {
                Acquired::Granted => script.state.answer(attempt),
                Acquired::Queued if hung_up => its.phase = Phase::Leaving,
                Acquired::Queued => its.phase = Phase::Waiting,
                Acquired::Withdrawn => script.state.finish(attempt, Phase::Over),
            }
        });
        if !again && self.from.faults.copies > 0 {
            self.happens(attempt, Event::SendsAgain, |state| {
                state.faults.copies -= 1;
                state.attempts[attempt].marks.add(Mark::SentAgain);
                state.attempts[attempt].marks.add(Mark::Copy);
            });
        }
        self.is_uncertain(attempt);
    }

    fn waits(&mut self, attempt: usize) {
        let news = self.from.attempts[attempt].news;
        for over in [false, true] {
            let phase = match (news, over) {
                (News::Granted, false) => Phase::Confirming,
                (News::Forgotten, false) => Phase::Asking,
                (News::Forgotten, true) => Phase::Leaving,
                (News::Granted, true) | (News::Nothing, _) => continue,
            };
            self.happens(attempt, Event::LooksAtNews { over }, |state| {
                state.attempts[attempt].phase = phase;
                state.attempts[attempt].news = News::Nothing;
            });
        }
        self.happens(attempt, Event::WaitIsOver, |state| {
            state.attempts[attempt].phase = Phase::Leaving;
        });
        if news != News::Nothing || self.variant == Variant::NoRounds {
            return;
        }
        if self.from.is_held_by(attempt) {
            self.happens(attempt, Event::IsFoundHolding, |state| {
                state.attempts[attempt].news = News::Granted;
            });
        }
        if !self.from.queue.has(attempt) {
            self.happens(attempt, Event::IsFoundMissing, |state| {
                state.attempts[attempt].news = News::Forgotten;
            });
        }
    }

    fn confirms(&mut self, attempt: usize) {
        self.runs_for(attempt, Event::Confirms, |script| {
            let in_time = script.confirm(attempt);
            if script.heard && in_time {
                script.state.answer(attempt);
            } else if script.heard {
                script.state.attempts[attempt].phase = Phase::Asking;
            }
        });
        self.is_uncertain(attempt);
    }

    fn leaves(&mut self, attempt: usize) {
        self.runs_for(attempt, Event::Leaves, |script| {
            let holds = script.leave(attempt);
            if script.heard && holds {
                script.state.answer(attempt);
            } else if script.heard {
                script.state.finish(attempt, Phase::Over);
            }
        });
        self.is_uncertain(attempt);
    }

    fn gives_back(&mut self, attempt: usize) {
        self.runs_for(attempt, Event::GivesBack, |script| {
            if script.variant != Variant::NotGivenBack {
                script.give_back(attempt);
            }
            if script.heard {
                script.state.finish(attempt, Phase::Over);
            }
        });
    }

    /// Adds the step in which a command is not answered in time, so that the reaper releases what the attempt may hold.
    fn is_uncertain(&mut self, attempt: usize) {
        self.is_lost(attempt, Event::IsUncertain, |state| {
            state.finish(attempt, Phase::GivingBack);
        });
    }

    /// Adds the steps in which messages on their way to the gateway of the attempt arrive or are lost.
    fn hears(&mut self, attempt: usize) {
        let marks = self.from.attempts[attempt].marks;
        for old in [false, true] {
            let word = Event::word(old);
            if !marks.has(word) {
                continue;
            }
            self.happens(attempt, Event::HearsWord { old }, |state| {
                let it = &mut state.attempts[attempt];
                it.marks.remove(word);
                match it.phase {
                    Phase::Asking | Phase::Waiting if it.news == News::Nothing => {
                        it.news = News::Granted;
                    }
                    _ if it.has_place() || old => {}
                    _ => it.marks.add(Mark::Orphan),
                }
            });
            self.is_lost(attempt, Event::LosesWord { old }, |state| {
                state.attempts[attempt].marks.remove(word);
            });
        }
        if marks.has(Mark::Orphan) {
            let gateway = State::<ATTEMPTS>::gateway_of(attempt);
            let mut state = *self.from;
            state.attempts[attempt].marks.remove(Mark::Orphan);
            self.script(&mut state, gateway, true)
                .give_back_unheard(attempt);
            self.to
                .push((Step::Attempt(attempt, Event::GivesBackOrphan), state));
        }
    }
}
