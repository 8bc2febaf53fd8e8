//! For how long the other end of a connection may be silent.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// For how long the other end of one connection may leave unacknowledged what it was sent, before
/// the connection counts as broken.
///
/// A handle that a handler sets and the socket obeys with its next write. Without it a machine that
/// is gone without a word would be taken for a listener for a quarter of an hour. Where a connection
/// carries several requests, the least of what they set is obeyed.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct SilenceLimit {
    request: u32,
    connection: Arc<Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    /// In milliseconds; 0 is the default of the operating system.
    least: AtomicU32,
    /// What each request has set.
    set: Mutex<BTreeMap<u32, u32>>,
}

// === impl SilenceLimit ===

impl SilenceLimit {
    /// That of another request on the same connection. Each has a number of its own.
    pub(super) fn of_request(&self, request: u32) -> Self {
        let connection = Arc::clone(&self.connection);
        Self {
            request,
            connection,
        }
    }

    /// Sets the limit.
    pub(in crate::http) fn set(&self, limit: Duration) {
        let ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        self.change(|set, request| {
            set.insert(request, ms.max(1));
        });
    }

    /// Goes back to what the operating system thinks right.
    pub(in crate::http) fn lift(&self) {
        self.change(|set, request| {
            set.remove(&request);
        });
    }

    pub(super) fn as_millis(&self) -> u32 {
        self.connection.least.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u32, u32>, u32)) {
        let mut set = (self.connection.set.lock()).unwrap_or_else(PoisonError::into_inner);
        change(&mut set, self.request);
        let least = set.values().min().copied().unwrap_or_default();
        self.connection.least.store(least, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_requests_on_a_connection_is_obeyed() {
        let limit = SilenceLimit::default();
        let (one, other) = (limit.of_request(1), limit.of_request(2));
        one.set(Duration::from_secs(5));
        other.set(Duration::from_secs(2));
        assert_eq!(limit.as_millis(), 2_000);
        one.lift();
        assert_eq!(limit.as_millis(), 2_000);
        other.lift();
        assert_eq!(limit.as_millis(), 0);
    }
}
