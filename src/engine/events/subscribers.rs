//! What operations, listeners and the publisher have in common: those who listen at this gateway, and the last events, each with its
//! number.

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

/// What operations, listeners and the publisher have in common.
pub(super) struct BusShared {
    /// Whether anybody listens anywhere.
    pub(super) wanted: AtomicBool,
    pub(super) news: mpsc::Sender<EventMessage>,
    /// Set when the queue of the publisher was full and an event was dropped.
    pub(super) overflowed: AtomicBool,
    pub(super) subscribers: Mutex<Subscribers>,
    /// The number of the next event, for those who wait for it.
    pub(super) written: watch::Sender<u64>,
    /// Notified when a listener joins, or the last one has left.
    pub(super) changed: Notify,
    /// The name of this run of the gateway.
    pub(super) instance: Box<str>,
    pub(super) most_listeners: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lifecycle: Lifecycle,
}

/// Those who listen at this gateway, and the last events for those who read on from where they were.
#[derive(Debug)]
pub(super) struct Subscribers {
    events: VecDeque<Arc<Event>>,
    /// The number of the first event that is kept.
    pub(super) first: u64,
    pub(super) listeners: usize,
    /// When the last of them left; `None` as long as somebody is there, or nobody ever was.
    left_at: Option<Instant>,
    /// Whether events are kept.
    pub(super) is_recording: bool,
}

/// How many events are kept: some seconds of a busy gateway, at most a kilobyte each.
const KEPT: usize = 8_192;
/// How long events are recorded after the last listener has left: a client that lost its connection
/// reconnects for them.
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

    /// The number that the next event will have.
    pub(super) fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Keeps an event, if anybody may want to read it.
    pub(super) fn write(&mut self, event: Event) {
        if !self.is_recording {
            return;
        }
        if self.events.len() == KEPT {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.push_back(Arc::new(event));
    }

    /// At most `most` events from a number on; `None` if that one is not kept any more.
    pub(super) fn read(&self, from: u64, most: usize) -> Option<Vec<Arc<Event>>> {
        let skip = usize::try_from(from.checked_sub(self.first)?).unwrap_or(usize::MAX);
        Some(self.events.iter().skip(skip).take(most).cloned().collect())
    }

    /// When nothing is recorded any more, unless somebody comes back.
    pub(super) fn cleared_at(&self) -> Option<Instant> {
        self.left_at.map(|left| left + KEEP_AFTER_LAST)
    }

    /// Forgets all events if there has been no listener for that long. Events until the next listener are not recorded, so
    /// a number is left out: a reader that resumes there gets a gap.
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
        (0..KEPT).for_each(|_| push(&mut journal));
        assert_eq!(journal.read(1, 9).unwrap().len(), 9);
        push(&mut journal);
        assert_eq!(journal.read(1, 9), None);
        assert_eq!(journal.read(2, usize::MAX).unwrap().len(), KEPT);
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
