//! The keys file, which lists the API keys, and the reasons why it cannot be used.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use toml::Value;

use crate::{
    bounded_file,
    clock::parse_time,
    config::{AuthConfig, RefusedValue, Source, StoreUrl, TomlEntry, closest, entries},
    lock::Ttl,
};

use super::{
    ApiKeyHash, ApiKeyId, KeyEntry, KeyLimits, KeyRing, KeySecret, Permission, Permissions,
    PrefixError, Prefixes, Rate, SignIn, may_hold_secret,
    oidc::{Issuer, Template},
};

/// A TOML file of `[[key]]` and `[[issuer]]` tables, and of `[sign_in]`. The file holds hashes only, so it is no secret; but a user who can
/// write it can do everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysFile {
    path: PathBuf,
    /// Whether every gateway on the store opens what another has sealed, without which there can be no issuer.
    takes_issuers: bool,
}

/// Why a keys file cannot be used. The text says what to change, and never shows a key or a hash.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeysFileError(String);

/// One `[[key]]`, `[[issuer]]` or `[sign_in]` table of a keys file while it is read. A field that no code reads is unknown, and
/// refused.
struct Table<'a> {
    file: &'a Path,
    /// `key`, `issuer` or `sign_in`.
    kind: &'static str,
    /// The number of the table in the file, counted from 1.
    number: usize,
    /// The fields of the table, by their names. An empty table has one field with an empty name.
    fields: &'a [TomlEntry],
    known: Vec<&'a str>,
}

/// The longest name of a key, in characters.
const MAX_NAME: usize = 64;
/// How many secrets a key may have: two, so that one can replace the other. More would be secrets that were
/// forgotten.
const MAX_SECRETS: usize = 2;
/// The largest value of a limit: a larger number is a typing mistake.
const MAX_LIMIT_VALUE: u64 = 1_000_000;
/// The two kinds of tables of which there may be several.
const KINDS: [&str; 2] = ["issuer", "key"];
/// The table for people.
const SIGN_IN: &str = "sign_in";
/// The names of the limits of a key.
const LIMITS: [&str; 5] = [
    "requests_per_second",
    "burst",
    "max_leases",
    "max_waiters",
    "max_streams",
];
/// The names of the limits of each caller of a key.
const PER_CALLER: [&str; 5] = [
    "per_caller.requests_per_second",
    "per_caller.burst",
    "per_caller.max_leases",
    "per_caller.max_waiters",
    "per_caller.max_streams",
];
/// The ends of the paths of tables in a table, whose names the operator chooses.
const TABLES: [&str; 2] = [".claims", ".metadata"];

// === impl KeysFile ===

impl KeysFile {
    /// The longest keys file that is read, in bytes: some ten thousand keys.
    pub const MAX_LEN: u64 = 4 * 1024 * 1024;

