//! What a lock with a queue should do, in the fewest words: nothing expires while a sequence runs.

use std::collections::VecDeque;

/// One lock: who holds it, and who is queued for it.
#[derive(Debug)]
pub(super) struct Model {
    holder: Option<ModelWaiter>,
    queue: VecDeque<ModelWaiter>,
    longest: u64,
    news: Vec<(usize, ExpectedNews)>,
}

/// How somebody asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) key: Option<usize>,
    pub(super) in_other_words: bool,
    pub(super) waits: bool,
}

/// What the answer should be.
#[derive(Debug)]
pub(super) enum Answer {
    Granted,
    /// The lease of this one.
    Replayed(usize),
    /// With so many in the queue.
    Held(u64),
    /// With so many before it.
    Queued(u64),
    QueueFull,
    Mismatch,
}

/// What somebody should hear who stands in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedNews {
    Granted,
    Superseded,
}

/// How somebody stands who was granted the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// By its lease, which is its own.
    Lease,
    /// By a lease that a newer request under its key was answered.
    Superseded,
}

#[derive(Debug, Clone, Copy)]
struct ModelWaiter {
    who: usize,
    ask: Ask,
    /// Whether somebody is there to hear of it.
    attended: bool,
    /// Whether the lease was answered again under its key.
    settled: bool,
    /// The last who was answered it.
    keeper: usize,
}

// === impl Model ===

impl Model {
    pub(super) fn new(longest: u64) -> Self {
        Self {
            holder: None,
            queue: VecDeque::new(),
            longest,
            news: Vec::new(),
        }
    }

    pub(super) fn ask(&mut self, who: usize, ask: Ask) -> Answer {
        let new = ModelWaiter {
            who,
            ask,
            attended: true,
            settled: false,
            keeper: who,
        };
        let waiters = self.queue.len() as u64;
        let Some(holder) = &mut self.holder else {
            self.holder = Some(new);
            return Answer::Granted;
        };
        if ask.key.is_some() && holder.ask.key == ask.key {
            if holder.ask.in_other_words != ask.in_other_words {
                return Answer::Mismatch;
            }
            holder.attended = true;
            holder.settled = true;
            holder.keeper = who;
            return Answer::Replayed(holder.who);
        }
        let same = |it: &ModelWaiter| ask.key.is_some() && it.ask.key == ask.key;
        if let Some(ahead) = self.queue.iter().position(same) {
            let before = self.queue[ahead];
            if before.ask.in_other_words != ask.in_other_words {
                return Answer::Mismatch;
            }
            if before.attended {
                self.news.push((before.who, ExpectedNews::Superseded));
            }
            if !ask.waits {
                self.queue.remove(ahead);
                return Answer::Held(waiters - 1);
            }
            self.queue[ahead] = new;
            return Answer::Queued(ahead as u64);
        }
        if !ask.waits {
            return Answer::Held(waiters);
        }
        if waiters >= self.longest {
            return Answer::QueueFull;
        }
        self.queue.push_back(new);
        Answer::Queued(waiters)
    }

    /// Ends the lease, and answers the key that is used by it.
    pub(super) fn release(&mut self) -> Option<usize> {
        let ended = self.holder.take();
        self.holder = self.queue.pop_front();
        if let Some(next) = &self.holder
            && next.attended
        {
            self.news.push((next.who, ExpectedNews::Granted));
        }
        ended?.ask.key
    }

    /// Whether it held the lock, and the key that is used by it.
    pub(super) fn give_back(&mut self, who: usize) -> (bool, Option<usize>) {
        match &self.holder {
            Some(holder) if holder.who == who => {
                if holder.settled {
                    (false, None)
                } else {
                    (true, self.release())
                }
            }
            _ => {
                self.queue.retain(|it| it.who != who);
                (false, None)
            }
        }
    }

    /// What one who holds the lock, or did not know yet, is answered that asks again or leaves.
    pub(super) fn holds(&self, who: usize) -> Option<Holds> {
        let holder = self.holder.filter(|holder| holder.who == who)?;
        Some(if holder.keeper == who {
            Holds::Lease
        } else {
            Holds::Superseded
        })
    }

    /// How many are queued then. Not for one who holds the lock.
    pub(super) fn leave(&mut self, who: usize, keep: bool) -> u64 {
        for it in &mut self.queue {
            it.attended &= it.who != who;
        }
        self.queue
            .retain(|it| it.who != who || (keep && it.ask.key.is_some()));
        self.queue.len() as u64
    }

    pub(super) fn take_news(&mut self) -> Vec<(usize, ExpectedNews)> {
        std::mem::take(&mut self.news)
    }

    pub(super) fn holder(&self) -> Option<usize> {
        self.holder.map(|holder| holder.who)
    }

    /// The holder, if somebody has heard that it holds the lock.
    pub(super) fn holder_that_knows(&self) -> Option<usize> {
        self.holder.filter(|it| it.attended).map(|it| it.who)
    }

    pub(super) fn queue(&self) -> impl Iterator<Item = usize> {
        self.queue.iter().map(|it| it.who)
    }

    /// The holder and all who are queued.
    pub(super) fn standing(&self) -> Vec<usize> {
        self.holder().into_iter().chain(self.queue()).collect()
    }

    /// Whether somebody is there for this one.
    pub(super) fn is_attended(&self, who: usize) -> bool {
        let mut all = self.holder.iter().chain(&self.queue);
        all.any(|it| it.who == who && it.attended)
    }
}
