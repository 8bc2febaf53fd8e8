//! What is to be sent to the other gateways.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::{event::Event, line::EventMessage};

/// Collects events until they are sent together.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    lines: String,
    /// When the first of them must be gone.
    due: Option<Instant>,
    /// Whether some were left out.
    gap: bool,
}

/// How long events are collected.
const COLLECTED: Duration = Duration::from_millis(50);
/// How much is collected, in bytes. What comes beyond it is left out, and said so.
const MOST: usize = 256 * 1024;

// === impl Outbox ===

impl Outbox {
    pub(super) fn put(&mut self, news: &EventMessage) {
        self.due.get_or_insert_with(|| Instant::now() + COLLECTED);
        if self.gap {
            return;
        }
        let line = news.to_line();
        if self.lines.len() + line.len() > MOST {
            self.gap = true;
            return;
        }
        self.lines.push_str(&line);
        self.lines.push('\n');
    }

    /// Something could not be sent, or was not told.
    pub(super) fn mark_gap(&mut self) {
        self.gap = true;
        self.due.get_or_insert_with(|| Instant::now() + COLLECTED);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Everything that was collected, as one batch.
    pub(super) fn take(&mut self, now: SystemTime) -> String {
        self.due = None;
        let mut batch = std::mem::take(&mut self.lines);
        if std::mem::take(&mut self.gap) {
            let gap = EventMessage {
                event: Event::gap("too-many", now),
                lease: None,
                if_known: false,
            };
            batch.push_str(&gap.to_line());
            batch.push('\n');
        }
        batch
    }

    /// Forgets what was collected: nobody listens elsewhere any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(reason: &'static str) -> EventMessage {
        EventMessage {
            event: Event::gap(reason, SystemTime::UNIX_EPOCH),
            lease: None,
            if_known: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_becomes_a_gap() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.due(), None);
        let one = news("one").to_line();
        for _ in 0..2 * MOST / one.len() {
            outbox.put(&news("one"));
        }
        assert_eq!(outbox.due(), Some(Instant::now() + COLLECTED));
        let batch = outbox.take(SystemTime::UNIX_EPOCH);
        assert!(batch.len() < MOST + 200, "{}", batch.len());
        assert!(batch.ends_with(&format!("{}\n", news("too-many").to_line())));
        assert_eq!(outbox.due(), None);
        outbox.put(&news("one"));
        assert_eq!(outbox.take(SystemTime::UNIX_EPOCH), one + "\n");
    }
}
