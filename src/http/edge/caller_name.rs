//! Who calls, told to the log by those who find it out.

use std::sync::{Arc, OnceLock};

/// The name of the caller's API key, once it is known. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct CallerName(Arc<OnceLock<Arc<str>>>);

// === impl CallerName ===

impl CallerName {
    /// Tells it. The first one counts.
    pub(in crate::http) fn set(&self, name: Arc<str>) {
        let _ = self.0.set(name);
    }

    pub(super) fn get(&self) -> Option<&str> {
        self.0.get().map(|name| &**name)
    }
}
