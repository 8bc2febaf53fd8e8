//! What a request that may wait counts as among the limits of its API key.

use crate::{
    auth::{Access, LimitSlot},
    engine::{AcquireRequest, Engine},
    http::problem::Problem,
    lock::IdempotencyHash,
};

/// A request that may wait. Dropped, it counts no more, but for one with an idempotency key that was
/// not granted the lock: its place is kept for a while, and counts for that long.
pub(super) struct WaiterCount {
    slot: Option<LimitSlot>,
    /// In a box: most have no key, and no room for it.
    keeps: Option<Box<(Engine, IdempotencyHash)>>,
}

// === impl WaiterCount ===

impl WaiterCount {
    /// Counts a request, in the place of an earlier one under its key.
    pub(super) fn of(
        engine: &Engine,
        caller: &Access,
        request: &AcquireRequest,
    ) -> Result<Self, Problem> {
        let key = request.idempotency_key.as_ref();
        let key = key.map(|key| key.hash(&request.caller, &request.name));
        if let Some(key) = &key {
            engine.resume_position(key);
        }
        if request.wait.is_zero() {
            return Ok(Self {
                slot: None,
                keeps: None,
            });
        }
        Ok(Self {
            slot: caller.waiter()?,
            keeps: key.map(|key| Box::new((engine.clone(), key))),
        })
    }

    /// It was granted the lock, or nothing is kept for it.
    pub(super) fn finish(&mut self) {
        self.slot = None;
        self.keeps = None;
    }
}

impl Drop for WaiterCount {
    fn drop(&mut self) {
        if let Some(keeps) = self.keeps.take() {
            let (engine, key) = *keeps;
            engine.reserve_position(key, self.slot.take());
        }
    }
}
