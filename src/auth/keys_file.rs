//! The file that says which keys there are.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    bounded_file,
    config::{TomlEntry, entries},
    lock::Ttl,
};

use super::{
    ApiKeyHash, ApiKeyId, KeyEntry, KeyLimits, KeyRing, KeySecret, KeysFileError, Permission,
    Permissions, Prefixes, Rate, table::Table,
};

/// A TOML file of `[[key]]` tables. It holds hashes only, so it is no secret; whoever can write it
/// can do everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysFile(PathBuf);

/// The longest name of a key.
const MAX_NAME: usize = 64;
/// Two: one takes over from the other. More are secrets that nobody has taken away.
const MAX_SECRETS: usize = 2;
/// The most that a limit may say: more is a slip of the finger.
const MOST: u64 = 1_000_000;

// === impl KeysFile ===

impl KeysFile {
    /// The longest file that is read: some ten thousand keys.
    pub const MAX_LEN: u64 = 4 * 1024 * 1024;

    /// The file at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads all keys.
    pub fn read(&self) -> Result<KeyRing, KeysFileError> {
        let text = bounded_file::read_text(&self.0, Self::MAX_LEN).map_err(|error| {
            KeysFileError::Unreadable {
                path: self.0.clone(),
                error,
            }
        })?;
        self.parse(&text)
    }

    /// Reads all keys of a text as if the file had it.
    pub fn parse(&self, text: &str) -> Result<KeyRing, KeysFileError> {
        let mut tables: Vec<Vec<TomlEntry>> = Vec::new();
        for mut found in entries(&self.0, text)? {
            // An empty list of tables holds none.
            if found.path == "key" && found.value.as_array().is_some_and(Vec::is_empty) {
                continue;
            }
            let numbered = found
                .path
                .strip_prefix("key[")
                .and_then(|rest| rest.split_once(']'));
            let table = numbered.and_then(|(number, field)| {
                if number.parse() == Ok(tables.len()) {
                    tables.push(Vec::new());
                }
                Some((tables.last_mut()?, field.trim_start_matches('.').to_owned()))
            });
            let Some((table, field)) = table else {
                return Err(KeysFileError::refused(
                    &self.0,
                    found.line,
                    "what stands here".to_owned(),
                    "no key".to_owned(),
                    "[[key]], a table for each key",
                ));
            };
            found.path = field;
            table.push(found);
        }
        let mut keys = Vec::new();
        for (at, fields) in tables.iter().enumerate() {
            let mut table = Table {
                file: &self.0,
                number: at + 1,
                fields,
                known: Vec::new(),
            };
            let entry = entry(&mut table)?;
            unique(&table, &entry, &keys)?;
            table.finish()?;
            keys.push(entry);
        }
        if keys.is_empty() {
            return Err(KeysFileError::Empty(self.0.clone()));
        }
        Ok(KeyRing::new(keys))
    }
}

fn entry(table: &mut Table<'_>) -> Result<KeyEntry, KeysFileError> {
    let name = table.text("name")?;
    if !is_name(name) {
        return Err(table.refuse(
            "name",
            "1 to 64 ASCII letters, digits and . _ : @ ~ -, and not a key",
        ));
    }
    Ok(KeyEntry {
        name: name.into(),
        secrets: secrets(table)?,
        permissions: permissions(table)?,
        expires_at: expires_at(table)?,
        limits: limits(table)?,
    })
}

/// Whether a text may be the name of a key: harmless in a log, and no key that was put there.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:@~-".contains(c);
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with("lgk_")
}

fn secrets(table: &mut Table<'_>) -> Result<Vec<KeySecret>, KeysFileError> {
    let texts = table.texts("secrets")?;
    let secret = |text: &&str| {
        let (id, hash) = text.split_once(":sha256:")?;
        let (id, hash) = (ApiKeyId::parse(id)?, ApiKeyHash::parse(hash)?);
        Some(KeySecret { id, hash })
    };
    let secrets: Option<Vec<_>> = texts.iter().map(secret).collect();
    match secrets {
        Some(secrets) if (1..=MAX_SECRETS).contains(&secrets.len()) => Ok(secrets),
        _ => Err(table.refuse(
            "secrets",
            "a list of one or two texts ID:sha256:HASH, as `latchgate key new` prints them",
        )),
    }
}

fn permissions(table: &mut Table<'_>) -> Result<Permissions, KeysFileError> {
    let mut permissions = Permissions::default();
    for permission in Permission::ALL {
        let row = permission.row();
        let names = if row.is_per_name {
            Prefixes::new(table.texts(row.name)?).map_err(|error| {
                table.refuse(row.name, &format!("a list of texts, each {error}"))
            })?
        } else if table.flag(row.name)? {
            Prefixes::all()
        } else {
            Prefixes::default()
        };
        permissions.grant(permission, names);
    }
    Ok(permissions)
}

fn expires_at(table: &mut Table<'_>) -> Result<Option<SystemTime>, KeysFileError> {
    let Some(text) = table.date("expires_at")? else {
        return Ok(None);
    };
    match humantime::parse_rfc3339(&text) {
        Ok(time) => Ok(Some(time)),
        Err(_) => Err(table.refuse(
            "expires_at",
            "a date and time in UTC, such as 2027-01-31T00:00:00Z",
        )),
    }
}

fn limits(table: &mut Table<'_>) -> Result<KeyLimits, KeysFileError> {
    let ttl = (Ttl::MIN.as_millis(), Ttl::MAX.as_millis());
    let max_ttl = table.number("max_ttl_ms", ttl)?;
    let count = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
    Ok(KeyLimits {
        max_ttl: max_ttl.and_then(|ms| Ttl::from_millis(ms).ok()),
        rate: rate(table)?,
        max_leases: count(table.number("max_leases", (1, MOST))?),
        max_waiters: count(table.number("max_waiters", (0, MOST))?),
        max_streams: count(table.number("max_streams", (0, MOST))?),
    })
}

fn rate(table: &mut Table<'_>) -> Result<Option<Rate>, KeysFileError> {
    let per_second = table.number("requests_per_second", (1, MOST))?;
    let burst = table.number("burst", (1, MOST))?;
    match (per_second, burst) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(table.refuse("burst", "nothing without requests_per_second")),
        // A second's worth.
        (Some(rate), burst) => Ok(Some(Rate {
            per_second: rate as f64,
            burst: burst.unwrap_or(rate) as f64,
        })),
    }
}

/// No two keys may be one in the log, or answer to one secret.
fn unique(table: &Table<'_>, entry: &KeyEntry, others: &[KeyEntry]) -> Result<(), KeysFileError> {
    if others.iter().any(|other| other.name == entry.name) {
        return Err(table.refuse("name", "a name that no other key has"));
    }
    let all = others.iter().chain([entry]).flat_map(|key| &key.secrets);
    let mut ids = HashSet::new();
    if all.into_iter().all(|secret| ids.insert(secret.id)) {
        Ok(())
    } else {
        Err(table.refuse("secrets", "a list of ids that stand nowhere else"))
    }
}

#[cfg(test)]
mod tests;
