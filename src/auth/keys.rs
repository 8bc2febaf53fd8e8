//! The keys of a gateway: what each permits and how much, and which of them was shown.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use crate::{audit::ReloadedKeys, lock::Ttl};

use super::{ApiKey, ApiKeyHash, ApiKeyId, Permissions};

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

// === Key ring ===
//
// All keys of a gateway.

/// All keys of a gateway, by the ids of their secrets.
#[derive(Debug, Default)]
pub struct KeyRing {
    keys: Vec<Arc<KeyEntry>>,
    by_id: HashMap<ApiKeyId, (ApiKeyHash, Arc<KeyEntry>)>,
}

/// How many names of a kind are told: a line of the audit log stays a line that can be read.
const MOST_NAMED: usize = 1_000;

// === impl KeyRing ===

impl KeyRing {
    /// A ring of keys with different names and different ids.
    pub fn new(keys: impl IntoIterator<Item = KeyEntry>) -> Self {
        let keys: Vec<_> = keys.into_iter().map(Arc::new).collect();
        let secrets = |key: &Arc<KeyEntry>| {
            let key = Arc::clone(key);
            let secrets = key.secrets.clone();
            secrets
                .into_iter()
                .map(move |secret| (secret.id, (secret.hash, Arc::clone(&key))))
        };
        let by_id = keys.iter().flat_map(secrets).collect();
        Self { keys, by_id }
    }

    /// Every key, in the order of the file.
    pub fn keys(&self) -> &[Arc<KeyEntry>] {
        &self.keys
    }

    /// What is new since another ring, by name.
    pub(super) fn changes_since(&self, before: &Self) -> ReloadedKeys {
        let by_name = |ring: &Self| -> HashMap<Arc<str>, Arc<KeyEntry>> {
            let named = |key: &Arc<KeyEntry>| (Arc::clone(&key.name), Arc::clone(key));
            ring.keys.iter().map(named).collect()
        };
        let (old, new) = (by_name(before), by_name(self));
        let names = |keys: &[Arc<KeyEntry>], is_such: &dyn Fn(&Arc<KeyEntry>) -> bool| {
            let such = keys.iter().filter(|key| is_such(key));
            such.map(|key| Arc::clone(&key.name))
                .take(MOST_NAMED)
                .collect()
        };
        ReloadedKeys {
            count: self.keys.len(),
            added: names(&self.keys, &|key| !old.contains_key(&key.name)),
            removed: names(&before.keys, &|key| !new.contains_key(&key.name)),
            changed: names(&self.keys, &|key| {
                old.get(&key.name).is_some_and(|old| old != key)
            }),
        }
    }

    /// The key that somebody has shown. An id that nobody has takes the same work as a wrong secret.
    pub(super) fn find(&self, presented: &ApiKey) -> Option<&Arc<KeyEntry>> {
        let found = self.by_id.get(&presented.id());
        let kept = found.map_or(&ApiKeyHash::OF_NOBODY, |(hash, _)| hash);
        let is_right = kept.is(&presented.hash());
        found.filter(|_| is_right).map(|(_, key)| key)
    }

    /// The key that has a secret with this id.
    pub(super) fn with_secret(&self, id: ApiKeyId) -> Option<&Arc<KeyEntry>> {
        self.by_id.get(&id).map(|(_, key)| key)
    }
}