    /// The keys file at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            takes_issuers: true,
        }
    }

    /// The configured keys file. A shared store without `auth.session_secret_file` takes no issuer: each gateway would
    /// refuse the keys that another has exchanged.
    pub fn configured(config: &AuthConfig, store: &StoreUrl) -> Self {
        let is_shared = !matches!(store, StoreUrl::Embedded(_));
        Self {
            takes_issuers: !is_shared || !config.session_secret_file.is_empty(),
            ..Self::new(&config.keys_file)
        }
    }

    /// The path of the keys file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all keys from the file, and the pinned keys of issuers and the secret for people from theirs.
    pub fn read(&self) -> Result<KeyRing, KeysFileError> {
        let ring = self.look()?;
        for issuer in ring.issuers() {
            issuer.read_pinned().map_err(KeysFileError)?;
        }
        if let Some(sign_in) = ring.sign_in() {
            sign_in.read_secret().map_err(KeysFileError)?;
        }
        Ok(ring)
    }

    /// Reads all keys from the file, and no other file: those that it names may be on another machine.
    pub fn look(&self) -> Result<KeyRing, KeysFileError> {
        let text = bounded_file::read_text(&self.path, Self::MAX_LEN).map_err(|error| {
            KeysFileError(format!(
                "cannot read the keys file {}: {error}",
                self.path.display()
            ))
        })?;
        self.parse(&text)
    }

    /// Reads all keys from a text, as if the text were in the file. Reads no other file.
    pub fn parse(&self, text: &str) -> Result<KeyRing, KeysFileError> {
        let mut tables: [Vec<Vec<TomlEntry>>; 3] = Default::default();
        let found =
            entries(&self.path, text, &TABLES).map_err(|error| KeysFileError(error.to_string()))?;
        for mut found in found {
            // `key = []` is an empty list of tables, so the file has no keys.
            if KINDS.contains(&&*found.path) && found.value.as_array().is_some_and(Vec::is_empty) {
                continue;
            }
            let numbered = found.path.split_once('[').and_then(|(kind, rest)| {
                let kind = KINDS.iter().position(|it| *it == kind)?;
                let (number, field) = rest.split_once(']')?;
                Some((kind, number, field))
            });
            let field = found.path.strip_prefix(SIGN_IN);
            let field = field.filter(|field| field.starts_with('.'));
            let numbered = numbered.or(field.map(|field| (KINDS.len(), "0", field)));
            let numbered = numbered.map(|(kind, number, field)| (&mut tables[kind], number, field));
            let table = numbered.and_then(|(tables, number, field)| {
                if number.parse() == Ok(tables.len()) {
                    tables.push(Vec::new());
                }
                Some((tables.last_mut()?, field.trim_start_matches('.').to_owned()))
            });
            let Some((table, field)) = table else {
                return Err(refused(
                    &self.path,
                    found.line,
                    "this entry".to_owned(),
                    "no key".to_owned(),
                    "[[key]], a table for each key, [[issuer]], a table for each issuer of ID tokens, and [sign_in], a \
                     table for people",
                ));
            };
            found.path = field;
            table.push(found);
        }
        let [issuer_tables, key_tables, people] = &tables;
        let table = |kind, at, fields| Table {
            file: &self.path,
            kind,
            number: at + 1,
            fields,
            known: Vec::new(),
        };
        let mut issuers: Vec<Issuer> = Vec::new();
        for (at, fields) in issuer_tables.iter().enumerate() {
            let mut table = table(KINDS[0], at, fields);
            let issuer = table.issuer(&issuers)?;
            table.finish()?;
            issuers.push(issuer);
        }
        if !issuers.is_empty() && !self.takes_issuers {
            let path = self.path.display();
            return Err(KeysFileError(format!(
                "there is an [[issuer]] in {path}, and the store is shared: gateways need one auth.session_secret_file, so \
                 that each of them accepts the keys that another has exchanged"
            )));
        }
        let sign_in = match people.first() {
            Some(fields) => {
                let mut table = table(SIGN_IN, 0, fields);
                let sign_in = table.sign_in(&issuers)?;
                table.finish()?;
                Some(sign_in)
            }
            None => None,
        };
        let mut keys = Vec::new();
        for (at, fields) in key_tables.iter().enumerate() {
            let mut table = table(KINDS[1], at, fields);
            let entry = table.entry(&issuers, sign_in.as_ref())?;
            table.check_unique(&entry, &keys)?;
            table.finish()?;
            keys.push(entry);
        }
        if keys.is_empty() {
            // A file that is empty for a moment must not lock all callers out.
            let path = self.path.display();
            return Err(KeysFileError(format!(
                "there is no [[key]] in {path}; `latchgate key new` makes one"
            )));
        }
        let issuers = issuers.into_iter().map(Arc::new).collect();
        Ok(KeyRing::new(keys).with_issuers(issuers, sign_in.map(Arc::new)))
    }
}

// === impl Table ===

impl<'a> Table<'a> {
    fn entry(
        &mut self,
        issuers: &[Issuer],
        sign_in: Option<&SignIn>,
    ) -> Result<KeyEntry, KeysFileError> {
        const SECRETS: &str =
            "a list of one or two texts ID:sha256:HASH, as `latchgate key new` prints them";
        let name = self.name()?;
        let secrets = self.read("secrets", SECRETS, secrets)?;
        let has_issuer = self.field("issuer").is_some();
        let secrets = match secrets {
            Some(_) if has_issuer => {
                return Err(self.refuse(
                    "issuer",
                    "nothing beside secrets: a key has one or the other",
                ));
            }
            None if !has_issuer => return Err(self.refuse("secrets", SECRETS)),
            secrets => secrets.unwrap_or_default(),
        };
        let mut names = Vec::new();
        let permissions = self.permissions(has_issuer.then_some(&mut names))?;
        let (mut per_caller, mut exchange) = (KeyLimits::default(), None);
        if has_issuer {
            per_caller = self.limits(PER_CALLER)?;
            exchange = Some(Arc::new(self.exchange(names, issuers, sign_in)?));
        }
        let ttl = self.number("max_ttl_ms", Ttl::MIN.as_millis(), Ttl::MAX.as_millis())?;
        Ok(KeyEntry {
            name: name.into(),
            secrets,
            permissions,
            expires_at: self.time("expires_at")?,
            limits: KeyLimits {
                max_ttl: ttl.and_then(|ms| Ttl::from_millis(ms).ok()),
                ..self.limits(LIMITS)?
            },
            per_caller,
            exchange,
        })
    }

