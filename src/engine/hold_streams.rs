//! Which leases are held by a stream of this gateway.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::lock::{LockName, TokenHash};

/// The leases that a stream of this gateway holds. Cheap to clone.
///
/// Notifies a stream at once of what it would otherwise learn from its next renewal.
#[derive(Debug, Clone, Default)]
pub(super) struct HoldStreams(Arc<HoldStreamMap>);

#[derive(Debug, Default)]
struct HoldStreamMap {
    held: Mutex<HoldStreamSenders>,
    /// How many are listed: releases look here first, and there is mostly no stream at all.
    count: AtomicUsize,
}

type HoldStreamSenders = HashMap<(LockName, TokenHash), oneshot::Sender<Displaced>>;

/// What happens to the lease of a stream without its doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Displaced {
    /// The lease was released, with its token.
    Released,
    /// Another stream of this gateway has adopted the lease. Of two that adopted it together the
    /// store knows which one came last.
    Adopted,
    /// The lease may have been broken; the store decides.
    Broken,
}

/// The entry of one stream; dropped, it is off the list.
#[derive(Debug)]
pub(super) struct HoldStreamEntry {
    streams: HoldStreams,
    lease: (LockName, TokenHash),
    /// `None`: it was displaced.
    news: Option<oneshot::Receiver<Displaced>>,
}

// === impl HoldStreams ===

impl HoldStreams {
    /// Enters a stream, in the place of an older one with the same lease.
    pub(super) fn insert(&self, name: LockName, token: TokenHash) -> HoldStreamEntry {
        let (sender, news) = oneshot::channel();
        let lease = (name, token);
        let older = self.change(|held| held.insert(lease.clone(), sender));
        if let Some(older) = older {
            // The stream may have ended at the same time, and then is not notified.
            let _ = older.send(Displaced::Adopted);
        }
        let streams = self.clone();
        HoldStreamEntry {
            streams,
            lease,
            news: Some(news),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Tells the stream that holds this lease, if there is one, what has happened to it.
    pub(super) fn displace(&self, name: LockName, token: TokenHash, displaced: Displaced) {
        // One that comes in this very moment finds out with its next renewal.
        if self.len() == 0 {
            return;
        }
        if let Some(stream) = self.change(|held| held.remove(&(name, token))) {
            let _ = stream.send(displaced);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut HoldStreamSenders) -> T) -> T {
        let mut held = self.0.held.lock();
        let outcome = change(&mut held);
        self.0.count.store(held.len(), Ordering::Relaxed);
        outcome
    }
}

// === impl HoldStreamEntry ===

impl HoldStreamEntry {
    /// Waits to be displaced, which happens once. Safe to drop and call again.
    pub(super) async fn displaced(&mut self) -> Displaced {
        let Some(news) = &mut self.news else {
            return std::future::pending().await;
        };
        // The sender lives in the list for as long as this entry does, unless it is used.
        let displaced = news.await.unwrap_or(Displaced::Adopted);
        self.news = None;
        displaced
    }

    /// Whether it has been displaced, and is not on the list any more.
    pub(super) fn is_displaced(&self) -> bool {
        self.news.is_none()
    }
}

impl Drop for HoldStreamEntry {
    fn drop(&mut self) {
        let Some(news) = &mut self.news else { return };
        // A newer stream with the same lease has an entry of its own under this key.
        news.close();
        self.streams.change(|held| {
            let entry = held.get(&self.lease);
            if entry.is_some_and(oneshot::Sender::is_closed) {
                held.remove(&self.lease);
            }
        });
    }
}
