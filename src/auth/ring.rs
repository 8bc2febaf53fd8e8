//! All keys of a gateway.

use std::{collections::HashMap, sync::Arc};

use super::{ApiKey, ApiKeyHash, ApiKeyId, KeyEntry};

/// All keys of a gateway, by the ids of their secrets.
#[derive(Debug, Default)]
pub struct KeyRing {
    keys: Vec<Arc<KeyEntry>>,
    by_id: HashMap<ApiKeyId, (ApiKeyHash, Arc<KeyEntry>)>,
}

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

    /// The key that somebody has shown. An id that nobody has takes the same work as a wrong secret.
    pub(super) fn find(&self, shown: &ApiKey) -> Option<&Arc<KeyEntry>> {
        let found = self.by_id.get(&shown.id());
        let kept = found.map_or(&ApiKeyHash::OF_NOBODY, |(hash, _)| hash);
        let is_right = kept.is(&shown.hash());
        found.filter(|_| is_right).map(|(_, key)| key)
    }

    /// The key that has a secret with this id.
    pub(super) fn with_secret(&self, id: ApiKeyId) -> Option<&Arc<KeyEntry>> {
        self.by_id.get(&id).map(|(_, key)| key)
    }
}
