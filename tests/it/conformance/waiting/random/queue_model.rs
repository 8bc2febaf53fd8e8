//! A model of a lock with a queue and without expiry: the right answer to each command of a sequence.

use std::collections::VecDeque;

/// A lock: its holder and its queue.
#[derive(Debug)]
pub(super) struct Model {
    holder: Option<ModelWaiter>,
    queue: VecDeque<ModelWaiter>,
    longest: u64,
    news: Vec<(usize, ExpectedNews)>,
    /// The idempotency key of the last waiter that a newer waiter took out of the queue, if it had one.
    outdated_key: Option<usize>,
}

/// The way in which an attempt asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) key: Option<usize>,
    pub(super) in_other_words: bool,
    pub(super) waits: bool,
    /// Whether the attempt takes an older waiter that also has this out of the queue.
    pub(super) supersedes: bool,
}

/// The answer that the store must give.
#[derive(Debug)]
pub(super) enum Answer {
    Granted,
    /// The lease of this attempt.
    Replayed(usize),
    /// The lock is held, with this number of waiters.
    Held(u64),
    /// The attempt is queued, with this number of waiters before it.
    Queued(u64),
    QueueFull,
    Mismatch,
}

/// The news that a waiter must get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedNews {
    Granted,
    Replaced,
    NewerWaiter,
}

/// The state of an attempt that was granted the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// The attempt has its own lease.
    Lease,
    /// The attempt's lease was answered to a newer request with the same key.
    Replaced,
}

#[derive(Debug, Clone, Copy)]
struct ModelWaiter {
    who: usize,
    ask: Ask,
    /// Whether a caller is there to hear of the grant.
    attended: bool,
    /// Whether the lease was answered again to a request with its key.
    settled: bool,
    /// The last attempt that was answered the lease.
    recipient: usize,
}

// === impl Model ===

impl Model {
    pub(super) fn new(longest: u64) -> Self {
        Self {
            holder: None,
            queue: VecDeque::new(),
            longest,
            news: Vec::new(),
            outdated_key: None,
        }
    }

    pub(super) fn ask(&mut self, who: usize, ask: Ask) -> Answer {
        let new = ModelWaiter {
            who,
            ask,
            attended: true,
            settled: false,
            recipient: who,
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
            holder.recipient = who;
            return Answer::Replayed(holder.who);
        }
        let same = |it: &ModelWaiter| ask.key.is_some() && it.ask.key == ask.key;
        if let Some(ahead) = self.queue.iter().position(same) {
            let before = self.queue[ahead];
            if before.ask.in_other_words != ask.in_other_words {
                return Answer::Mismatch;
            }
            if before.attended {
                self.news.push((before.who, ExpectedNews::Replaced));
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
        let older = (self.queue.iter()).position(|it| ask.supersedes && it.ask.supersedes);
        if let Some(older) = older.and_then(|at| self.queue.remove(at)) {
            self.outdated_key = older.ask.key;
            if older.attended {
                self.news.push((older.who, ExpectedNews::NewerWaiter));
            }
        }
        self.queue.push_back(new);
        Answer::Queued(self.queue.len() as u64 - 1)
    }

    pub(super) fn take_outdated_key(&mut self) -> Option<usize> {
        self.outdated_key.take()
    }

    /// Ends the lease. Answers the idempotency key that is used up by it.
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

    /// Releases an undelivered lease. Answers whether the attempt held the lock, and the idempotency key that is used
    /// up.
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

    /// The answer to a holder, also one that does not know of its grant, that asks again or leaves.
    pub(super) fn holds(&self, who: usize) -> Option<Holds> {
        let holder = self.holder.filter(|holder| holder.who == who)?;
        Some(if holder.recipient == who {
            Holds::Lease
        } else {
            Holds::Replaced
        })
    }

    /// Takes a waiter out of the queue, which must not be the holder. Answers the number of waiters left.
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

    /// The holder, if its caller has heard of the grant.
    pub(super) fn holder_that_knows(&self) -> Option<usize> {
        self.holder.filter(|it| it.attended).map(|it| it.who)
    }

    pub(super) fn queue(&self) -> impl Iterator<Item = usize> {
        self.queue.iter().map(|it| it.who)
    }

    /// The holder and all waiters.
    pub(super) fn standing(&self) -> Vec<usize> {
        self.holder().into_iter().chain(self.queue()).collect()
    }

    /// Whether a caller is there for this attempt.
    pub(super) fn is_attended(&self, who: usize) -> bool {
        let mut all = self.holder.iter().chain(&self.queue);
        all.any(|it| it.who == who && it.attended)
    }
}
