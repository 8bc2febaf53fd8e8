//! One key: who it is for, what it permits, and how much.

use std::{sync::Arc, time::SystemTime};

use crate::lock::Ttl;

use super::{ApiKeyHash, ApiKeyId, Permissions};

/// One key of a keys file. It holds hashes, never a secret.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyEntry {
    /// What it is called, in logs and as the scope of idempotency keys.
    pub name: Arc<str>,
    /// The secrets that are this key: two while one takes over from the other.
    pub secrets: Vec<KeySecret>,
    /// What it permits.
    pub permissions: Permissions,
    /// When it ends, if it does.
    pub expires_at: Option<SystemTime>,
    /// How much it may have.
    pub limits: KeyLimits,
}

/// One secret of a key.
#[derive(Debug, Clone, Copy)]
pub struct KeySecret {
    /// Its public id.
    pub id: ApiKeyId,
    /// Its hash.
    pub hash: ApiKeyHash,
}

/// How much a key may have; `None` is no limit of its own, or, for what takes a connection, the
/// default. All are counted per gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KeyLimits {
    /// The longest TTL that it may ask for.
    pub max_ttl: Option<Ttl>,
    /// How often it may ask. Renew and release are not counted.
    pub rate: Option<Rate>,
    /// How many leases it may have, with those that it is just asking or waiting for.
    pub max_leases: Option<usize>,
    /// How many of its requests may wait.
    pub max_waiters: Option<usize>,
    /// How many streams it may have.
    pub max_streams: Option<usize>,
}

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// In the long run.
    pub per_second: f64,
    /// At once, after a pause.
    pub burst: f64,
}

// === impl KeyLimits ===

impl KeyLimits {
    /// How many of its requests may wait, and how many streams it may have, if its entry does not say:
    /// a quarter each of the connections that a gateway takes by default, so that no key alone takes
    /// all of them.
    pub const DEFAULT_LASTING: usize = 4_000;
}

// === impl KeySecret ===

impl PartialEq for KeySecret {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.hash.is(&other.hash)
    }
}

// === impl KeyEntry ===

impl KeyEntry {
    /// Whether it has ended by then.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}
