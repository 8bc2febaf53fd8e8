//! Declared locks (`[locks]`): the file in which an operator sets the terms of locks, whatever their callers say.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use toml::Spanned;
use utoipa::ToSchema;

use crate::{
    bounded_file,
    lock::{HoldLimit, Limit, LockName, MinHold, NamePrefix, Reason, Sharing, Ttl},
};

use super::{Config, LimitsConfig, RefusedValue, ServersKind, Source};

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

// === impl LocksConfig ===

impl LocksConfig {
    /// The path of the locks file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        (!self.file.is_empty()).then(|| Path::new(&self.file))
    }
}

/// What the locks file declares about a lock, or about each lock with a prefix. What is not declared is free.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LockDeclaration {
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
    /// What the declaration is for.
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

/// Requests must have the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Required {
    /// A request without the field is refused.
    Required,
}

/// Requests are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    lock: Vec<Spanned<LockDeclaration>>,
}

/// All declared locks.
#[derive(Debug)]
pub struct DeclaredLocks {
    names: HashMap<String, Arc<DeclaredLock>>,
    prefixes: HashMap<String, Arc<DeclaredLock>>,
    /// The lengths of the prefixes, the longest first: a lookup costs one step for each length, not for each prefix.
    prefix_lengths: Vec<usize>,
    /// Whether requests for locks that are not declared are refused.
    pub refuses_undeclared: bool,
    /// A hash of all declarations, which is the same for all files that mean the same.
    pub hash: String,
}

/// The declared terms of a lock.
#[derive(Debug)]
pub struct DeclaredLock {
    /// The declaration, for people.
    pub declaration: LockDeclaration,
    /// The sharing of a request that names none, if the lock is declared as shared.
    pub sharing: Option<Sharing>,
    /// The minimum hold of each lease.
    pub min_hold: Option<MinHold>,
    /// The longest TTL, which is at most the longest hold.
    pub max_ttl: Option<Ttl>,
    /// The longest hold limit, and that of a request that names none.
    pub max_hold: Option<HoldLimit>,
}

/// Why a locks file cannot be used. The text says what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LocksFileError(String);

/// A table of a locks file while its values are checked.
struct Table<'a> {
    declaration: &'a LockDeclaration,
    path: PathBuf,
    line: usize,
}

/// The longest locks file that is read, in bytes: some ten thousand declarations.
const MAX_LEN: u64 = 1024 * 1024;

// === impl DeclaredLocks ===

impl DeclaredLocks {
    /// Reads the locks file for a gateway with this configuration.
    pub fn read(path: &Path, config: &Config) -> Result<Self, LocksFileError> {
        let text = bounded_file::read_text(path, MAX_LEN).map_err(|error| {
            let path = path.display();
            LocksFileError(format!("cannot read the locks file {path}: {error}"))
        })?;
        let is_quorum = config.store.is_on(ServersKind::Quorum);
        Self::parse(path, &text, &config.limits, is_quorum)
    }

    fn parse(
        path: &Path,
        text: &str,
        limits: &LimitsConfig,
        is_quorum: bool,
    ) -> Result<Self, LocksFileError> {
        let line = |offset: usize| 1 + text[..offset].matches('\n').count();
        let file: LocksFile = toml::from_str(text).map_err(|error| {
            let (line, path) = (line(error.span().map_or(0, |it| it.start)), path.display());
            LocksFileError(format!("line {line} of {path}: {}", error.message()))
        })?;
        if file.lock.is_empty() {
            // A file that is empty for a moment must not free all locks of their terms.
            let path = path.display();
            return Err(LocksFileError(format!("there is no [[lock]] in {path}")));
        }
        let (mut names, mut prefixes) = (HashMap::new(), HashMap::new());
        let mut meant = Vec::new();
        for entry in file.lock {
            let line = line(entry.span().start);
            let mut declaration = entry.into_inner();
            if declaration.limit.is_some() {
                declaration.mode = declaration.mode.or(Some(DeclaredMode::Shared));
            }
            let (field, name, declared) = match (&declaration.name, &declaration.prefix) {
                (Some(name), None) => ("name", name.clone(), &mut names),
                (_, prefix) => ("prefix", prefix.clone().unwrap_or_default(), &mut prefixes),
            };
            meant.push(declaration.fields().to_string());
            let table = Table {
                declaration: &declaration,
                path: path.to_owned(),
                line,
            };
            let lock = table.check(limits, is_quorum)?;
            if declared.insert(name, Arc::new(lock)).is_some() {
                let allowed = format!("a {field} that no other [[lock]] has");
                return Err(table.refuse(field, allowed));
            }
        }
        meant.sort();
        let meant = format!("{:?} {meant:?}", file.undeclared);
        let lengths: HashSet<_> = prefixes.keys().map(String::len).collect();
        let mut prefix_lengths: Vec<_> = lengths.into_iter().collect();
        prefix_lengths.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self {
            names,
            prefixes,
            prefix_lengths,
            refuses_undeclared: file.undeclared.is_some(),
            hash: Sha256::digest(meant)[..8]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        })
    }

    /// The declaration of a lock: that of its name, or else that of the longest prefix.
    pub fn find(&self, name: &LockName) -> Option<&Arc<DeclaredLock>> {
        let name = name.as_str();
        let beginnings = self
            .prefix_lengths
            .iter()
            .filter_map(|&len| name.get(..len));
        let of_prefix = || {
            beginnings
                .filter_map(|prefix| self.prefixes.get(prefix))
                .next()
        };
        self.names.get(name).or_else(of_prefix)
    }

    /// How many names and prefixes are declared.
    pub fn count(&self) -> usize {
        self.names.len() + self.prefixes.len()
    }
}

