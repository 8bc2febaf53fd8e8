//! The API keys of a gateway: their permissions and limits, and the search for the key that a caller has sent.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use crate::{audit::ReloadedKeys, lock::Ttl};

use super::{
    ApiKey, ApiKeyHash, ApiKeyId, Permissions, Prefixes, SignIn,
    oidc::{ExchangeRules, ExchangedContent, Issuer, Rendered},
};

/// One API key of a keys file. The entry holds hashes, never a secret.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyEntry {
    /// The name of the key, for logs and as the scope of idempotency keys.
    pub name: Arc<str>,
    /// The secrets of the key: two while one replaces the other, and none if ID tokens are exchanged for the key.
    pub secrets: Vec<KeySecret>,
    /// The permissions of the key.
    pub permissions: Permissions,
    /// When the key expires; `None` for never.
    pub expires_at: Option<SystemTime>,
    /// The limits of the key.
    pub limits: KeyLimits,
    /// The limits of each caller that the key admits by ID tokens; `limits` are the sum.
    pub per_caller: KeyLimits,
    /// The rules by which ID tokens are exchanged for the key, if it has no secrets.
    pub exchange: Option<Arc<ExchangeRules>>,
}

/// One secret of an API key.
#[derive(Debug, Clone, Copy)]
pub struct KeySecret {
    /// The public id of the secret.
    pub id: ApiKeyId,
    /// The hash of the secret.
    pub hash: ApiKeyHash,
}

/// The limits of an API key, each counted per gateway. `None` means no limit, or, for waiters and streams, the
/// default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KeyLimits {
    /// The longest TTL that the key may ask for.
    pub max_ttl: Option<Ttl>,
    /// How often the key may send requests. Renew and release are not counted.
    pub rate: Option<Rate>,
    /// How many leases the key may have, including requests that ask or wait for a lease.
    pub max_leases: Option<usize>,
    /// How many requests with the key may wait at once.
    pub max_waiters: Option<usize>,
    /// How many streams the key may have open at once.
    pub max_streams: Option<usize>,
}

/// The rate at which an API key may send requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many requests per second may come in the long run.
    pub per_second: f64,
    /// How many requests may come at once, after a pause.
    pub burst: f64,
}

// === impl KeyLimits ===

impl KeyLimits {
    /// How many requests with a key may wait, and how many streams the key may have, if its entry does not say: a
    /// quarter each of the connections that a gateway takes by default, so that no key alone takes all of them.
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
    /// Whether the key has expired at `now`.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// The key for the caller with these claims in lock names. A template that is newer than the exchange counts from the
    /// next exchange on.
    #[must_use]
    pub fn with_claims(&self, rules: &ExchangeRules, rendered: &Rendered) -> Self {
        let mut key = self.clone();
        for (permission, template) in &rules.names {
            let prefix = rendered.prefixes.get(template.as_str());
            let names = key.permissions.names(*permission).iter();
            let names = Prefixes::new(names.chain(prefix.map(String::as_str)));
            if let Ok(names) = names {
                key.permissions.grant(*permission, names);
            }
        }
        key
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
    by_name: HashMap<Arc<str>, Arc<KeyEntry>>,
    issuers: Vec<Arc<Issuer>>,
    sign_in: Option<Arc<SignIn>>,
}

/// How many added, removed or changed keys an audit entry names at most, so that its line stays readable.
const MOST_NAMED: usize = 1_000;

// === impl KeyRing ===

impl KeyRing {
    /// Makes a ring of keys, whose names and secret ids must be different.
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
        let named = |key: &Arc<KeyEntry>| (Arc::clone(&key.name), Arc::clone(key));
        Self {
            by_name: keys.iter().map(named).collect(),
            keys,
            by_id,
            issuers: Vec::new(),
            sign_in: None,
        }
    }

    /// Adds the issuers of the keys, and how people sign in.
    #[must_use]
    pub(super) fn with_issuers(
        self,
        issuers: Vec<Arc<Issuer>>,
        sign_in: Option<Arc<SignIn>>,
    ) -> Self {
        Self {
            issuers,
            sign_in,
            ..self
        }
    }

    /// How people sign in at an issuer, if they can.
    pub fn sign_in(&self) -> Option<&Arc<SignIn>> {
        self.sign_in.as_ref()
    }

    /// The issuer of this name.
    pub(super) fn issuer(&self, name: &str) -> Option<&Arc<Issuer>> {
        self.issuers.iter().find(|it| *it.settings.name == *name)
    }

    /// The issuers whose ID tokens are exchanged.
    pub fn issuers(&self) -> &[Arc<Issuer>] {
        &self.issuers
    }

    /// Takes the issuers of an earlier ring over that are the same, with the keys that were fetched for them.
    pub(super) fn keep_issuers(&mut self, earlier: &Self) {
        for issuer in &mut self.issuers {
            let same = earlier
                .issuers
                .iter()
                .find(|it| it.settings == issuer.settings && !it.is_pinned());
            if let Some(same) = same {
                // An operator who makes the gateway read its file again may know of new keys.
                same.make_due();
                *issuer = Arc::clone(same);
            }
        }
    }

    /// The key for the caller with this exchanged key, if the exchanged key counts.
    pub(super) fn with_exchanged(&self, content: &ExchangedContent) -> Option<Arc<KeyEntry>> {
        let key = self.by_name.get(&*content.name)?;
        let rules = key
            .exchange
            .as_deref()
            .filter(|rules| rules.admits(content))?;
        Some(if rules.names.is_empty() {
            Arc::clone(key)
        } else {
            Arc::new(key.with_claims(rules, &content.rendered))
        })
    }

    /// The API keys for which ID tokens of this issuer are exchanged, in the order of the keys file.
    pub fn exchanging(&self, issuer: &str) -> impl Iterator<Item = (&KeyEntry, &ExchangeRules)> {
        let keys = self.keys.iter();
        let found = keys.filter_map(|key| Some((&**key, key.exchange.as_deref()?)));
        found.filter(move |(_, rules)| *rules.issuer == *issuer)
    }

    /// Every API key, in the order of the keys file.
    pub fn keys(&self) -> &[Arc<KeyEntry>] {
        &self.keys
    }

    /// The names of the keys that differ from those of an earlier ring: added, removed or changed.
    pub(super) fn changes_since(&self, before: &Self) -> ReloadedKeys {
        let (old, new) = (&before.by_name, &self.by_name);
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

    /// Finds the key that a caller has sent. An unknown id takes as much work as a wrong secret.
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
