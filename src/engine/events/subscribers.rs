//! Those who listen at this gateway, and what they can read.

use std::time::Duration;

use tokio::time::Instant;

use super::{event::Event, journal::Journal};

/// Those who listen at this gateway, and what they can read.
#[derive(Debug)]
pub(super) struct Subscribers {
    pub(super) journal: Journal,
    listeners: usize,
    /// When the last of them left; `None` as long as somebody is there, or nobody ever was.
    left_at: Option<Instant>,
    /// Whether events are written down.
    recording: bool,
}

/// How long events are recorded after the last listener has left: a client that lost its connection
/// reconnects for them.
pub(super) const KEEP_AFTER_LAST: Duration = Duration::from_mins(1);

// === impl Subscribers ===

impl Subscribers {
    pub(super) fn new() -> Self {
        Self {
            journal: Journal::new(),
            listeners: 0,
            left_at: None,
            recording: false,
        }
    }

    pub(super) fn listeners(&self) -> usize {
        self.listeners
    }

    pub(super) fn is_recording(&self) -> bool {
        self.recording
    }

    pub(super) fn join(&mut self) {
        self.listeners += 1;
        self.left_at = None;
        self.recording = true;
    }

    pub(super) fn leave(&mut self) {
        self.listeners -= 1;
        if self.listeners == 0 {
            self.left_at = Some(Instant::now());
        }
    }

    /// Writes an event down, if anybody may want to read it.
    pub(super) fn write(&mut self, event: Event) {
        if self.recording {
            self.journal.push(event);
        }
    }

    /// When it has lost its interest, unless somebody comes back.
    pub(super) fn cleared_at(&self) -> Option<Instant> {
        self.left_at.map(|left| left + KEEP_AFTER_LAST)
    }

    /// Clears the journal if there has been no listener for that long.
    pub(super) fn clear_if_idle(&mut self, now: Instant) {
        if self.cleared_at().is_some_and(|at| at <= now) {
            self.left_at = None;
            self.recording = false;
            self.journal.interrupt();
        }
    }
}
