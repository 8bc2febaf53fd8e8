//! The signals that end the gateway.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// TERM and INT, from the moment this exists.
pub(super) struct Signals {
    term: Signal,
    int: Signal,
}

// === impl Signals ===

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    /// The next of them.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "TERM",
            _ = self.int.recv() => "INT",
        }
    }
}
