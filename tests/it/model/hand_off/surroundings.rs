//! Leases that end by themselves, and the steps of gateways.

use super::{
    attempts::Transitions,
    model::{Event, GatewayTask, Step},
    state::{Attempt, Lease, Mark, Mode, News, Phase, State},
    variant::Variant,
};

// === impl Transitions ===

impl<const ATTEMPTS: usize> Transitions<'_, ATTEMPTS> {
    /// Adds the steps in which the lease of an attempt ends by itself.
    pub(super) fn at_lease(&mut self, attempt: usize) {
        if self.from.resting[attempt] {
            return self.happens(attempt, Event::RestEnds, |state| {
                state.resting[attempt] = false;
                if state.leases[attempt] == Some(Lease::Resting) {
                    state.end_lease(attempt);
                }
            });
        }
        let Some(lease) = self.from.leases[attempt] else {
            return;
        };
        let now = self.from.attempts[attempt];
        let runs = self.from.its_gateway(attempt).runs;
        let provisional = lease == Lease::Provisional;
        if now.phase == Phase::Holding {
            let (variant, modes) = (self.variant, self.modes);
            return self.happens(attempt, Event::Expires, |state| {
                state.finish(attempt, Phase::Over);
                state.end_lease(attempt);
                let beside = (0..ATTEMPTS)
                    .find(|&other| state.is_held_by(other) && modes[other] != Mode::Exclusive);
                if variant == Variant::ExpiryEndsTwo
                    && let Some(beside) = beside
                {
                    state.end_lease(beside);
                }
            });
        }
        let word = now.marks.has(Mark::Word) || now.marks.has(Mark::Orphan);
        let is_over = now.phase == Phase::Over && !word;
        if provisional && is_over {
            self.happens(attempt, Event::EndsUnconfirmed, |state| {
                state.end_lease(attempt);
                let its = State::<ATTEMPTS>::gateway_of(attempt);
                // Leases that are granted together end together.
                let beside = (0..ATTEMPTS).any(|other| {
                    State::<ATTEMPTS>::gateway_of(other) == its
                        && state.leases[other] == Some(Lease::Provisional)
                });
                let gateway = &mut state.gateways[its];
                if !gateway.runs {
                    // A dead gateway counts as alive no longer than its grant lasts.
                    gateway.counts_as_alive = false;
                    gateway.wasted += u8::from(!beside);
                }
            });
        } else if is_over && !runs && lease != Lease::Unlimited {
            self.happens(attempt, Event::EndsAbandoned, |state| {
                state.end_lease(attempt);
            });
        } else if self.from.faults.early > 0 {
            self.happens(attempt, Event::EndsEarly, |state| {
                state.faults.early -= 1;
                state.end_lease(attempt);
            });
        }
    }

    pub(super) fn at_gateway(&mut self, gateway: usize) {
        let (now, from) = (self.from.gateways[gateway], self.from);
        if !now.runs {
            if now.counts_as_alive {
                self.works(gateway, GatewayTask::IsForgotten, |state| {
                    state.gateways[gateway].counts_as_alive = false;
                });
            }
            return;
        }
        let here = |attempt: &usize| State::<ATTEMPTS>::gateway_of(*attempt) == gateway;
        let mut attempts = (0..ATTEMPTS)
            .filter(here)
            .map(|attempt| from.attempts[attempt]);
        let awaited = attempts.clone().any(Attempt::has_place);
        let timers = self.variant != Variant::NoTimers;
        let head = from.queue.iter().next();
        let due = head.is_some_and(|head| from.is_free() || from.admits(self.modes, head));
        if timers && awaited && due {
            let step = |heard| Step::Gateway(gateway, GatewayTask::Advances(heard));
            self.runs(gateway, step, |script| {
                script.advance();
            });
        }
        let hears = attempts.any(|it| it.phase == Phase::Waiting && it.news == News::Nothing);
        if hears && !now.counts_as_alive && self.variant != Variant::NoRounds {
            self.works(gateway, GatewayTask::FindsItselfDead, |state| {
                for attempt in (0..ATTEMPTS).filter(here) {
                    state.attempts[attempt].forget();
                }
            });
        }
        if from.faults.deaths > 0 {
            self.works(gateway, GatewayTask::Dies, |state| {
                state.faults.deaths -= 1;
                state.die(gateway);
            });
        }
        if from.faults.early > 0 && now.counts_as_alive {
            self.works(gateway, GatewayTask::IsTakenForDead, |state| {
                state.faults.early -= 1;
                state.gateways[gateway].counts_as_alive = false;
            });
        }
    }

    pub(super) fn at_somebody_else(&mut self) {
        let from = self.from;
        if !from.somebody_else {
            return;
        }
        for through in (0..2).filter(|&through| from.gateways[through].runs) {
            let step = |heard| Step::SomebodyElseReleases(through, heard);
            self.runs(through, step, |script| script.release(None));
        }
        let mut state = *from;
        state.somebody_else = false;
        self.to.push((Step::SomebodyElseExpires, state));
    }
}

// === impl State ===

impl<const ATTEMPTS: usize> State<ATTEMPTS> {
    /// Removes what a dead gateway knew, and its callers. A caller that was answered a lease still has it.
    fn die(&mut self, gateway: usize) {
        self.gateways[gateway].runs = false;
        for attempt in (0..ATTEMPTS).filter(|&it| Self::gateway_of(it) == gateway) {
            let marks = &mut self.attempts[attempt].marks;
            for mark in [Mark::Word, Mark::OldWord, Mark::Orphan] {
                marks.remove(mark);
            }
            if self.attempts[attempt].phase != Phase::Holding {
                self.finish(attempt, Phase::Over);
            }
        }
    }
}