    fn name(&mut self) -> Result<&'a str, KeysFileError> {
        const NAME: &str = "1 to 64 ASCII letters, digits and . _ : @ ~ -, and not a key";
        let name = |value: &'a Value| value.as_str().filter(|name| is_name(name));
        let name = self.read("name", NAME, name)?;
        name.ok_or_else(|| self.refuse("name", NAME))
    }

    fn time(&mut self, field: &'static str) -> Result<Option<SystemTime>, KeysFileError> {
        const DATE: &str = "a date and time with its offset, such as 2027-01-31T00:00:00Z";
        self.read(field, DATE, |value| {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Datetime(date) => date.to_string(),
                _ => return None,
            };
            parse_time(&text).map(Into::into)
        })
    }

    /// Reads the permissions. If the key has an issuer, names may have claims in them, and go to `names`.
    fn permissions(
        &mut self,
        mut names: Option<&mut Vec<(Permission, Template)>>,
    ) -> Result<Permissions, KeysFileError> {
        let mut permissions = Permissions::default();
        for permission in Permission::ALL {
            let row = permission.row();
            let names = if row.is_per_name {
                let allowed = format!("a list of texts, each {PrefixError}");
                let taken = names.as_mut().filter(|_| permission.takes_claims());
                self.read(row.name, &allowed, |value| {
                    let mut texts = texts(value)?;
                    if let Some(taken) = taken {
                        let with_claims = texts.extract_if(.., |text| text.contains('{'));
                        let read = |text| Some((permission, Template::of_prefix(text)?));
                        taken.extend(with_claims.map(read).collect::<Option<Vec<_>>>()?);
                    }
                    Prefixes::new(texts).ok()
                })?
            } else {
                let is_granted = self.read(row.name, "true or false", Value::as_bool)?;
                is_granted.unwrap_or(false).then(Prefixes::all)
            };
            permissions.grant(permission, names.unwrap_or_default());
        }
        Ok(permissions)
    }

    /// Reads the limits, whose names in the file are `names`.
    fn limits(&mut self, names: [&'static str; 5]) -> Result<KeyLimits, KeysFileError> {
        let [rate, burst_name, max_leases, max_waiters, max_streams] = names;
        let per_second = self.number(rate, 1, MAX_LIMIT_VALUE)?;
        let burst = self.number(burst_name, 1, MAX_LIMIT_VALUE)?;
        if per_second.is_none() && burst.is_some() {
            return Err(self.refuse(burst_name, "nothing without requests_per_second"));
        }
        let mut count = |field, least| {
            let count = self.number(field, least, MAX_LIMIT_VALUE);
            count.map(|count| count.and_then(|count| usize::try_from(count).ok()))
        };
        Ok(KeyLimits {
            max_ttl: None,
            rate: per_second.map(|rate| Rate {
                per_second: rate as f64,
                // The default burst is the rate of one second.
                burst: burst.unwrap_or(rate) as f64,
            }),
            max_leases: count(max_leases, 1)?,
            max_waiters: count(max_waiters, 0)?,
            max_streams: count(max_streams, 0)?,
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
            self.displayed_field(if may_hold_secret(path) { "***" } else { path }),
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
            Some(name) if !may_hold_secret(name) => {
                format!("{field} of the {} {name:?}", self.kind)
            }
            _ if self.kind == SIGN_IN => format!("{field} of [{SIGN_IN}]"),
            _ => format!("{field} of [[{}]] number {}", self.kind, self.number),
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
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(allowed) && !may_hold_secret(text)
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
        _ if may_hold_secret(&text) => "***".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        _ => text,
    }
}

mod issuers;
mod people;
#[cfg(test)]
mod tests;
