//! State of the store, the gateways and the attempts.

use super::variant::Variant;

/// State of everything in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State<const ATTEMPTS: usize> {
    /// Whether a holder that is none of the attempts holds the lock exclusively; it releases the lock at some time.
    pub(super) somebody_else: bool,
    /// The lease of each attempt.
    pub(super) leases: [Option<Lease>; ATTEMPTS],
    /// The slot of each attempt that has a lease with a slot.
    pub(super) slots: [Option<u8>; ATTEMPTS],
    /// The attempts whose minimum hold is not over although their callers have released the lease, whatever the store
    /// knows of that.
    pub(super) resting: [bool; ATTEMPTS],
    pub(super) queue: Queue<ATTEMPTS>,
    pub(super) gateways: [Gateway; 2],
    pub(super) attempts: [Attempt; ATTEMPTS],
    pub(super) faults: Faults,
    /// Whether an attempt was granted the lock past a living attempt before it in the queue.
    pub(super) overtaken: bool,
    /// Whether a script has left a head in the queue to which it could have granted the lock.
    pub(super) passed_by: bool,
}

/// How an attempt wants to hold the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Exclusive,
    /// Shared, as long as fewer holders than this number hold the lock.
    Shared(u8),
}

/// How an attempt came to its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lease {
    /// The attempt was told when it asked, or has confirmed the lease.
    Settled,
    /// A script of its own gateway granted the lease and tells it in its answer.
    Told,
    /// A script of the other gateway granted the lease for a short time.
    Provisional,
    /// A script of the other gateway granted the lease for its whole TTL, which is a mistake.
    Unlimited,
    /// The caller has released the lease before its minimum hold was over: the lock or the slot rests.
    Resting,
}

/// Tickets of the waiters, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Queue<const ATTEMPTS: usize> {
    tickets: [u8; ATTEMPTS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Gateway {
    pub(super) runs: bool,
    /// Whether the store counts the gateway as alive.
    pub(super) counts_as_alive: bool,
    /// How many grants have ended unconfirmed because the gateway had died.
    pub(super) wasted: u8,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    pub(super) news: News,
    pub(super) marks: Marks,
}

/// What the gateway of an attempt does for it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    NotCome,
    /// Acquire was sent.
    Asking,
    /// The attempt knows that it is queued.
    Waiting,
    /// Confirm was sent.
    Confirming,
    /// Leave was sent.
    Leaving,
    /// The caller was answered the lease, and relies on it.
    Holding,
    /// The gateway releases what the attempt may have been granted.
    GivingBack,
    Over,
}

/// News that an attempt has been told and has not looked at.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum News {
    #[default]
    Nothing,
    Granted,
    Forgotten,
}

/// What else is known of an attempt, as a set.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Marks(u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    /// The caller of the attempt has gone.
    HungUp,
    /// Acquire was sent again, so that earlier copies may still come.
    SentAgain,
    /// An earlier copy of acquire is on its way.
    Copy,
    /// The store knows that copies of acquire may come.
    Late,
    /// The store remembers that the attempt is over.
    Remembered,
    /// A message about the present grant of the attempt is on its way to its gateway.
    Word,
    /// A message about a grant of the attempt that is over is on its way to its gateway.
    OldWord,
    /// The gateway is about to release the grant, because no caller waited when the message about it came.
    Orphan,
}

/// How often each kind of fault may still happen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// How many answers or messages may be lost.
    pub(super) losses: u8,
    /// How many grants may end, or gateways count as dead, before they should.
    pub(super) early: u8,
    /// How many commands may arrive twice.
    pub(super) copies: u8,
    /// How many gateways may die.
    pub(super) deaths: u8,
}

// === impl State ===

impl<const ATTEMPTS: usize> State<ATTEMPTS> {
    pub(super) fn beginning(faults: Faults) -> Self {
        let gateway = Gateway {
            runs: true,
            counts_as_alive: false,
            wasted: 0,
        };
        Self {
            somebody_else: true,
            leases: [None; ATTEMPTS],
            slots: [None; ATTEMPTS],
            resting: [false; ATTEMPTS],
            queue: Queue {
                tickets: [0; ATTEMPTS],
            },
            gateways: [gateway; 2],
            attempts: [Attempt::default(); ATTEMPTS],
            faults,
            overtaken: false,
            passed_by: false,
        }
    }

