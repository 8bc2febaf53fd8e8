//! Lets callers in by their keys.

use std::{net::IpAddr, sync::Arc};

use tokio::sync::watch;

use crate::{clock::Clock, config::AuthConfig, lock::LockName};

use super::{Access, ApiKey, ApiKeyError, ApiKeyId, KeyRing, Permission, Refusal};

/// Lets callers in by their keys, or everybody if there are none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Gate(Option<Arc<Guarded>>);

#[derive(Debug)]
struct Guarded {
    ring: watch::Sender<Arc<KeyRing>>,
    clock: Arc<dyn Clock>,
}

// === impl Gate ===

impl Gate {
    /// A gate that lets everybody in.
    pub fn open() -> Self {
        Self(None)
    }

    /// A gate that lets in who has one of these keys. `clock` decides which of them have expired.
    pub fn guarded(ring: KeyRing, _config: &AuthConfig, clock: Arc<dyn Clock>) -> Self {
        Self(Some(Arc::new(Guarded {
            ring: watch::Sender::new(Arc::new(ring)),
            clock,
        })))
    }

    /// Whether it lets everybody in.
    pub fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Lets somebody in who shows this, from this address.
    pub fn admit(&self, shown: Option<&str>, _from: Option<IpAddr>) -> Result<Access, Refusal> {
        let Some(guarded) = &self.0 else {
            return Ok(Access::ANYBODY);
        };
        let key = ApiKey::parse(shown.ok_or(Refusal::NoKey)?).map_err(|error| match error {
            ApiKeyError::NotAKey => Refusal::NotAKey,
            ApiKeyError::Damaged => Refusal::Damaged,
        })?;
        let ring = Arc::clone(&guarded.ring.borrow());
        match ring.find(&key) {
            Some(entry) if !entry.is_expired(guarded.clock.wall()) => {
                Ok(Access::with(Arc::clone(entry), key.id(), self.clone()))
            }
            _ => Err(Refusal::Unknown),
        }
    }

    /// Whether a secret that was let in before may still do something.
    pub(super) fn still_permits(
        &self,
        secret: ApiKeyId,
        permission: Permission,
        name: Option<&LockName>,
    ) -> bool {
        let Some(guarded) = &self.0 else { return true };
        let ring = guarded.ring.borrow();
        ring.with_secret(secret).is_some_and(|key| {
            !key.is_expired(guarded.clock.wall()) && key.permits(permission, name)
        })
    }
}
