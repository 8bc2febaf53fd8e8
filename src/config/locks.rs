//! Declared locks (`[locks]`): the file in which an operator sets the terms of locks, whatever their callers say.

use std::{collections::HashMap, collections::HashSet, path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toml::Spanned;
use utoipa::ToSchema;

use crate::{
    bounded_file,
    lock::{Limit, LockName, MinHold, NamePrefix, Reason, Ttl},
};

use super::{LimitsConfig, ServersKind, StoreUrl};

/// Declared locks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LocksConfig {
    /// The TOML file that declares locks, a `[[lock]]` table for each: limit, minimum hold and other
    /// terms that hold whatever a request says (docs/declared-locks.md). Empty for no declared locks.
    /// The gateway reads the file again on a HUP signal and when it has changed. Give all gateways on
    /// one store the same declarations.
    pub file: String,
}

/// One `[[lock]]` table of the locks file: the terms of a lock, or of each lock whose name begins with a prefix. Requests
/// choose the terms that the table leaves out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredLock {
    /// The name of the lock; null in the declaration of a prefix.
    pub name: Option<String>,
    /// The prefix of the locks, to each of which the terms apply; null in the declaration of a name.
    pub prefix: Option<String>,
    /// How requests hold the lock.
    pub mode: Option<DeclaredMode>,
    /// How many leases may share the lock.
    pub limit: Option<u64>,
    /// For how long after each grant the lock, or the slot of the lease, is granted to no other caller.
    pub min_hold_ms: Option<u64>,
    /// The longest TTL that a request may name.
    pub max_ttl_ms: Option<u64>,
    /// The longest hold limit that a request may name; that of a request that names none.
    pub max_hold_ms: Option<u64>,
    /// Whether each request must say the order of its work.
    pub order: Option<Required>,
    /// Whether no request may hold the shared lock alone.
    pub exclusive: Option<Refuse>,
    /// What the lock protects, or why it has these terms: a text for people to read.
    pub description: Option<String>,
}

/// How requests hold a declared lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeclaredMode {
    /// Each lease holds the lock alone.
    Exclusive,
    /// A lease shares the lock, unless its request asks for the lock alone.
    Shared,
}

/// A request without the field is refused.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Required {
    /// A request without the field is refused.
    Required,
}

/// Such requests are refused.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Refuse {
    /// Such requests are refused.
    Refuse,
}

/// The locks file as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LocksFile {
    undeclared: Option<Refuse>,
    #[serde(default)]
    lock: Vec<Spanned<DeclaredLock>>,
}

/// All declared locks.
#[derive(Debug)]
pub struct DeclaredLocks {
    names: HashMap<String, Arc<DeclaredLock>>,
    /// The declarations of prefixes, the longest prefix first.
    prefixes: Vec<(String, Arc<DeclaredLock>)>,
    /// Whether requests for locks that are not declared are refused.
    pub refuses_undeclared: bool,
    /// A hash of all declarations, which is the same for all files that mean the same.
    pub hash: String,
    /// Whether the file has changed since it was read, and cannot be used.
    pub is_outdated: bool,
}

/// Why a locks file cannot be used. The text says what to change.
#[derive(Debug, thiserror::Error)]
#[error("the locks file {0}")]
pub struct LocksFileError(String);

/// The longest locks file that is read, in bytes: some ten thousand declarations.
const MAX_LEN: u64 = 1024 * 1024;

// === impl LocksConfig ===

impl LocksConfig {
    /// The path of the locks file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        (!self.file.is_empty()).then(|| Path::new(&self.file))
    }
}

// === impl DeclaredLocks ===

impl DeclaredLocks {
    /// Reads the locks file for a gateway with these limits and this store.
    pub fn read(
        path: &Path,
        limits: &LimitsConfig,
        store: &StoreUrl,
    ) -> Result<Self, LocksFileError> {
        let text = bounded_file::read_text(path, MAX_LEN).map_err(|error| error.to_string());
        let is_quorum = store.is_on(ServersKind::Quorum);
        let locks = text.and_then(|text| Self::parse(&text, limits, is_quorum));
        locks.map_err(|why| LocksFileError(format!("{}: {why}", path.display())))
    }

