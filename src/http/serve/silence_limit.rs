//! For how long the other end of a connection may be silent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// For how long the other end of one connection may leave unacknowledged what it was sent, before
/// the connection counts as broken.
///
/// A handle that a handler sets and the socket obeys with its next write. Without it a machine that
/// is gone without a word would be taken for a listener for a quarter of an hour.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct SilenceLimit {
    /// In milliseconds; 0 is the default of the operating system.
    ms: Arc<AtomicU32>,
}

// === impl SilenceLimit ===

impl SilenceLimit {
    /// Sets the limit.
    pub(in crate::http) fn set(&self, limit: Duration) {
        let ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        self.ms.store(ms.max(1), Ordering::Relaxed);
    }

    /// Goes back to what the operating system thinks right.
    pub(in crate::http) fn lift(&self) {
        self.ms.store(0, Ordering::Relaxed);
    }

    pub(super) fn as_millis(&self) -> u32 {
        self.ms.load(Ordering::Relaxed)
    }
}
