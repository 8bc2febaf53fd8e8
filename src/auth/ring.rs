//! All keys of a gateway.

use std::{collections::HashMap, sync::Arc};

use crate::audit::ReloadedKeys;

use super::{ApiKey, ApiKeyHash, ApiKeyId, KeyEntry};

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
