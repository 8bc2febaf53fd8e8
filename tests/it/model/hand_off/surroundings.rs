//! How leases end by themselves, what gateways do, and what becomes of them.

use super::{
    happening::{Transitions, script},
    model::{Event, GatewayTask, Step},
    state::{Attempt, Holder, Lease, Mark, News, Phase, State},
    variant::Variant,
};

// === impl Transitions ===

impl<const ATTEMPTS: usize> Transitions<'_, ATTEMPTS> {
    /// How its lease may end by itself.
    pub(super) fn at_lease(&mut self, attempt: usize) {
        if !self.from.is_held_by(attempt) {
            return;
        }
        let (now, lease) = (self.from.attempts[attempt], self.from.lease);
        let runs = self.from.its_gateway(attempt).runs;
        let provisional = lease == Lease::Provisional;
        if now.phase == Phase::Holding {
            return self.happens(attempt, Event::Expires, |state, _| {
                state.finish(attempt, Phase::Over);
                state.end_lease();
            });
        }
        let word = now.marks.has(Mark::Word) || now.marks.has(Mark::Orphan);
        let is_over = now.phase == Phase::Over && !word;
        if provisional && is_over {
            self.happens(attempt, Event::EndsUnconfirmed, |state, _| {
                state.end_lease();
                let gateway = &mut state.gateways[State::<ATTEMPTS>::gateway_of(attempt)];
                if !gateway.runs {
                    // It counts as alive no longer than the grant lasts.
                    gateway.counts_as_alive = false;
                    gateway.wasted += 1;
                }
            });
        } else if is_over && !runs && lease != Lease::Unlimited {
            self.happens(attempt, Event::EndsAbandoned, |state, _| state.end_lease());
        } else if self.from.faults.early > 0 {
            self.happens(attempt, Event::EndsEarly, |state, _| {
                state.faults.early -= 1;
                state.end_lease();
            });
        }
    }

    pub(super) fn at_gateway(&mut self, gateway: usize) {
        let (now, from) = (self.from.gateways[gateway], self.from);
        if !now.runs {
            if now.counts_as_alive {
                self.works(gateway, GatewayTask::IsForgotten, |state, _| {
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
        if timers && awaited && from.holder == Holder::Nobody && !from.queue.is_empty() {
            for heard in [true, false] {
                if heard || from.faults.losses > 0 {
                    self.works(
                        gateway,
                        GatewayTask::Advances { heard },
                        |state, variant| {
                            state.faults.losses -= u8::from(!heard);
                            script(state, variant, gateway, heard).hand_over();
                        },
                    );
                }
            }
        }
        let hears = attempts.any(|it| it.phase == Phase::Waiting && it.news == News::Nothing);
        if hears && !now.counts_as_alive && self.variant != Variant::NoRounds {
            self.works(gateway, GatewayTask::FindsItselfDead, |state, _| {
                for attempt in (0..ATTEMPTS).filter(here) {
                    state.attempts[attempt].forget();
                }
            });
        }
        if from.faults.deaths > 0 {
            self.works(gateway, GatewayTask::Dies, |state, _| {
                state.faults.deaths -= 1;
                state.die(gateway);
            });
        }
        if from.faults.early > 0 && now.counts_as_alive {
            self.works(gateway, GatewayTask::IsTakenForDead, |state, _| {
                state.faults.early -= 1;
                state.gateways[gateway].counts_as_alive = false;
            });
        }
    }

    pub(super) fn at_somebody_else(&mut self) {
        let from = self.from;
        if from.holder != Holder::SomebodyElse {
            return;
        }
        for through in (0..2).filter(|&through| from.gateways[through].runs) {
            for heard in [true, false] {
                if heard || from.faults.losses > 0 {
                    let mut state = *from;
                    state.faults.losses -= u8::from(!heard);
                    script(&mut state, self.variant, through, heard).release();
                    let step = Step::SomebodyElseReleases { through, heard };
                    self.to.push((step, state));
                }
            }
        }
        let mut state = *from;
        state.holder = Holder::Nobody;
        self.to.push((Step::SomebodyElseExpires, state));
    }
}

// === impl State ===

impl<const ATTEMPTS: usize> State<ATTEMPTS> {
    /// What a gateway knew is gone, and its callers with it. Who was answered a lease still has it.
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
