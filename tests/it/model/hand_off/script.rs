//! The scripts: each runs whole, as in `src/store/redis/lua`.

use super::{
    state::{Attempt, Holder, Lease, Mark, Marks, News, Phase, State},
    variant::Variant,
};

/// A script about to run, for a gateway.
pub(super) struct Script<'state, const ATTEMPTS: usize> {
    pub(super) state: &'state mut State<ATTEMPTS>,
    pub(super) variant: Variant,
    /// The gateway that runs it.
    pub(super) me: usize,
    /// Whether its answer arrives, and so the news that are in it.
    pub(super) heard: bool,
}

/// What acquire answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acquired {
    Granted,
    Queued,
    /// It was over before.
    Withdrawn,
}

// === impl Script ===

impl<const ATTEMPTS: usize> Script<'_, ATTEMPTS> {
    /// `acquire.lua`, of an attempt that is ready to wait. `late`: earlier copies may still come.
    pub(super) fn acquire(&mut self, attempt: usize, late: bool) -> Acquired {
        let barging = self.variant == Variant::Barging;
        if self.state.holder == Holder::Nobody && !barging {
            self.hand_over();
        }
        if self.state.is_held_by(attempt) {
            if late {
                self.remember(attempt);
            }
            self.settle(attempt);
            return Acquired::Granted;
        }
        if self.state.attempts[attempt].marks.has(Mark::Remembered) {
            return Acquired::Withdrawn;
        }
        if late {
            self.state.attempts[attempt].marks.add(Mark::Late);
        }
        if self.state.holder == Holder::Nobody {
            self.grant(attempt, Lease::Settled);
            if late {
                self.remember(attempt);
            }
            return Acquired::Granted;
        }
        if !self.state.queue.has(attempt) {
            self.state.queue.push(attempt);
        }
        let gateway = &mut self.state.gateways[self.me];
        if !gateway.counts_as_alive {
            gateway.counts_as_alive = true;
            self.lapsed(attempt);
        }
        Acquired::Queued
    }

    /// `confirm.lua`; whether it came in time.
    pub(super) fn confirm(&mut self, attempt: usize) -> bool {
        if self.state.is_held_by(attempt) {
            self.settle(attempt);
            return true;
        }
        self.variant == Variant::ConfirmedUnseen
    }

    /// `leave.lua`; whether the attempt holds the lock after all.
    pub(super) fn leave(&mut self, attempt: usize) -> bool {
        if self.state.holder == Holder::Nobody {
            // It may be the head itself, in the last moment.
            self.hand_over();
        }
        if self.state.is_held_by(attempt) {
            self.settle(attempt);
            return true;
        }
        // Where its place is lost, so is the knowledge of copies that may come.
        let is_lost = !self.state.queue.has(attempt);
        let forgets = is_lost && self.variant == Variant::LostPlaceNotRemembered;
        if (is_lost || self.marks(attempt).has(Mark::Late)) && !forgets {
            self.remember(attempt);
        }
        self.state.queue.remove(attempt);
        false
    }

    /// `give_back.lua`, by whoever knows that nobody waits for the attempt any more.
    pub(super) fn give_back(&mut self, attempt: usize) {
        self.remember(attempt);
        if self.state.is_held_by(attempt) {
            self.state.end_lease();
        } else {
            self.state.queue.remove(attempt);
        }
        if self.state.holder == Holder::Nobody {
            self.hand_over();
        }
    }

    /// `give_back.lua`, of a grant that word has come of and nobody waits for. Only of that grant, and
    /// only as long as its attempt has not heard of it.
    pub(super) fn give_back_unheard(&mut self, attempt: usize) {
        let heard =
            self.state.lease == Lease::Settled && self.variant != Variant::GivenBackThoughHeard;
        if self.state.is_held_by(attempt) && !heard {
            self.give_back(attempt);
        }
    }

    /// `release.lua`.
    pub(super) fn release(&mut self) {
        self.state.end_lease();
        self.hand_over();
    }

    /// `hand_over.lua`: passes the free lock to the first who lives, and clears away the dead before.
    pub(super) fn hand_over(&mut self) {
        loop {
            let mut queue = self.state.queue.iter();
            let next = match self.variant {
                Variant::LastComeFirstServed => queue.next_back(),
                _ => queue.next(),
            };
            let Some(next) = next else {
                return;
            };
            let theirs = State::<ATTEMPTS>::gateway_of(next);
            if !self.counts_as_alive(theirs) && self.variant != Variant::DeadKept {
                self.state.queue.remove(next);
                continue;
            }
            if theirs == self.me {
                self.grant(next, Lease::Told);
                self.remember_if_late(next);
                if self.heard {
                    self.tell(next);
                }
            } else {
                let lease = match self.variant {
                    Variant::NoProvisionalLimit => Lease::Unlimited,
                    _ => Lease::Provisional,
                };
                self.grant(next, lease);
                // Nobody hears what is said to one that has died.
                if self.state.gateways[theirs].runs {
                    self.marks(next).add(Mark::Word);
                }
            }
            return;
        }
    }

    /// Whoever asks is alive.
    fn counts_as_alive(&self, gateway: usize) -> bool {
        gateway == self.me || self.state.gateways[gateway].counts_as_alive
    }

    fn grant(&mut self, attempt: usize, lease: Lease) {
        let before = self
            .state
            .queue
            .iter()
            .take_while(|&other| other != attempt);
        let overtaken = before.into_iter().any(|other| {
            let gateway = State::<ATTEMPTS>::gateway_of(other);
            self.counts_as_alive(gateway) && self.state.attempts[other].has_place()
        });
        self.state.overtaken |= overtaken;
        self.state.queue.remove(attempt);
        self.state.holder = Holder::Attempt(u8::try_from(attempt).expect("there are few"));
        self.state.lease = lease;
    }

    /// `settle.lua`: the grant lasts its TTL, and its attempt has heard of it.
    fn settle(&mut self, attempt: usize) {
        if self.state.lease != Lease::Settled {
            self.state.lease = Lease::Settled;
            self.remember_if_late(attempt);
        }
    }

    /// The answer says that an attempt which waits at this gateway holds the lock.
    fn tell(&mut self, attempt: usize) {
        let state = &mut *self.state;
        match state.attempts[attempt].phase {
            Phase::Waiting if state.attempts[attempt].news == News::Nothing => {
                state.answer(attempt);
            }
            // It is about to ask the store, which says so.
            Phase::Asking | Phase::Waiting | Phase::Confirming | Phase::Leaving => {}
            Phase::NotCome | Phase::Holding | Phase::GivingBack | Phase::Over => {
                state.attempts[attempt].marks.add(Mark::Orphan);
            }
        }
    }

    /// The gateway did not count as alive: others who wait through it may have been cleared away.
    fn lapsed(&mut self, but: usize) {
        if !self.heard {
            return;
        }
        let me = self.me;
        for (other, attempt) in self.state.attempts.iter_mut().enumerate() {
            if other != but && State::<ATTEMPTS>::gateway_of(other) == me {
                attempt.forget();
            }
        }
    }

    fn remember(&mut self, attempt: usize) {
        if self.variant != Variant::NotRemembered {
            self.marks(attempt).add(Mark::Remembered);
        }
    }

    fn remember_if_late(&mut self, attempt: usize) {
        if self.marks(attempt).has(Mark::Late) {
            self.remember(attempt);
        }
    }

    fn marks(&mut self, attempt: usize) -> &mut Marks {
        &mut self.state.attempts[attempt].marks
    }
}

// === impl State ===

impl<const ATTEMPTS: usize> State<ATTEMPTS> {
    /// The lease goes to the caller; if that one has gone, back.
    pub(super) fn answer(&mut self, attempt: usize) {
        let phase = if self.attempts[attempt].marks.has(Mark::HungUp) {
            Phase::GivingBack
        } else {
            Phase::Holding
        };
        self.finish(attempt, phase);
    }
}

// === impl Attempt ===

impl Attempt {
    /// The store may have lost its place.
    pub(super) fn forget(&mut self) {
        if matches!(self.phase, Phase::Asking | Phase::Waiting) && self.news == News::Nothing {
            self.news = News::Forgotten;
        }
    }
}
