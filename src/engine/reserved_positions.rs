//! Positions in a queue that are kept for callers that have gone and may repeat their requests.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{auth::LimitSlot, lock::IdempotencyHash, store::parking::Parked};

/// The positions that this gateway keeps, each for its reconnect grace. Each position counts as a waiter: otherwise a
/// caller that hangs up again and again could have any number of positions.
#[derive(Debug, Default)]
pub(super) struct ReservedPositions(Mutex<Reserved>);

#[derive(Debug, Default)]
struct Reserved {
    positions: HashMap<IdempotencyHash, ReservedPosition>,
    /// How many positions may be in the list before expired positions are removed.
    sweep_at: usize,
}

/// The position of one caller that has gone, kept for its reconnect grace.
#[derive(Debug)]
struct ReservedPosition {
    until: Instant,
    /// Counts the position as a waiter; `None` once its request was repeated, which counts as a waiter itself.
    counted: Option<CountedWaiter>,
    /// An attempt whose position the store could not be asked to keep, and the time until which it must stay parked
    /// (able to receive a grant).
    parked: Option<(Parked, Instant)>,
}

/// Counts one waiter until it is dropped, with the slot that it takes in the limit of its API key.
#[derive(Debug)]
struct CountedWaiter(
    #[expect(dead_code, reason = "the slot counts the waiter until it is dropped")]
    Option<LimitSlot>,
);

/// With no more kept positions than this, a search for expired positions is not worth its cost.
const SWEEP_FROM: usize = 64;

// === impl ReservedPositions ===

impl ReservedPositions {
    /// Keeps the position in the queue that a request with this key has left, until the given time.
    pub(super) fn reserve(&self, key: IdempotencyHash, until: Instant, counted: Option<LimitSlot>) {
        let mut reserved = self.0.lock();
        reserved.position(key, until).counted = Some(CountedWaiter(counted));
        if reserved.positions.len() > reserved.sweep_at.max(SWEEP_FROM) {
            reserved.sweep(Instant::now());
            reserved.sweep_at = 2 * reserved.positions.len();
        }
    }

    /// Keeps an attempt parked (able to receive a grant) until the given time, even if its request is repeated: a
    /// lease that is granted to the attempt in between belongs to the repeated request.
    pub(super) fn park(&self, key: IdempotencyHash, until: Instant, mut parked: Parked) {
        // The position counts as a waiter in this list, if at all, so the parked attempt must not count again.
        parked.keep();
        self.0.lock().position(key, until).parked = Some((parked, until));
    }

    /// Removes kept positions whose reconnect grace is over.
    pub(super) fn remove_expired(&self) {
        self.0.lock().sweep(Instant::now());
    }

    /// Stops counting the position, because its request was repeated and counts as a waiter itself.
    pub(super) fn resume(&self, key: &IdempotencyHash) {
        let mut reserved = self.0.lock();
        if let Some(position) = reserved.positions.get_mut(key) {
            position.counted = None;
            if position.parked.is_none() {
                reserved.positions.remove(key);
            }
        }
    }

    /// Whether fewer than `most` callers wait or may come back, if `waiting` callers wait now.
    pub(super) fn has_room_beside(&self, waiting: usize, most: usize) -> bool {
        // An upper bound first: positions are swept and counted only where room is short.
        let reserved = self.0.lock().positions.len();
        waiting + reserved < most || self.total_with(waiting) < most
    }

    /// How many callers wait or may come back, if `waiting` callers wait now. No caller counts twice.
    pub(super) fn total_with(&self, waiting: usize) -> usize {
        let mut reserved = self.0.lock();
        reserved.sweep(Instant::now());
        let counted = reserved
            .positions
            .values()
            .filter(|it| it.counted.is_some());
        waiting + counted.count()
    }
}

// === impl Reserved ===

impl Reserved {
    /// The kept position of a key, created if there is none. The position is kept at least until the given time.
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
        self.positions.retain(|_, position| {
            // A repeated request whose caller has gone again prolongs the position, but not the parking of the
            // attempt.
            position.parked.take_if(|(_, until)| *until <= now);
            position.until > now
        });
    }
}
