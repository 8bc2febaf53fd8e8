//! What the sentinels have said last, and what came of it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::store::Unavailability;

use super::master::Master;

/// What the sentinels have said last, and what came of it.
#[derive(Clone)]
pub(super) struct CachedLookup {
    pub(super) at: Instant,
    pub(super) outcome: MasterLookup,
}

/// The master, and whether a sentinel has named it; or why there is none.
pub(super) type MasterLookup = Result<(Arc<Master>, bool), Unavailability>;
