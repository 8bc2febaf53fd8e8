//! Places in a queue that are kept for those who have gone and may ask again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

use crate::{auth::Slot, lock::IdempotencyHash, store::parking::Parked};

use super::Engine;

/// The places that are kept through this gateway, each for as long as its reconnect grace. They count
/// among those who wait: else whoever hangs up again and again would have as many as they like.
#[derive(Debug, Default)]
pub(super) struct KeptPlaces(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    places: HashMap<IdempotencyHash, KeptPlace>,
    /// How many there may be before what is over is struck off.
    sweep_at: usize,
}

/// A place that is kept, and all that is kept with it.
#[derive(Debug)]
struct KeptPlace {
    until: Instant,
    /// What it counts as among those who wait, until somebody asks for it again.
    counted: Option<Counted>,
    /// The place of an attempt that the store was not told of: it must stay parked.
    parked: Option<Parked>,
}

/// One of those who wait; with what it counts as among the limits of its API key.
#[derive(Debug)]
struct Counted(#[expect(dead_code, reason = "it counts for as long as it is kept")] Option<Slot>);

/// As few as these are not worth sweeping.
const SWEEP_FROM: usize = 64;

// === impl KeptPlaces ===

impl KeptPlaces {
    /// A place is kept until then.
    fn keep(&self, key: IdempotencyHash, until: Instant, counted: Option<Slot>) {
        let mut kept = self.lock();
        kept.place(key, until).counted = Some(Counted(counted));
        if kept.places.len() > kept.sweep_at.max(SWEEP_FROM) {
            kept.sweep(Instant::now());
            kept.sweep_at = 2 * kept.places.len();
        }
    }

    /// A place stays parked until then, also when somebody has asked for it again: what it is granted in
    /// between is theirs.
    pub(super) fn park(&self, key: IdempotencyHash, until: Instant, mut parked: Parked) {
        // It counts here, if at all.
        parked.keep();
        self.lock().place(key, until).parked = Some(parked);
    }

    /// Lets go of what is over.
    pub(super) fn let_go(&self) {
        self.lock().sweep(Instant::now());
    }

    /// Whoever has a place under this key asks for it again, and counts by themselves.
    fn resume(&self, key: &IdempotencyHash) {
        let mut kept = self.lock();
        if let Some(place) = kept.places.get_mut(key) {
            place.counted = None;
            if place.parked.is_none() {
                kept.places.remove(key);
            }
        }
    }

    /// How many wait or may come back, if so many wait. Nobody counts twice.
    pub(super) fn with(&self, waiting: usize) -> usize {
        let mut kept = self.lock();
        kept.sweep(Instant::now());
        let counted = kept.places.values().filter(|it| it.counted.is_some());
        waiting + counted.count()
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
        let until = Instant::now() + self.0.reconnect_grace;
        self.0.kept_places.keep(key, until, counted);
    }

    /// A request under this key has come, and counts by itself.
    pub fn resume_place(&self, key: &IdempotencyHash) {
        self.0.kept_places.resume(key);
    }
}

// === impl Kept ===

impl Kept {
    /// The place under a key, which is kept at least until then.
    fn place(&mut self, key: IdempotencyHash, until: Instant) -> &mut KeptPlace {
        let place = self.places.entry(key).or_insert(KeptPlace {
            until,
            counted: None,
            parked: None,
        });
        place.until = place.until.max(until);
        place
    }

    fn sweep(&mut self, now: Instant) {
        self.places.retain(|_, place| place.until > now);
    }
}
