//! Which leases are held by a stream of this gateway.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::oneshot;

use crate::lock::{LockName, TokenHash};

/// The leases that a stream of this gateway holds. Cheap to clone.
///
/// A stream hears here at once what it would otherwise find out with its next renewal, or, if
/// another stream goes on with its lease, not before it has released it.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams {
    held: Arc<Mutex<Held>>,
}

type Held = HashMap<(LockName, TokenHash), oneshot::Sender<Displaced>>;

/// What ends a stream without its doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Displaced {
    /// The lease was released, with its token.
    Released,
    /// Another stream has adopted the lease.
    Adopted,
}

/// The entry of one stream; dropped, it is off the list.
#[derive(Debug)]
pub(super) struct Entry {
    streams: Streams,
    lease: (LockName, TokenHash),
    news: oneshot::Receiver<Displaced>,
}

// === impl Streams ===

impl Streams {
    /// Enters a stream, in the place of an older one with the same lease.
    pub(super) fn enter(&self, name: LockName, token: TokenHash) -> Entry {
        let (sender, news) = oneshot::channel();
        let lease = (name, token);
        if let Some(older) = self.lock().insert(lease.clone(), sender) {
            // It may have ended in this instant, and hears nothing then.
            let _ = older.send(Displaced::Adopted);
        }
        let streams = self.clone();
        Entry {
            streams,
            lease,
            news,
        }
    }

    /// Tells the stream that holds this lease, if there is one, that the lease was released.
    pub(super) fn released(&self, name: LockName, token: TokenHash) {
        if let Some(stream) = self.lock().remove(&(name, token)) {
            let _ = stream.send(Displaced::Released);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held
            .lock()
            .expect("no code panics while it holds the list")
    }
}

// === impl Entry ===

impl Entry {
    /// Waits to be displaced. Safe to drop and call again until it has answered.
    pub(super) async fn displaced(&mut self) -> Displaced {
        // The sender lives in the list for as long as this entry does, unless it is used.
        (&mut self.news).await.unwrap_or(Displaced::Adopted)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // A newer stream with the same lease has an entry of its own under this key.
        self.news.close();
        let mut held = self.streams.lock();
        if held
            .get(&self.lease)
            .is_some_and(oneshot::Sender::is_closed)
        {
            held.remove(&self.lease);
        }
    }
}
