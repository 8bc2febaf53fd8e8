//! Places in a queue that are kept for those who have gone and may ask again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

use crate::{auth::LimitSlot, lock::IdempotencyHash, store::parking::Parked};

use super::Engine;

/// The places that are kept through this gateway, each for as long as its reconnect grace. They count
/// among those who wait: else whoever hangs up again and again would have as many as they like.
#[derive(Debug, Default)]
pub(super) struct ReservedPositions(Mutex<Reserved>);

#[derive(Debug, Default)]
struct Reserved {
    positions: HashMap<IdempotencyHash, ReservedPosition>,
    /// How many there may be before what is over is struck off.
    sweep_at: usize,
}

/// A place that is kept, and all that is kept with it.
#[derive(Debug)]
struct ReservedPosition {
    until: Instant,
    /// What it counts as among those who wait, until somebody asks for it again.
    counted: Option<CountedWaiter>,
    /// The place of an attempt that the store was not told of: it must stay parked.
    parked: Option<Parked>,
}

/// One of those who wait; with what it counts as among the limits of its API key.
#[derive(Debug)]
struct CountedWaiter(
    #[expect(dead_code, reason = "it counts for as long as it is kept")] Option<LimitSlot>,
);

/// As few as these are not worth sweeping.
const SWEEP_FROM: usize = 64;

// === impl ReservedPositions ===

impl ReservedPositions {
    /// A place is kept until then.
    fn reserve(&self, key: IdempotencyHash, until: Instant, counted: Option<LimitSlot>) {
        let mut reserved = self.lock();
        reserved.position(key, until).counted = Some(CountedWaiter(counted));
        if reserved.positions.len() > reserved.sweep_at.max(SWEEP_FROM) {
            reserved.sweep(Instant::now());
            reserved.sweep_at = 2 * reserved.positions.len();
        }
    }

    /// A place stays parked until then, also when somebody has asked for it again: what it is granted in
    /// between is theirs.
    pub(super) fn park(&self, key: IdempotencyHash, until: Instant, mut parked: Parked) {
        // It counts here, if at all.
        parked.keep();
        self.lock().position(key, until).parked = Some(parked);
    }

    /// Lets go of what is over.
    pub(super) fn remove_expired(&self) {
        self.lock().sweep(Instant::now());
    }

    /// Whoever has a place under this key asks for it again, and counts by themselves.
    fn resume(&self, key: &IdempotencyHash) {
        let mut reserved = self.lock();
        if let Some(position) = reserved.positions.get_mut(key) {
            position.counted = None;
            if position.parked.is_none() {
                reserved.positions.remove(key);
            }
        }
    }

    /// How many wait or may come back, if so many wait. Nobody counts twice.
    pub(super) fn total_with(&self, waiting: usize) -> usize {
        let mut reserved = self.lock();
        reserved.sweep(Instant::now());
        let counted = reserved
            .positions
            .values()
            .filter(|it| it.counted.is_some());
        waiting + counted.count()
    }

    fn lock(&self) -> MutexGuard<'_, Reserved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Engine ===

impl Engine {
    /// A request under this key has ended without the lock, or its caller has gone: if it stood in the
    /// queue, its place is kept for the reconnect grace, and counts for that long among those who wait.
    pub fn reserve_position(&self, key: IdempotencyHash, counted: Option<LimitSlot>) {
        let until = Instant::now() + self.0.reconnect_grace;
        self.0.reserved_positions.reserve(key, until, counted);
    }

    /// A request under this key has come, and counts by itself.
    pub fn resume_position(&self, key: &IdempotencyHash) {
        self.0.reserved_positions.resume(key);
    }
}

// === impl Reserved ===

impl Reserved {
    /// The place under a key, which is kept at least until then.
    fn position(&mut self, key: IdempotencyHash, until: Instant) -> &mut ReservedPosition {
        let position = self.positions.entry(key).or_insert(ReservedPosition {
            until,
            counted: None,
            parked: None,
        });
        position.until = position.until.max(until);
        position
    }

    fn sweep(&mut self, now: Instant) {
        self.positions.retain(|_, position| position.until > now);
    }
}
