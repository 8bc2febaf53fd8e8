//! The shared state of operations, listeners and the publisher: the number of listeners at this gateway, and the
//! journal of the last events.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};

use crate::{clock::Clock, lifecycle::Lifecycle};

use super::event::{Event, EventMessage};

/// The state that operations, listeners and the publisher share.
pub(super) struct BusShared {
    /// Whether there is a listener at any gateway, so that events must be published.
    pub(super) wanted: AtomicBool,
    pub(super) news: mpsc::Sender<EventMessage>,
    /// Set when the queue of the publisher was full and an event was dropped.
    pub(super) overflowed: AtomicBool,
    pub(super) subscribers: Mutex<Subscribers>,
    /// The number of the next event. Listeners that wait are woken when the number changes.
    pub(super) written: watch::Sender<u64>,
    /// Notified when a listener joins or leaves.
    pub(super) changed: Notify,
    /// The name of this run of the gateway.
    pub(super) instance: Box<str>,
    pub(super) most_listeners: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lifecycle: Lifecycle,
}

/// The number of listeners at this gateway, and the journal of the last events, from which a listener can resume.
#[derive(Debug)]
pub(super) struct Subscribers {
    events: VecDeque<Arc<Event>>,
    /// The number of the oldest event in the journal.
    pub(super) first: u64,
    pub(super) listeners: usize,
    /// When the last listener left; `None` while there is a listener, and before the first listener.
    left_at: Option<Instant>,
    /// Whether events are added to the journal: while there is a listener, and for a minute after the last has left.
    pub(super) is_recording: bool,
}

/// How many events the journal keeps: some seconds of a busy gateway, at most a kilobyte each.
const MAX_JOURNAL_EVENTS: usize = 8_192;
/// How long events are recorded after the last listener has left, so that a client that lost its connection can
/// resume.
const KEEP_AFTER_LAST: Duration = Duration::from_mins(1);

// === impl Subscribers ===

impl Subscribers {
    pub(super) fn new() -> Self {
        Self {
            events: VecDeque::new(),
            first: 1,
            listeners: 0,
            left_at: None,
            is_recording: false,
        }
    }

    pub(super) fn join(&mut self) {
        self.listeners += 1;
        self.left_at = None;
        self.is_recording = true;
    }

    pub(super) fn leave(&mut self) {
        self.listeners -= 1;
        if self.listeners == 0 {
            self.left_at = Some(Instant::now());
        }
    }

    /// The number that the next event will get.
    pub(super) fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Adds an event to the journal, if the journal is recording.
    pub(super) fn write(&mut self, event: Event) {
        if !self.is_recording {
            return;
        }
        if self.events.len() == MAX_JOURNAL_EVENTS {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.push_back(Arc::new(event));
    }

    /// At most `most` events from the number `from` on; `None` if the journal does not have that event any more.
    pub(super) fn read(&self, from: u64, most: usize) -> Option<Vec<Arc<Event>>> {
        let skip = usize::try_from(from.checked_sub(self.first)?).unwrap_or(usize::MAX);
        Some(self.events.iter().skip(skip).take(most).cloned().collect())
    }

    /// When the journal is cleared, unless a listener joins before; `None` while there is a listener.
    pub(super) fn cleared_at(&self) -> Option<Instant> {
        self.left_at.map(|left| left + KEEP_AFTER_LAST)
    }

    /// Clears the journal if there has been no listener for `KEEP_AFTER_LAST`. Events until the next listener are not
    /// recorded, so a number is skipped: a reader that resumes there gets a gap.
    pub(super) fn clear_if_idle(&mut self, now: Instant) {
        if self.cleared_at().is_some_and(|at| at <= now) {
            *self = Self {
                first: self.next() + 1,
                ..Self::new()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn journal() -> Subscribers {
        let mut journal = Subscribers::new();
        journal.join();
        journal
    }

    fn push(journal: &mut Subscribers) {
        journal.write(Event::gap("test", SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn is_read_from_any_number_that_is_there() {
        let mut journal = journal();
        assert_eq!(journal.read(1, 9), Some(vec![]));
        (0..MAX_JOURNAL_EVENTS).for_each(|_| push(&mut journal));
        assert_eq!(journal.read(1, 9).unwrap().len(), 9);
        push(&mut journal);
        assert_eq!(journal.read(1, 9), None);
        assert_eq!(
            journal.read(2, usize::MAX).unwrap().len(),
            MAX_JOURNAL_EVENTS
        );
        let next = journal.next();
        assert_eq!(journal.read(next - 2, 9).unwrap().len(), 2);
        assert_eq!(journal.read(next, 9), Some(vec![]));
    }

    #[test]
    fn an_interruption_is_passed_by_nobody() {
        let mut journal = journal();
        push(&mut journal);
        let next = journal.next();
        journal.leave();
        let at = journal.cleared_at().unwrap();
        journal.clear_if_idle(at);
        journal.join();
        assert_eq!(journal.read(next, 9), None);
        let next = journal.next();
        push(&mut journal);
        assert_eq!(journal.read(next, 9).unwrap().len(), 1);
    }
}
