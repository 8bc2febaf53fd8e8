//! For how long somebody may have what was asked for.

use crate::lock::{LockName, Ttl};

use super::{Access, Permission};

/// For how long somebody may wait for a lock, or have it kept: until the key is gone, its secret is
/// taken out of it, it has expired, or it may no longer acquire that lock.
#[derive(Debug, Clone, Default)]
pub struct Authorization(Option<(Access, LockName)>);

// === impl Authorization ===

impl Authorization {
    /// The warrant of somebody with that access to acquire a lock.
    pub(super) fn of(access: Access, name: LockName) -> Self {
        Self(Some((access, name)))
    }

    /// Whether it still stands.
    pub fn is_valid(&self) -> bool {
        let Some((access, name)) = &self.0 else {
            return true;
        };
        access.still_permits(Permission::Acquire, Some(name))
    }

    /// The longest TTL that goes with it, if there is one.
    pub fn max_ttl(&self) -> Option<Ttl> {
        let (access, _) = self.0.as_ref()?;
        access.max_ttl()
    }

    /// Ends when it no longer stands; within seconds of an expiry, at once after a change of the
    /// keys. Safe to drop and call again.
    pub async fn revoked(&self) {
        let Some((access, _)) = &self.0 else {
            return std::future::pending().await;
        };
        loop {
            // Before the look at it: a change in between is not missed. In a box: who needs no key
            // has no room for it.
            let changed = Box::pin(access.changed());
            if !self.is_valid() {
                return;
            }
            changed.await;
        }
    }
}
