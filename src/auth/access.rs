//! Somebody who was let in, and what they may do.

use std::sync::Arc;

use crate::lock::{CallerId, LockName};

use super::{ApiKeyId, Gate, KeyEntry, Permission};

/// Somebody who was let in: with a key, or, at a gateway without keys, anybody. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Access(Option<Known>);

#[derive(Debug, Clone)]
struct Known {
    key: Arc<KeyEntry>,
    secret: ApiKeyId,
    gate: Gate,
}

// === impl Access ===

impl Access {
    /// Anybody, at a gateway without keys: everything is permitted.
    pub const ANYBODY: Self = Self(None);

    pub(super) fn with(key: Arc<KeyEntry>, secret: ApiKeyId, gate: Gate) -> Self {
        Self(Some(Known { key, secret, gate }))
    }

    /// The scope of idempotency keys: the name of the key, so that a new secret changes nothing.
    pub fn id(&self) -> CallerId {
        match &self.0 {
            None => CallerId::ANONYMOUS,
            Some(known) => CallerId::of_key(Arc::clone(&known.key.name)),
        }
    }

    /// The name of the key.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.key().map(|key| &key.name)
    }

    /// The key, as it was when it was shown.
    pub fn key(&self) -> Option<&Arc<KeyEntry>> {
        self.0.as_ref().map(|known| &known.key)
    }

    /// Whether something is permitted on a name; without a name, whether it is on any.
    pub fn permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        self.key().is_none_or(|key| key.permits(permission, name))
    }

    /// Whether it may see a lock, as the key was when it was shown: for a list.
    pub fn views(&self, name: &LockName) -> bool {
        self.permits(Permission::View, Some(name))
    }

    /// Whether it may see a lock now: for a stream, which outlives changes of the keys file. False
    /// for every name once the key is gone.
    pub fn still_views(&self, name: &LockName) -> bool {
        self.still_permits(Permission::View, Some(name))
    }

    /// The same for any permission.
    pub fn still_permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        let Some(known) = &self.0 else { return true };
        known.gate.still_permits(known.secret, permission, name)
    }
}
