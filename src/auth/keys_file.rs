//! The keys file, which lists the API keys, and the reasons why it cannot be used.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use toml::Value;

use crate::{
    bounded_file,
    clock::parse_time,
    config::{RefusedValue, Source, TomlEntry, closest, entries},
    lock::Ttl,
};

use super::{
    ApiKeyHash, ApiKeyId, KeyEntry, KeyLimits, KeyRing, KeySecret, Permission, Permissions,
    PrefixError, Prefixes, Rate,
};

/// A TOML file of `[[key]]` tables. The file holds hashes only, so it is no secret; but a user who can write it can
/// do everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysFile(PathBuf);

/// Why a keys file cannot be used. The text says what to change, and never shows a key or a hash.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeysFileError(String);

/// One `[[key]]` table of a keys file while it is read. A field that no code reads is unknown, and refused.
struct Table<'a> {
    file: &'a Path,
    /// The number of the table in the file, counted from 1.
    number: usize,
    /// The fields of the table, by their names. An empty table has one field with an empty name.
    fields: &'a [TomlEntry],
    known: Vec<&'static str>,
}

/// The longest name of a key, in characters.
const MAX_NAME: usize = 64;
/// How many secrets a key may have: two, so that one can replace the other. More would be secrets that were
/// forgotten.
const MAX_SECRETS: usize = 2;
/// The largest value of a limit: a larger number is a typing mistake.
const MAX_LIMIT_VALUE: u64 = 1_000_000;

// === impl KeysFile ===

impl KeysFile {
    /// The longest keys file that is read, in bytes: some ten thousand keys.
    pub const MAX_LEN: u64 = 4 * 1024 * 1024;

    /// The keys file at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path of the keys file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads all keys from the file.
    pub fn read(&self) -> Result<KeyRing, KeysFileError> {
        let text = bounded_file::read_text(&self.0, Self::MAX_LEN).map_err(|error| {
            KeysFileError(format!(
                "cannot read the keys file {}: {error}",
                self.0.display()
            ))
        })?;
        self.parse(&text)
    }

