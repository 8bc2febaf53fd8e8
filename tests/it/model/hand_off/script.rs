//! The scripts: each runs whole, as in `src/store/redis/lua`.

use super::{
    state::{Attempt, Lease, Mark, Marks, Mode, News, Phase, State},
    variant::Variant,
};

/// A script that a gateway is about to run.
pub(super) struct Script<'state, const ATTEMPTS: usize> {
    pub(super) state: &'state mut State<ATTEMPTS>,
    pub(super) variant: Variant,
    pub(super) modes: &'state [Mode; ATTEMPTS],
    pub(super) min_hold: bool,
    /// The gateway that runs the script.
    pub(super) me: usize,
    /// Whether the answer arrives at the gateway, and so the news in it.
    pub(super) heard: bool,
}

/// Answer of `acquire.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acquired {
    Granted,
    Queued,
    /// The attempt was over before.
    Withdrawn,
}

// === impl Script ===

impl<const ATTEMPTS: usize> Script<'_, ATTEMPTS> {
    /// `acquire.lua`, for an attempt that may wait. `late`: earlier copies may still come.
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
        if self.state.is_owned_by(attempt, self.variant) {
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

    /// `confirm.lua`; returns whether the confirmation came in time.
    pub(super) fn confirm(&mut self, attempt: usize) -> bool {
        if self.state.is_owned_by(attempt, self.variant) {
            self.settle(attempt);
            return true;
        }
        self.variant == Variant::ConfirmedUnseen
    }

    /// `leave.lua`; returns whether the attempt holds the lock after all.
    pub(super) fn leave(&mut self, attempt: usize) -> bool {
        // The attempt may be the head itself, and be granted the lock at the last moment.
        self.hand_over();
        if self.state.is_owned_by(attempt, self.variant) {
            self.settle(attempt);
            return true;
        }
        // If the position is lost, the store has also lost the knowledge that copies of acquire may come.
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

    /// `give_back.lua`, for an attempt for which no caller waits any more.
    pub(super) fn give_back(&mut self, attempt: usize) {
        self.remember(attempt);
        if self.state.is_owned_by(attempt, self.variant) {
            self.state.end_lease(attempt);
        } else {
            self.state.queue.remove(attempt);
        }
        self.hand_over();
        self.look_back();
    }

    /// `give_back.lua`, for a grant of which a message came and for which no caller waits. Releases only that grant,
    /// and only as long as its attempt has not heard of it.
    pub(super) fn give_back_unheard(&mut self, attempt: usize) {
        let heard = self.state.leases[attempt] == Some(Lease::Settled)
            && self.variant != Variant::GivenBackThoughHeard;
        if self.state.is_owned_by(attempt, self.variant) && !heard {
            self.give_back(attempt);
        }
    }

    /// `release.lua`, for an attempt or for the holder that is none of the attempts.
    pub(super) fn release(&mut self, attempt: Option<usize>) {
        match attempt {
            Some(attempt) if self.min_hold => {
                self.state.resting[attempt] = true;
                if self.variant == Variant::RestsNot {
                    self.state.end_lease(attempt);
                } else {
                    self.state.leases[attempt] = Some(Lease::Resting);
                }
            }
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

    /// Records whether the script has left a head to which it could have granted the lock.
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

    /// `hand_over.lua`: grants the lock to the first waiters whose gateway lives, as long as each may hold it beside
    /// the present holders, and removes dead waiters before them.
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
                // A dead gateway hears no messages.
                if self.state.gateways[theirs].runs {
                    self.marks(next).add(Mark::Word);
                }
            }
            if self.variant == Variant::OneAtATime {
                return;
            }
        }
    }

    /// Whether a gateway counts as alive for this script. The gateway that runs the script does.
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

    /// Takes in the answer of the script, which says that an attempt of this gateway holds the lock.
    fn tell(&mut self, attempt: usize) {
        let state = &mut *self.state;
        match state.attempts[attempt].phase {
            Phase::Waiting if state.attempts[attempt].news == News::Nothing => {
                state.answer(attempt);
            }
            // The attempt is about to ask the store, which tells it of the grant.
            Phase::Asking | Phase::Waiting | Phase::Confirming | Phase::Leaving => {}
            Phase::NotCome | Phase::Holding | Phase::GivingBack | Phase::Over => {
                state.attempts[attempt].marks.add(Mark::Orphan);
            }
        }
    }

    /// Tells the other waiters of the gateway that the store may have removed them, because the gateway did not count
    /// as alive.
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
    /// Answers the lease to the caller, or releases it if the caller has gone.
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
    /// Records that the store may have lost the position of the attempt.
    pub(super) fn forget(&mut self) {
        if matches!(self.phase, Phase::Asking | Phase::Waiting) && self.news == News::Nothing {
            self.news = News::Forgotten;
        }
    }
}
