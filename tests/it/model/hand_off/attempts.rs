//! What attempts and their callers do, and what is done to them.

use super::{
    happening::{Transitions, script},
    model::Event,
    script::Acquired,
    state::{Mark, News, Phase, State},
    variant::Variant,
};

// === impl Transitions ===

impl<const ATTEMPTS: usize> Transitions<'_, ATTEMPTS> {
    pub(super) fn at_attempt(&mut self, attempt: usize) {
        let (now, from) = (self.from.attempts[attempt], self.from);
        let gateway = State::<ATTEMPTS>::gateway_of(attempt);
        if now.marks.has(Mark::Copy) {
            self.happens(attempt, Event::CopyArrives, |state, (variant, modes)| {
                state.attempts[attempt].marks.remove(Mark::Copy);
                script(state, (variant, modes), gateway, false).acquire(attempt, false);
                // What it says of the gateway that sent it costs the others once more.
                state.gateways[gateway].wasted = 0;
            });
            self.happens(attempt, Event::CopyVanishes, |state, _| {
                state.attempts[attempt].marks.remove(Mark::Copy);
            });
        }
        if now.phase == Phase::Holding {
            for through in 0..2 {
                self.releases(attempt, through);
            }
        }
        if !from.gateways[gateway].runs {
            return;
        }
        match now.phase {
            Phase::NotCome => self.happens(attempt, Event::Comes, |state, _| {
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
            self.happens(attempt, Event::HangsUp, |state, _| {
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
        let gateway = State::<ATTEMPTS>::gateway_of(attempt);
        let again = self.from.attempts[attempt].marks.has(Mark::SentAgain);
        for heard in [true, false] {
            self.may_be_lost(
                attempt,
                Event::Acquires { heard },
                heard,
                |state, (variant, modes)| {
                    let acquired =
                        script(state, (variant, modes), gateway, heard).acquire(attempt, again);
                    if !heard {
                        return;
                    }
                    let marks = &mut state.attempts[attempt].marks;
                    let hung_up = marks.has(Mark::HungUp);
                    if variant == Variant::SentAgainForgotten {
                        marks.remove(Mark::SentAgain);
                    }
                    match acquired {
                        Acquired::Granted => state.answer(attempt),
                        Acquired::Queued if hung_up => {
                            state.attempts[attempt].phase = Phase::Leaving;
                        }
                        Acquired::Queued => state.attempts[attempt].phase = Phase::Waiting,
                        Acquired::Withdrawn => state.finish(attempt, Phase::Over),
                    }
                },
            );
        }
        if !again && self.from.faults.copies > 0 {
            self.happens(attempt, Event::SendsAgain, |state, _| {
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
            self.happens(attempt, Event::LooksAtNews { over }, |state, _| {
                state.attempts[attempt].phase = phase;
                state.attempts[attempt].news = News::Nothing;
            });
        }
        self.happens(attempt, Event::WaitIsOver, |state, _| {
            state.attempts[attempt].phase = Phase::Leaving;
        });
        if news != News::Nothing || self.variant == Variant::NoRounds {
            return;
        }
        if self.from.is_held_by(attempt) {
            self.happens(attempt, Event::IsFoundHolding, |state, _| {
                state.attempts[attempt].news = News::Granted;
            });
        }
        if !self.from.queue.has(attempt) {
            self.happens(attempt, Event::IsFoundMissing, |state, _| {
                state.attempts[attempt].news = News::Forgotten;
            });
        }
    }

    fn confirms(&mut self, attempt: usize) {
        let gateway = State::<ATTEMPTS>::gateway_of(attempt);
        for heard in [true, false] {
            self.may_be_lost(
                attempt,
                Event::Confirms { heard },
                heard,
                |state, (variant, modes)| {
                    let in_time = script(state, (variant, modes), gateway, heard).confirm(attempt);
                    if heard && in_time {
                        state.answer(attempt);
                    } else if heard {
                        state.attempts[attempt].phase = Phase::Asking;
                    }
                },
            );
        }
        self.is_uncertain(attempt);
    }

    fn leaves(&mut self, attempt: usize) {
        let gateway = State::<ATTEMPTS>::gateway_of(attempt);
        for heard in [true, false] {
            self.may_be_lost(
                attempt,
                Event::Leaves { heard },
                heard,
                |state, (variant, modes)| {
                    let holds = script(state, (variant, modes), gateway, heard).leave(attempt);
                    if heard && holds {
                        state.answer(attempt);
                    } else if heard {
                        state.finish(attempt, Phase::Over);
                    }
                },
            );
        }
        self.is_uncertain(attempt);
    }

    fn gives_back(&mut self, attempt: usize) {
        let gateway = State::<ATTEMPTS>::gateway_of(attempt);
        for heard in [true, false] {
            self.may_be_lost(
                attempt,
                Event::GivesBack { heard },
                heard,
                |state, (variant, modes)| {
                    if variant != Variant::NotGivenBack {
                        script(state, (variant, modes), gateway, heard).give_back(attempt);
                    }
                    if heard {
                        state.finish(attempt, Phase::Over);
                    }
                },
            );
        }
    }

    fn releases(&mut self, attempt: usize, through: usize) {
        if !self.from.gateways[through].runs {
            return;
        }
        for heard in [true, false] {
            let event = Event::Releases { through, heard };
            self.may_be_lost(attempt, event, heard, |state, (variant, modes)| {
                state.finish(attempt, Phase::Over);
                script(state, (variant, modes), through, heard).release(Some(attempt));
            });
        }
    }

    /// Its command was not answered in time: the reaper sees to it.
    fn is_uncertain(&mut self, attempt: usize) {
        self.may_be_lost(attempt, Event::IsUncertain, false, |state, _| {
            state.finish(attempt, Phase::GivingBack);
        });
    }

    /// What is on its way to its gateway.
    fn hears(&mut self, attempt: usize) {
        let marks = self.from.attempts[attempt].marks;
        for old in [false, true] {
            let word = Event::word(old);
            if !marks.has(word) {
                continue;
            }
            self.happens(attempt, Event::HearsWord { old }, |state, _| {
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
            self.may_be_lost(attempt, Event::LosesWord { old }, false, |state, _| {
                state.attempts[attempt].marks.remove(word);
            });
        }
        if marks.has(Mark::Orphan) {
            let gateway = State::<ATTEMPTS>::gateway_of(attempt);
            self.happens(
                attempt,
                Event::GivesBackOrphan,
                |state, (variant, modes)| {
                    state.attempts[attempt].marks.remove(Mark::Orphan);
                    script(state, (variant, modes), gateway, true).give_back_unheard(attempt);
                },
            );
        }
    }
}
