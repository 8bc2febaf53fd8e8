//! What the sentinels have said last, and what came of it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::store::Unavailability;

use super::master::Master;

/// What the sentinels have said last, and what came of it.
#[derive(Clone)]
pub(super) struct Word {
    pub(super) at: Instant,
    pub(super) outcome: Outcome,
}

/// The master, and whether a sentinel has named it; or why there is none.
pub(super) type Outcome = Result<(Arc<Master>, bool), Unavailability>;
