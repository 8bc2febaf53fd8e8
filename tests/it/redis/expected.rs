//! What a lock that nobody waits for looks like.

use latchgate::{
    lock::ForeignMark,
    store::contract::{Contention, Holder, Inspection},
};

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

/// A foreign client holds it for ever, and has written something with this SHA-1.
pub(crate) fn foreign(sha1: &str) -> Holder {
    Holder::Foreign {
        expires_in: None,
        mark: Some(ForeignMark::new(sha1).unwrap()),
    }
}

/// Somebody is in the way, and nobody else waits.
pub(crate) fn contention(holder: Holder) -> Contention {
    Contention {
        holder: Some(holder),
        waiters: 0,
    }
}