    fn parse(text: &str, limits: &LimitsConfig, is_quorum: bool) -> Result<Self, String> {
        let before = |offset| text.get(..offset).unwrap_or_default();
        let line = |offset: usize| 1 + before(offset).matches('\n').count();
        let file: LocksFile = toml::from_str(text).map_err(|error| {
            let line = line(error.span().map_or(0, |it| it.start));
            format!("line {line}: {}", error.message())
        })?;
        if file.lock.is_empty() {
            // A file that is empty for a moment must not free all locks of their terms.
            return Err("there is no [[lock]]".to_owned());
        }
        let (mut names, mut prefixes, mut seen) = (HashMap::new(), Vec::new(), HashSet::new());
        let mut meant = Vec::new();
        for entry in file.lock {
            let line = line(entry.span().start);
            let mut lock = entry.into_inner();
            if lock.limit.is_some() {
                lock.mode.get_or_insert(DeclaredMode::Shared);
            }
            let is_new = seen.insert((lock.name.clone(), lock.prefix.clone()));
            let twice = || is_new.then_some(()).ok_or("is declared twice".to_owned());
            lock.check(limits, is_quorum)
                .and_then(|()| twice())
                .map_err(|why| {
                    let name = lock.name.as_ref().or(lock.prefix.as_ref());
                    let name = name.map_or("", String::as_str);
                    format!("the [[lock]] {name:?} in line {line}: {why}")
                })?;
            // A field of a later version must not change the hash of a file without it.
            let mut fields = serde_json::to_value(&lock).unwrap_or_default();
            if let Some(fields) = fields.as_object_mut() {
                fields.retain(|_, value| !value.is_null());
            }
            meant.push(fields.to_string());
            let lock = Arc::new(lock);
            if let Some(name) = &lock.name {
                names.insert(name.clone(), lock);
            } else if let Some(prefix) = &lock.prefix {
                prefixes.push((prefix.clone(), lock));
            }
        }
        meant.sort();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let meant = format!("{:?} {meant:?}", file.undeclared);
        Ok(Self {
            names,
            prefixes,
            refuses_undeclared: file.undeclared.is_some(),
            hash: Sha256::digest(meant)
                .iter()
                .fold(String::new(), |text, byte| text + &format!("{byte:02x}")),
            is_outdated: false,
        })
    }

    /// The declaration of a lock: that of its name, or else that of the longest prefix.
    pub fn find(&self, name: &LockName) -> Option<Arc<DeclaredLock>> {
        let name = name.as_str();
        let of_prefix = || {
            self.prefixes
                .iter()
                .find(|(prefix, _)| name.starts_with(prefix))
        };
        let found = self.names.get(name);
        found.or_else(|| of_prefix().map(|(_, lock)| lock)).cloned()
    }
}

// === impl DeclaredLock ===

impl DeclaredLock {
    /// Fails with what is wrong with the declaration.
    fn check(&self, limits: &LimitsConfig, is_quorum: bool) -> Result<(), String> {
        let (shortest, longest) = (limits.min_ttl_ms.0, limits.max_ttl_ms.0);
        let longest_hold = limits.max_hold_limit_ms.0;
        let longest_rest = self.max_ttl().map_or(longest, Ttl::as_millis);
        for (field, number, least, most) in [
            ("limit", self.limit, 1, limits.max_holders),
            ("max_ttl_ms", self.max_ttl_ms, shortest, longest),
            ("max_hold_ms", self.max_hold_ms, shortest, longest_hold),
            ("min_hold_ms", self.min_hold_ms, 1, longest_rest),
        ] {
            if let Some(number) = number.filter(|it| !(least..=most).contains(it)) {
                let why = format!("{field} is {number}; allowed are {least} to {most}");
                return Err(why);
            }
        }
        if let Some(name) = &self.name {
            LockName::new(name).map_err(|why| format!("name {why}"))?;
        }
        if let Some(prefix) = &self.prefix {
            NamePrefix::new(prefix).map_err(|why| format!("prefix {why}"))?;
        }
        if let Some(text) = &self.description {
            Reason::not_blank(text).map_err(|why| format!("description {why}"))?;
        }
        let is_shared = self.mode == Some(DeclaredMode::Shared);
        let why = if self.name.is_some() == self.prefix.is_some() {
            "has a name or a prefix: one of the two"
        } else if self.limit.is_some() && !is_shared {
            "mode is exclusive beside a limit"
        } else if self.order.is_some() && is_shared {
            "order is not for a shared lock or one with a limit"
        } else if self.exclusive.is_some() && !is_shared {
            "exclusive is for a shared lock or one with a limit"
        } else if is_quorum && (is_shared || self.min_hold_ms.is_some() || self.order.is_some()) {
            "limit, mode shared, min_hold_ms and order are not for a quorum"
        } else {
            return Ok(());
        };
        Err(why.to_owned())
    }

    /// How many leases may share the lock, if that is declared.
    pub fn limit(&self) -> Option<Limit> {
        Limit::new(self.limit?).ok()
    }

    /// The minimum hold of each lease.
    pub fn min_hold(&self) -> Option<MinHold> {
        MinHold::from_millis(self.min_hold_ms?, Ttl::MAX).ok()
    }

    /// The longest TTL, which is at most the longest hold.
    pub fn max_ttl(&self) -> Option<Ttl> {
        let least = self.max_ttl_ms.into_iter().chain(self.max_hold_ms).min()?;
        Ttl::from_millis(least.min(Ttl::MAX.as_millis())).ok()
    }
}

#[cfg(test)]
mod tests;
