//! What stands between an attempt and a lock, as the scripts tell it.

use crate::store::{
    StoreError,
    contract::{Contention, Holder},
};

use super::{super::keys::Keys, Reply};

// === impl Reply ===

impl Reply {
    /// The contention in the fields that follow.
    pub(super) fn contention(&mut self, keys: &Keys) -> Result<Contention, StoreError> {
        let waiters = self.integer().and_then(|count| u64::try_from(count).ok());
        let waiters = waiters.ok_or_else(|| self.unexpected())?;
        let holder = match self.text().as_deref() {
            Some("held") => Some(Holder::Lease(self.held(keys)?)),
            Some("foreign") => Some(self.foreign().ok_or_else(|| self.unexpected())?),
            Some("passing") => None,
            _ => return Err(self.unexpected()),
        };
        Ok(Contention { holder, waiters })
    }
}
