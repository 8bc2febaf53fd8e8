//! The scripts: each runs whole, as in `src/store/redis/lua`.

use super::{
    state::{Attempt, Lease, Mark, Marks, Mode, News, Phase, State},
    variant::Variant,
};

/// A script about to run, for a gateway.
pub(super) struct Script<'state, const ATTEMPTS: usize> {
    pub(super) state: &'state mut State<ATTEMPTS>,
    pub(super) variant: Variant,
    pub(super) modes: &'state [Mode; ATTEMPTS],
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
        let reader = matches!(self.modes[attempt], Mode::Shared(_));
        let barging = match self.variant {
            Variant::Barging => true,
            Variant::BargingReader => reader && !self.state.is_free(),
            _ => false,
        };
        if !barging {
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
        if (barging || self.state.queue.is_empty()) && self.admits(attempt) {
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
        // It may be the head itself, in the last moment.
        self.hand_over();
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
        if self.variant != Variant::HeadLeavesAlone {
            self.hand_over();
        }
        self.look_back();
        false
    }

    /// `give_back.lua`, by whoever knows that nobody waits for the attempt any more.
    pub(super) fn give_back(&mut self, attempt: usize) {
        self.remember(attempt);
        if self.state.is_held_by(attempt) {
            self.state.end_lease(attempt);
        } else {
            self.state.queue.remove(attempt);
        }
        self.hand_over();
        self.look_back();
    }

    /// `give_back.lua`, of a grant that word has come of and nobody waits for. Only of that grant, and
    /// only as long as its attempt has not heard of it.
    pub(super) fn give_back_unheard(&mut self, attempt: usize) {
        let heard = self.state.leases[attempt] == Some(Lease::Settled)
            && self.variant != Variant::GivenBackThoughHeard;
        if self.state.is_held_by(attempt) && !heard {
            self.give_back(attempt);
        }
    }

    /// `release.lua`, of an attempt or of somebody else.
    pub(super) fn release(&mut self, attempt: Option<usize>) {
        match attempt {
            Some(attempt) => self.state.end_lease(attempt),
            None => self.state.somebody_else = false,
        }
        self.hand_over();
        self.look_back();
    }

    /// `advance.lua`.
    pub(super) fn advance(&mut self) {
        self.hand_over();
        self.look_back();
    }

    /// No script leaves a head that can be granted the lock.
    fn look_back(&mut self) {
        let head = self.state.queue.iter().next();
        self.state.passed_by |= head.is_some_and(|head| {
            let gateway = State::<ATTEMPTS>::gateway_of(head);
            self.counts_as_alive(gateway) && self.state.admits(self.modes, head)
        });
    }

    fn admits(&self, attempt: usize) -> bool {
        let one_more = self.variant == Variant::OneTooMany;
        match self.modes[attempt] {
            Mode::Shared(limit) if one_more => {
                let mut modes = *self.modes;
                modes[attempt] = Mode::Shared(limit + 1);
                self.state.admits(&modes, attempt)
            }
            _ => self.state.admits(self.modes, attempt),
        }
    }

    /// `hand_over.lua`: passes the lock to the first who lives, as long as that one may hold it beside those
    /// who do, and clears away the dead before.
    fn hand_over(&mut self) {
        loop {
            let alone =
                |attempt| self.state.is_held_by(attempt) && self.modes[attempt] == Mode::Exclusive;
            if self.state.somebody_else || (0..ATTEMPTS).any(alone) {
                return;
            }
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
            if !self.admits(next) {
                return;
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
            if self.variant == Variant::OneAtATime {
                return;
            }
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
        let slot = match (self.modes[attempt], self.variant) {
            (Mode::Exclusive, _) => None,
            (Mode::Shared(_), Variant::SlotByCount) => u8::try_from(self.state.holders()).ok(),
            (Mode::Shared(limit), _) => {
                (0..limit).find(|slot| !self.state.slots.contains(&Some(*slot)))
            }
        };
        self.state.leases[attempt] = Some(lease);
        self.state.slots[attempt] = slot;
    }

    /// `settle.lua`: the grant lasts its TTL, and its attempt has heard of it.
    fn settle(&mut self, attempt: usize) {
        if self.state.leases[attempt] != Some(Lease::Settled) {
            self.state.leases[attempt] = Some(Lease::Settled);
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