// === impl LockDeclaration ===

impl LockDeclaration {
    /// The fields that are declared, by their names.
    fn fields(&self) -> Value {
        let mut fields = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = fields.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        fields
    }
}

// === impl Table ===

impl Table<'_> {
    fn check(
        &self,
        limits: &LimitsConfig,
        is_quorum: bool,
    ) -> Result<DeclaredLock, LocksFileError> {
        let it = self.declaration;
        let refuse = |field, allowed: &str| Err(self.refuse(field, allowed));
        match (&it.name, &it.prefix) {
            (Some(name), None) => {
                LockName::new(name)
                    .map_err(|why| self.refuse("name", format!("a name: it {why}")))?;
            }
            (None, Some(prefix)) => {
                NamePrefix::new(prefix)
                    .map_err(|why| self.refuse("prefix", format!("a prefix of names: it {why}")))?;
            }
            _ => return refuse("name", "a name, or instead of it a prefix"),
        }
        let is_shared = it.mode == Some(DeclaredMode::Shared);
        if is_quorum && (is_shared || it.min_hold_ms.is_some() || it.order.is_some()) {
            let (limit, min_hold) = (
                it.limit.map(|_| "limit"),
                it.min_hold_ms.map(|_| "min_hold_ms"),
            );
            let field = limit
                .or(is_shared.then_some("mode"))
                .or(min_hold)
                .unwrap_or("order");
            return refuse(
                field,
                "nothing on a quorum of Redis servers, which cannot do this",
            );
        }
        if it.limit.is_some() && !is_shared {
            return refuse("mode", "shared beside a limit; leave it out");
        }
        if it.order.is_some() && is_shared {
            return refuse(
                "order",
                "nothing beside a limit or the mode shared: an order needs leases one after another",
            );
        }
        if it.exclusive.is_some() && !is_shared {
            return refuse("exclusive", "nothing without a limit or the mode shared");
        }
        if let Some(Err(why)) = it.description.as_deref().map(Reason::not_blank) {
            return refuse("description", &format!("a text: it {why}"));
        }
        let (shortest, longest) = (limits.min_ttl_ms.0, limits.max_ttl_ms.0);
        let bounds = (1, limits.max_holders, "limits.max_holders");
        let limit = self.number("limit", it.limit, bounds, Limit::new)?;
        let bounds = (
            shortest,
            limits.max_hold_limit_ms.0,
            "limits.max_hold_limit_ms",
        );
        let hold_limit = |ms| HoldLimit::from_millis(ms, Ttl::MIN);
        let max_hold = self.number("max_hold_ms", it.max_hold_ms, bounds, hold_limit)?;
        let bounds = (shortest, longest, "limits.max_ttl_ms");
        self.number("max_ttl_ms", it.max_ttl_ms, bounds, Ttl::from_millis)?;
        let max_ttl = it.max_ttl_ms.into_iter().chain(it.max_hold_ms).min();
        let max_ttl = max_ttl.map(|ms| ms.min(longest));
        let least = "the least of max_ttl_ms, max_hold_ms and limits.max_ttl_ms";
        let bounds = (1, max_ttl.unwrap_or(longest), least);
        let min_hold = |ms| MinHold::from_millis(ms, Ttl::MAX);
        let min_hold = self.number("min_hold_ms", it.min_hold_ms, bounds, min_hold)?;
        let most = Limit::new(limits.max_holders);
        let most = most.expect("the bound of holders was checked when the configuration was read");
        let sharing = Sharing {
            limit: limit.unwrap_or(most),
            has_slot: limit.is_some(),
        };
        Ok(DeclaredLock {
            declaration: it.clone(),
            sharing: is_shared.then_some(sharing),
            min_hold,
            max_ttl: max_ttl.and_then(|ms| Ttl::from_millis(ms).ok()),
            max_hold,
        })
    }

    /// Checks that the number of a field is within bounds, and converts it.
    fn number<T, E>(
        &self,
        field: &'static str,
        number: Option<u64>,
        (least, most, which): (u64, u64, &str),
        convert: impl FnOnce(u64) -> Result<T, E>,
    ) -> Result<Option<T>, LocksFileError> {
        let Some(number) = number else {
            return Ok(None);
        };
        let in_bounds = (least..=most)
            .contains(&number)
            .then(|| convert(number).ok());
        match in_bounds.flatten() {
            Some(value) => Ok(Some(value)),
            None => {
                let allowed = format!("a whole number from {least} to {most} ({which})");
                Err(self.refuse(field, allowed))
            }
        }
    }

    /// The error for a field that is missing or has a value that is not allowed.
    fn refuse(&self, field: &'static str, allowed: impl Into<String>) -> LocksFileError {
        let value = match &self.declaration.fields()[field] {
            Value::Null => "missing".to_owned(),
            value => value.to_string(),
        };
        let it = self.declaration;
        let subject = match (&it.name, &it.prefix) {
            (Some(name), _) => format!("the lock {name:?}"),
            (None, Some(prefix)) => format!("the prefix {prefix:?}"),
            (None, None) => "a [[lock]]".to_owned(),
        };
        let refused = RefusedValue {
            key: format!("{field} of {subject}"),
            value,
            set_by: Source::File {
                path: self.path.clone(),
                line: self.line,
            },
            allowed: allowed.into(),
            depends_on: None,
        };
        LocksFileError(refused.to_string())
    }
}

#[cfg(test)]
mod tests;
