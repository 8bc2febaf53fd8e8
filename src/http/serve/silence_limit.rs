//! For how long the other end of a connection may be silent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::streams::Streams;

/// For how long the other end may leave unanswered what it was sent, before it counts as gone.
///
/// A handle that a handler sets. Without it a machine that is gone without a word would be taken for
/// a listener for a quarter of an hour. Who is silent for too long costs what has only this request to
/// carry: the connection, or, where others share it, the request.
#[derive(Debug, Clone)]
pub(in crate::http) struct SilenceLimit(Of);

#[derive(Debug, Clone)]
enum Of {
    Connection(SocketLimit),
    /// The request of this number is one of several on a connection.
    Request(Arc<Streams>, u32),
}

/// For how long what was sent on a connection may stay unacknowledged, before the connection counts as
/// broken. The socket obeys it with its next write.
#[derive(Debug, Clone, Default)]
pub(super) struct SocketLimit {
    /// In milliseconds; 0 is the default of the operating system.
    ms: Arc<AtomicU32>,
}

// === impl SilenceLimit ===

impl SilenceLimit {
    /// That of a request that has the connection for itself.
    pub(super) fn of_connection(limit: SocketLimit) -> Self {
        Self(Of::Connection(limit))
    }

    /// That of one of several requests on a connection.
    pub(super) fn of_request(streams: Arc<Streams>, number: u32) -> Self {
        Self(Of::Request(streams, number))
    }

    /// Sets the limit.
    pub(in crate::http) fn set(&self, limit: Duration) {
        match &self.0 {
            Of::Connection(socket) => socket.set(limit),
            Of::Request(streams, number) => streams.limit_silence(*number, limit),
        }
    }

    /// Goes back to what goes for every connection.
    pub(in crate::http) fn lift(&self) {
        match &self.0 {
            Of::Connection(socket) => socket.lift(),
            Of::Request(streams, number) => streams.lift_limit(*number),
        }
    }
}

/// That of a request which came through no connection: nobody could be silent.
impl Default for SilenceLimit {
    fn default() -> Self {
        Self::of_connection(SocketLimit::default())
    }
}

// === impl SocketLimit ===

impl SocketLimit {
    pub(super) fn set(&self, limit: Duration) {
        let ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        self.ms.store(ms.max(1), Ordering::Relaxed);
    }

    pub(super) fn lift(&self) {
        self.ms.store(0, Ordering::Relaxed);
    }

    pub(super) fn as_millis(&self) -> u32 {
        self.ms.load(Ordering::Relaxed)
    }
}