    /// The gateway through which an attempt asks: the first attempt uses one gateway alone, the others use the other
    /// gateway.
    pub(super) fn gateway_of(attempt: usize) -> usize {
        usize::from(attempt > 0)
    }

    pub(super) fn its_gateway(&self, attempt: usize) -> &Gateway {
        &self.gateways[Self::gateway_of(attempt)]
    }

    pub(super) fn is_held_by(&self, attempt: usize) -> bool {
        self.leases[attempt].is_some()
    }

    /// Whether the token of an attempt has a lease. That of a rest is dead.
    pub(super) fn is_owned_by(&self, attempt: usize, variant: Variant) -> bool {
        let rests = self.leases[attempt] == Some(Lease::Resting);
        self.is_held_by(attempt) && (!rests || variant == Variant::RestKeepsToken)
    }

    /// How many of the attempts hold the lock.
    pub(super) fn holders(&self) -> usize {
        self.leases.iter().flatten().count()
    }

    /// Whether the lock has no holder.
    pub(super) fn is_free(&self) -> bool {
        !self.somebody_else && self.holders() == 0
    }

    /// Whether an attempt may hold the lock beside the present holders.
    pub(super) fn admits(&self, modes: &[Mode; ATTEMPTS], attempt: usize) -> bool {
        let alone =
            (0..ATTEMPTS).any(|other| self.is_held_by(other) && modes[other] == Mode::Exclusive);
        match modes[attempt] {
            Mode::Exclusive => self.is_free(),
            Mode::Shared(limit) => {
                !self.somebody_else && !alone && self.holders() < usize::from(limit)
            }
        }
    }

    /// Ends the lease of an attempt. A message about this lease is old from now on.
    pub(super) fn end_lease(&mut self, attempt: usize) {
        let marks = &mut self.attempts[attempt].marks;
        if marks.has(Mark::Word) {
            marks.remove(Mark::Word);
            marks.add(Mark::OldWord);
        }
        // An orphan is released only as long as its grant lasts.
        marks.remove(Mark::Orphan);
        self.leases[attempt] = None;
        self.slots[attempt] = None;
    }

    /// Moves an attempt to a phase in which its gateway has no news for it. If the attempt is over, its gateway knows
    /// nothing about it any more.
    pub(super) fn finish(&mut self, attempt: usize, phase: Phase) {
        let attempt = &mut self.attempts[attempt];
        attempt.phase = phase;
        attempt.news = News::Nothing;
        if phase == Phase::Over {
            attempt.marks.remove(Mark::HungUp);
            attempt.marks.remove(Mark::SentAgain);
        }
    }
}

// === impl Queue ===

impl<const ATTEMPTS: usize> Queue<ATTEMPTS> {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + use<ATTEMPTS> {
        let length = self
            .tickets
            .iter()
            .take_while(|&&ticket| ticket > 0)
            .count();
        let tickets = self.tickets;
        (0..length).map(move |place| usize::from(tickets[place]) - 1)
    }

    pub(super) fn has(&self, attempt: usize) -> bool {
        self.iter().any(|ticket| ticket == attempt)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tickets[0] == 0
    }

    pub(super) fn push(&mut self, attempt: usize) {
        let free = self.tickets.iter().position(|&ticket| ticket == 0);
        let free = free.expect("there is room for everybody");
        self.tickets[free] = u8::try_from(attempt + 1).expect("there are few attempts");
    }

    pub(super) fn remove(&mut self, attempt: usize) {
        let place = self.iter().position(|ticket| ticket == attempt);
        if let Some(place) = place {
            self.tickets.copy_within(place + 1.., place);
            self.tickets[ATTEMPTS - 1] = 0;
        }
    }
}

// === impl Attempt ===

impl Attempt {
    /// Whether the gateway keeps a place for the attempt, in which it takes in news.
    pub(super) fn has_place(self) -> bool {
        matches!(
            self.phase,
            Phase::Asking | Phase::Waiting | Phase::Confirming | Phase::Leaving
        )
    }
}

// === impl Marks ===

impl Marks {
    pub(super) fn has(self, mark: Mark) -> bool {
        self.0 & (1 << mark as u8) != 0
    }

    pub(super) fn add(&mut self, mark: Mark) {
        self.0 |= 1 << mark as u8;
    }

    pub(super) fn remove(&mut self, mark: Mark) {
        self.0 &= !(1 << mark as u8);
    }
}
