//! The last events, each with its number.

use std::{collections::VecDeque, sync::Arc};

use super::event::Event;

/// The last events, each with its number, for those who read on from where they were.
#[derive(Debug)]
pub(super) struct Journal {
    events: VecDeque<Arc<Event>>,
    /// The number of the first that is there.
    first: u64,
}

/// Events were read too late: they are not there any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLate;

/// How many events are kept: some seconds of a busy gateway, at most a kilobyte each.
pub(super) const KEPT: usize = 8_192;

// === impl Journal ===

impl Journal {
    pub(super) fn new() -> Self {
        Self {
            events: VecDeque::new(),
            first: 1,
        }
    }

    /// The number that the next event will have.
    pub(super) fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The number of the first event that is there.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn push(&mut self, event: Event) {
        if self.events.len() == KEPT {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.push_back(Arc::new(event));
    }

    /// Clears the journal. Events until the next one are not recorded, so a number is left out: a reader that
    /// resumes there gets a gap.
    pub(super) fn interrupt(&mut self) {
        self.first = self.next() + 1;
        self.events = VecDeque::new();
    }

    /// At most `most` events from a number on.
    pub(super) fn read(&self, from: u64, most: usize) -> Result<Vec<Arc<Event>>, TooLate> {
        let skip = from.checked_sub(self.first).ok_or(TooLate)?;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Ok(self.events.iter().skip(skip).take(most).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn push(journal: &mut Journal) {
        journal.push(Event::gap("test", SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn is_read_from_any_number_that_is_there() {
        let mut journal = Journal::new();
        assert_eq!(journal.read(1, 9), Ok(vec![]));
        (0..KEPT).for_each(|_| push(&mut journal));
        assert_eq!(journal.read(1, 9).unwrap().len(), 9);
        push(&mut journal);
        assert_eq!(journal.read(1, 9), Err(TooLate));
        assert_eq!(journal.read(2, usize::MAX).unwrap().len(), KEPT);
        let next = journal.next();
        assert_eq!(journal.read(next - 2, 9).unwrap().len(), 2);
        assert_eq!(journal.read(next, 9), Ok(vec![]));
    }

    #[test]
    fn an_interruption_is_passed_by_nobody() {
        let mut journal = Journal::new();
        push(&mut journal);
        let next = journal.next();
        journal.interrupt();
        assert_eq!(journal.read(next, 9), Err(TooLate));
        let next = journal.next();
        push(&mut journal);
        assert_eq!(journal.read(next, 9).unwrap().len(), 1);
    }
}