    /// Reads all keys from a text, as if the text were in the file.
    pub fn parse(&self, text: &str) -> Result<KeyRing, KeysFileError> {
        let mut tables: Vec<Vec<TomlEntry>> = Vec::new();
        let found = entries(&self.0, text).map_err(|error| KeysFileError(error.to_string()))?;
        for mut found in found {
            // `key = []` is an empty list of tables, so the file has no keys.
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
                return Err(refused(
                    &self.0,
                    found.line,
                    "this entry".to_owned(),
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
            let entry = table.entry()?;
            table.check_unique(&entry, &keys)?;
            table.finish()?;
            keys.push(entry);
        }
        if keys.is_empty() {
            // A file that is empty for a moment must not lock all callers out.
            let path = self.0.display();
            return Err(KeysFileError(format!(
                "there is no [[key]] in {path}; `latchgate key new` makes one"
            )));
        }
        Ok(KeyRing::new(keys))
    }
}

// === impl Table ===

impl<'a> Table<'a> {
    fn entry(&mut self) -> Result<KeyEntry, KeysFileError> {
        const NAME: &str = "1 to 64 ASCII letters, digits and . _ : @ ~ -, and not a key";
        const SECRETS: &str =
            "a list of one or two texts ID:sha256:HASH, as `latchgate key new` prints them";
        const DATE: &str = "a date and time with its offset, such as 2027-01-31T00:00:00Z";
        let name = |value: &'a Value| value.as_str().filter(|name| is_name(name));
        let name = self.read("name", NAME, name)?;
        let name = name.ok_or_else(|| self.refuse("name", NAME))?;
        let secrets = self.read("secrets", SECRETS, secrets)?;
        Ok(KeyEntry {
            name: name.into(),
            secrets: secrets.ok_or_else(|| self.refuse("secrets", SECRETS))?,
            permissions: self.permissions()?,
            expires_at: self.read("expires_at", DATE, |value| {
                let text = match value {
                    Value::String(text) => text.clone(),
                    Value::Datetime(date) => date.to_string(),
                    _ => return None,
                };
                parse_time(&text).map(Into::into)
            })?,
            limits: self.limits()?,
        })
    }

    fn permissions(&mut self) -> Result<Permissions, KeysFileError> {
        let mut permissions = Permissions::default();
        for permission in Permission::ALL {
            let row = permission.row();
            let names = if row.is_per_name {
                let allowed = format!("a list of texts, each {PrefixError}");
                self.read(row.name, &allowed, |value| {
                    Prefixes::new(texts(value)?).ok()
                })?
            } else {
                let is_granted = self.read(row.name, "true or false", Value::as_bool)?;
                is_granted.unwrap_or(false).then(Prefixes::all)
            };
            permissions.grant(permission, names.unwrap_or_default());
        }
        Ok(permissions)
    }

    fn limits(&mut self) -> Result<KeyLimits, KeysFileError> {
        let ttl = self.number("max_ttl_ms", Ttl::MIN.as_millis(), Ttl::MAX.as_millis())?;
        let per_second = self.number("requests_per_second", 1, MAX_LIMIT_VALUE)?;
        let burst = self.number("burst", 1, MAX_LIMIT_VALUE)?;
        if per_second.is_none() && burst.is_some() {
            return Err(self.refuse("burst", "nothing without requests_per_second"));
        }
        let mut count = |field, least| {
            let count = self.number(field, least, MAX_LIMIT_VALUE);
            count.map(|count| count.and_then(|count| usize::try_from(count).ok()))
        };
        Ok(KeyLimits {
            max_ttl: ttl.and_then(|ms| Ttl::from_millis(ms).ok()),
            rate: per_second.map(|rate| Rate {
                per_second: rate as f64,
                // The default burst is the rate of one second.
                burst: burst.unwrap_or(rate) as f64,
            }),
            max_leases: count("max_leases", 1)?,
            max_waiters: count("max_waiters", 0)?,
            max_streams: count("max_streams", 0)?,
        })
    }

    /// Reads a field whose value is a whole number within bounds.
    fn number(
        &mut self,
        field: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, KeysFileError> {
        let allowed = format!("a whole number from {least} to {most}");
        self.read(field, &allowed, |value| {
            let number = u64::try_from(value.as_integer()?).ok()?;
            (least..=most).contains(&number).then_some(number)
        })
    }

    /// Reads the value of a field with `convert`, if the table has the field.
    fn read<T>(
        &mut self,
        field: &'static str,
        allowed: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, KeysFileError> {
        self.known.push(field);
        let Some(found) = self.field(field) else {
            return Ok(None);
        };
        match convert(&found.value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.refuse(field, allowed)),
        }
    }

    /// Checks that the key's name and secret ids are unique in the file. Otherwise the log could not tell two keys
    /// apart, or one secret would belong to two keys.
    fn check_unique(&self, entry: &KeyEntry, others: &[KeyEntry]) -> Result<(), KeysFileError> {
        if others.iter().any(|other| other.name == entry.name) {
            return Err(self.refuse("name", "a name that no other key has"));
        }
        let mut all = others.iter().chain([entry]).flat_map(|key| &key.secrets);
        let mut ids = HashSet::new();
        if all.all(|secret| ids.insert(secret.id)) {
            Ok(())
        } else {
            Err(self.refuse("secrets", "a list of ids that no other secret has"))
        }
    }

    /// Refuses a field that is unknown, when all known fields have been read.
    fn finish(self) -> Result<(), KeysFileError> {
        let unknown = |field: &&TomlEntry| !self.known.contains(&field.path.as_str());
        let Some(TomlEntry { path, line, .. }) = self.fields.iter().find(unknown) else {
            return Ok(());
        };
        let known = self.known.iter().map(|&known| known.to_owned());
        let hint = closest(path, known).map(|name| format!("; did you mean {name}?"));
        Err(KeysFileError(format!(
            "there is no {} (line {line} of {}){}",
            self.displayed_field(if is_secret(path) { "***" } else { path }),
            self.file.display(),
            hint.unwrap_or_default(),
        )))
    }

    /// The error for a field that is missing or has a value that is not allowed.
    fn refuse(&self, field: &str, allowed: &str) -> KeysFileError {
        let found = self.field(field);
        // A missing field has no line: the message names the line of the first field of its table.
        let line = found.or(self.fields.first()).map_or(1, |it| it.line);
        let value = found.map_or("missing".to_owned(), |it| displayed(field, &it.value));
        let field = self.displayed_field(field);
        refused(self.file, line, field, value, allowed)
    }

    fn field(&self, name: &str) -> Option<&'a TomlEntry> {
        self.fields.iter().find(|it| it.path == name)
    }

    fn displayed_field(&self, field: &str) -> String {
        match self.field("name").and_then(|it| it.value.as_str()) {
            Some(name) if !is_secret(name) => format!("{field} of the key {name:?}"),
            _ => format!("{field} of [[key]] number {}", self.number),
        }
    }
}

/// The error for a value at a line of the file that is not allowed.
fn refused(path: &Path, line: usize, key: String, value: String, allowed: &str) -> KeysFileError {
    let path = path.to_owned();
    let refused = RefusedValue {
        key,
        value,
        set_by: Source::File { path, line },
        allowed: allowed.to_owned(),
        depends_on: None,
    };
    KeysFileError(refused.to_string())
}

/// Whether a text may be the name of a key: harmless in a log, and not an API key put there by mistake.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:@~-".contains(c);
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with("lgk_")
}

fn texts(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

fn secrets(value: &Value) -> Option<Vec<KeySecret>> {
    let secret = |text: &str| {
        let (id, hash) = text.split_once(":sha256:")?;
        let (id, hash) = (ApiKeyId::parse(id)?, ApiKeyHash::parse(hash)?);
        Some(KeySecret { id, hash })
    };
    let secrets: Vec<_> = texts(value)?
        .into_iter()
        .map(secret)
        .collect::<Option<_>>()?;
    (1..=MAX_SECRETS)
        .contains(&secrets.len())
        .then_some(secrets)
}

/// A value as an error message may show it: the file may have an API key where its hash should be.
fn displayed(field: &str, value: &Value) -> String {
    let text = value.to_string();
    match value {
        _ if field == "secrets" => "something else".to_owned(),
        _ if is_secret(&text) => "***".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        _ => text,
    }
}

fn is_secret(text: &str) -> bool {
    text.contains("lgk_")
}

#[cfg(test)]
mod tests;
