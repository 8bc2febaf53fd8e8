//! The query of `/events`.

use crate::{
    http::extract::{Fields, Query, prefix},
    lock::NamePrefix,
};

/// Which locks are listened to.
pub(in crate::http) struct EventsQuery {
    pub(super) prefix: NamePrefix,
}

// === impl EventsQuery ===

impl Query for EventsQuery {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            prefix: prefix(fields),
        }
    }
}
