//! What the store, the gateways and the attempts know.

/// Everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State<const ATTEMPTS: usize> {
    /// Somebody who is none of the attempts holds the lock alone, and releases it at some time.
    pub(super) somebody_else: bool,
    /// What each attempt holds.
    pub(super) leases: [Option<Lease>; ATTEMPTS],
    /// The place of each that holds one of a limited number.
    pub(super) slots: [Option<u8>; ATTEMPTS],
    pub(super) queue: Queue<ATTEMPTS>,
    pub(super) gateways: [Gateway; 2],
    pub(super) attempts: [Attempt; ATTEMPTS],
    pub(super) faults: Faults,
    /// Somebody was granted the lock past somebody who stood before them.
    pub(super) overtaken: bool,
    /// A script has left a head in the queue that it could have granted the lock.
    pub(super) passed_by: bool,
}

/// How an attempt wants to hold the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Exclusive,
    /// Beside others that share it, as long as fewer than so many hold it.
    Shared(u8),
}

/// How an attempt came to its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lease {
    /// It was told when it asked, or has confirmed it.
    Settled,
    /// By a script of its own gateway, in whose answer it stands.
    Told,
    /// By a script of the other gateway, for a short time.
    Provisional,
    /// The same for the whole TTL, which must not be.
    Unlimited,
}

/// Tickets in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Queue<const ATTEMPTS: usize> {
    tickets: [u8; ATTEMPTS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Gateway {
    pub(super) runs: bool,
    /// Whether the store takes it for alive.
    pub(super) counts_as_alive: bool,
    /// How many grants have ended unconfirmed because it had died.
    pub(super) wasted: u8,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    pub(super) news: News,
    pub(super) marks: Marks,
}

/// What its gateway does for it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    NotCome,
    /// Acquire was sent.
    Asking,
    /// It knows that it is queued.
    Waiting,
    /// Confirm was sent.
    Confirming,
    /// Leave was sent.
    Leaving,
    /// Its caller was answered the lease, and lives by it.
    Holding,
    /// What it may have been granted is given back.
    GivingBack,
    Over,
}

/// What it has been told and has not looked at.
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
    /// Its caller has gone.
    HungUp,
    /// Acquire was sent again, so that earlier copies may still come.
    SentAgain,
    /// An earlier copy of acquire is on its way.
    Copy,
    /// The store knows that copies of acquire may come.
    Late,
    /// The store remembers that the attempt is over.
    Remembered,
    /// Word of the grant that it has is on its way to its gateway.
    Word,
    /// Word of a grant that is over is on its way.
    OldWord,
    /// Its gateway gives its grant back, because nobody waited when word of it came.
    Orphan,
}

/// How often something that is no rule may still happen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// An answer or a message is lost.
    pub(super) losses: u8,
    /// A grant ends, or a gateway counts as dead, before it should.
    pub(super) early: u8,
    /// A command arrives twice.
    pub(super) copies: u8,
    /// A gateway dies.
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

    /// Through which gateway an attempt asks: the first alone through one, the others through the other.
    pub(super) fn gateway_of(attempt: usize) -> usize {
        usize::from(attempt > 0)
    }

    pub(super) fn its_gateway(&self, attempt: usize) -> &Gateway {
        &self.gateways[Self::gateway_of(attempt)]
    }

    pub(super) fn is_held_by(&self, attempt: usize) -> bool {
        self.leases[attempt].is_some()
    }

    /// How many of the attempts hold it.
    pub(super) fn holders(&self) -> usize {
        self.leases.iter().flatten().count()
    }

    /// Whether nobody holds it.
    pub(super) fn is_free(&self) -> bool {
        !self.somebody_else && self.holders() == 0
    }

    /// Whether an attempt may hold it beside those who do.
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

    /// The lease of an attempt ends. Word of it is old from now on.
    pub(super) fn end_lease(&mut self, attempt: usize) {
        let marks = &mut self.attempts[attempt].marks;
        if marks.has(Mark::Word) {
            marks.remove(Mark::Word);
            marks.add(Mark::OldWord);
        }
        // What is given back is that very grant.
        marks.remove(Mark::Orphan);
        self.leases[attempt] = None;
        self.slots[attempt] = None;
    }

    /// What a gateway knows of an attempt that is over is nothing.
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
    /// Whether its gateway keeps a place for it, where news are taken in.
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
