//! Places in a queue that are kept for those who have gone and may ask again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

use crate::{auth::Slot, lock::IdempotencyHash, store::parking::Parked};

use super::Engine;

/// The places that are kept through this gateway, each for as long as its reconnect grace. They count
/// among those who wait: else whoever hangs up again and again would have as many as they like. Cheap
/// to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptPlaces(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    places: HashMap<IdempotencyHash, KeptPlace>,
    /// Those of them that the store was not told of: they must stay parked.
    parked: HashMap<IdempotencyHash, (Instant, Parked)>,
    /// How many there may be before what is over is struck off.
    sweep_at: usize,
}

#[derive(Debug)]
struct KeptPlace {
    until: Instant,
    /// What it counts as among the limits of its API key.
    _counted: Option<Slot>,
}

/// As few as these are not worth sweeping.
const SWEEP_FROM: usize = 64;

// === impl KeptPlaces ===

impl KeptPlaces {
    /// A place is kept until then.
    fn keep(&self, key: IdempotencyHash, until: Instant, counted: Option<Slot>) {
        let place = KeptPlace {
            until,
            _counted: counted,
        };
        let mut kept = self.lock();
        kept.places.insert(key, place);
        if kept.places.len() > kept.sweep_at.max(SWEEP_FROM) {
            kept.sweep(Instant::now());
            kept.sweep_at = 2 * kept.places.len();
        }
    }

    /// A place stays parked until then, also when somebody has asked for it again: what it is granted in
    /// between is theirs.
    pub(super) fn park(&self, key: IdempotencyHash, until: Instant, parked: Parked) {
        self.lock().parked.insert(key, (until, parked));
    }

    /// Lets go of what is over.
    pub(super) fn let_go(&self) {
        self.lock().sweep(Instant::now());
    }

    /// Whoever has a place under this key asks for it again, and counts by themselves.
    fn resume(&self, key: &IdempotencyHash) {
        self.lock().places.remove(key);
    }

    /// How many wait or may come back, if so many are parked. Nobody counts twice.
    pub(super) fn with(&self, parked: usize) -> usize {
        let mut kept = self.lock();
        kept.sweep(Instant::now());
        (parked + kept.places.len()).saturating_sub(kept.parked.len())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Engine ===

impl Engine {
    /// A request under this key has ended without the lock, or its caller has gone: if it stood in the
    /// queue, its place is kept for the reconnect grace, and counts for that long among those who wait.
    pub fn keep_place(&self, key: IdempotencyHash, counted: Option<Slot>) {
        let until = Instant::now() + self.reconnect_grace;
        self.kept_places.keep(key, until, counted);
    }

    /// A request under this key has come, and counts by itself.
    pub fn resume_place(&self, key: &IdempotencyHash) {
        self.kept_places.resume(key);
    }
}

// === impl Kept ===

impl Kept {
    fn sweep(&mut self, now: Instant) {
        self.places.retain(|_, place| place.until > now);
        self.parked.retain(|_, (until, _)| *until > now);
    }
}
