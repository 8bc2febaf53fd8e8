//! What a lock that nobody waits for looks like.

use latchgate::store::contract::{Contention, Holder, Inspection};

/// Nobody holds it.
pub(crate) fn free() -> Inspection {
    Inspection {
        holder: None,
        queue: Vec::new(),
        waiters: 0,
    }
}

/// Somebody holds it.
pub(crate) fn held_by(holder: Holder) -> Inspection {
    Inspection {
        holder: Some(holder),
        ..free()
    }
}

/// Somebody is in the way, and nobody else waits.
pub(crate) fn contention(holder: Holder) -> Contention {
    Contention {
        holder: Some(holder),
        waiters: 0,
    }
}
