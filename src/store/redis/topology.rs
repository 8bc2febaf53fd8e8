//! Which server a slot lives on.

use super::{Slot, pool::Pool};

/// The servers of the store.
#[derive(Debug)]
pub(super) enum Topology {
    /// One server has every slot.
    Single(Pool),
}

// === impl Topology ===

impl Topology {
    /// The pool of the server that has this slot.
    pub(super) fn pool(&self, _slot: Slot) -> &Pool {
        match self {
            Self::Single(pool) => pool,
        }
    }

    /// The pool of a server on which messages of all the others are heard.
    pub(super) fn messenger(&self) -> &Pool {
        match self {
            Self::Single(pool) => pool,
        }
    }

    /// Ends when a new connection to any server has been made.
    pub(super) async fn connected(&self) {
        match self {
            Self::Single(pool) => pool.connected().await,
        }
    }

    /// The pool of every server.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Pool> {
        match self {
            Self::Single(pool) => std::iter::once(pool),
        }
    }
}
