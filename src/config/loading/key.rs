//! The keys of the configuration, as the structs declare them.

use std::path::Path;

use serde_json::Value;

use super::{
    super::{Config, Source},
    file::{self, Setting},
};

/// One thing that can be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The path in a file: `limits.min_ttl_ms`.
    pub path: String,
    /// What it takes.
    pub kind: ValueKind,
    /// The default, as a file would say it.
    pub default: String,
    /// What it is for.
    pub doc: String,
}

/// What a key takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueKind {
    /// A number without a fraction, the smallest and the largest if it has bounds.
    WholeNumber(Option<(u64, u64)>),
    /// Yes or no.
    Boolean,
    /// A text with a form of its own.
    Text,
    /// One of a few words.
    OneOf(Vec<String>),
    /// Any number of texts.
    Texts,
}

/// A table of the configuration and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The name of the table; empty for the keys above all tables.
    pub name: String,
    /// What it is for.
    pub doc: String,
    /// Its keys, in the order of the struct.
    pub keys: Vec<Key>,
}

// === impl Section ===

impl Section {
    /// Everything that can be configured, in the order in which the structs declare it.
    ///
    /// Paths and defaults come from writing the default configuration out, because that keeps the
    /// order; types and texts come from the schema of the structs.
    pub fn all() -> Vec<Self> {
        let schema = schemars::schema_for!(Config).to_value();
        let text = toml::to_string(&Config::default()).expect("the configuration is a TOML table");
        let mut sections: Vec<Self> = Vec::new();
        for entry in file::entries(Path::new("the defaults"), &text).expect("it was just written") {
            let (name, _) = entry.path.rsplit_once('.').unwrap_or_default();
            if sections.last().is_none_or(|section| section.name != name) {
                sections.push(Self {
                    name: name.to_owned(),
                    doc: description(&schema, name),
                    keys: Vec::new(),
                });
            }
            let section = sections
                .last_mut()
                .expect("one was pushed if there was none");
            section.keys.push(Key {
                kind: ValueKind::of(&schema, resolve(&schema, property(&schema, &entry.path))),
                default: entry.value.to_string(),
                doc: description(&schema, &entry.path),
                path: entry.path,
            });
        }
        sections
    }
}

// === impl Key ===

impl Key {
    /// Every key, in the order in which the structs declare them.
    pub fn all() -> Vec<Self> {
        Section::all()
            .into_iter()
            .flat_map(|section| section.keys)
            .collect()
    }

    /// The environment variable that sets it: `LATCHGATE_LIMITS_MIN_TTL_MS`.
    pub fn variable(&self) -> String {
        format!(
            "LATCHGATE_{}",
            self.path.replace('.', "_").to_ascii_uppercase()
        )
    }

    /// The path and the names of the tables that it begins with.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        let tables = self.path.match_indices('.');
        let tables = tables.map(|(end, _)| self.path[..end].to_owned());
        std::iter::once(self.path.clone()).chain(tables)
    }

    /// What a text sets, of a variable or of a flag. A text that cannot be read is refused with all other values of a
    /// wrong type.
    pub(crate) fn setting(&self, text: &str, source: Source) -> Setting {
        let as_text = || toml::Value::String(text.to_owned());
        Setting {
            path: self.path.clone(),
            value: self.kind.read(text).unwrap_or_else(as_text),
            source,
        }
    }

    /// The last part of the path, as it stands in its table.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }
}

// === impl ValueKind ===

impl ValueKind {
    /// What is allowed, in words.
    pub fn allowed(&self) -> String {
        match self {
            Self::WholeNumber(None) => "a whole number".to_owned(),
            Self::WholeNumber(Some((least, most))) => {
                format!("a whole number from {least} to {most}")
            }
            Self::Boolean => "true or false".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::OneOf(words) => words.join(" or "),
            Self::Texts => "a list of texts".to_owned(),
        }
    }

    /// Reads the text of a variable or of a flag.
    fn read(&self, text: &str) -> Option<toml::Value> {
        match self {
            // Digits alone: a sign would be dropped without a word.
            Self::WholeNumber(_) if !text.bytes().all(|byte| byte.is_ascii_digit()) => None,
            Self::WholeNumber(_) => text.parse().ok().map(toml::Value::Integer),
            Self::Boolean => text.parse().ok().map(toml::Value::Boolean),
            Self::Text | Self::OneOf(_) => Some(toml::Value::String(text.to_owned())),
            // An empty text is the empty list, which takes back what a file has listed.
            Self::Texts => Some(toml::Value::Array(
                text.split(',')
                    .map(str::trim)
                    .filter(|text| !text.is_empty())
                    .map(|text| toml::Value::String(text.to_owned()))
                    .collect(),
            )),
        }
    }

    /// Whether a value has the right type and, where that decides, the right form.
    pub(crate) fn takes(&self, value: &toml::Value) -> bool {
        match (self, value) {
            (Self::WholeNumber(bounds), toml::Value::Integer(number)) => {
                let (least, most) = bounds.unwrap_or((0, u64::MAX));
                u64::try_from(*number).is_ok_and(|number| (least..=most).contains(&number))
            }
            (Self::Boolean, toml::Value::Boolean(_)) | (Self::Text, toml::Value::String(_)) => true,
            (Self::OneOf(words), toml::Value::String(text)) => words.contains(text),
            (Self::Texts, toml::Value::Array(list)) => list.iter().all(toml::Value::is_str),
            _ => false,
        }
    }

    fn of(root: &Value, schema: &Value) -> Self {
        match schema["type"].as_str() {
            Some("integer") => {
                let bound = |name: &str| schema[name].as_u64();
                return Self::WholeNumber(bound("minimum").zip(bound("maximum")));
            }
            Some("boolean") => return Self::Boolean,
            Some("array") => return Self::Texts,
            _ => {}
        }
        let words = |list: &Value, word: fn(&Value) -> &Value| {
            let words = list
                .as_array()?
                .iter()
                .map(|item| word(resolve(root, item)).as_str());
            words
                .map(|word| word.map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        };
        words(&schema["enum"], |item| item)
            .or_else(|| words(&schema["oneOf"], |item| &item["const"]))
            .map_or(Self::Text, Self::OneOf)
    }
}

/// The schema of a key or a table, as its struct has it: with its text, perhaps by reference.
fn property<'a>(root: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .filter(|part| !part.is_empty())
        .fold(root, |schema, part| {
            &resolve(root, schema)["properties"][part]
        })
}

fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    schema["$ref"]
        .as_str()
        .and_then(|reference| root.pointer(reference.trim_start_matches('#')))
        .unwrap_or(schema)
}

/// A doc comment, its line breaks undone: lines were broken for the source file.
fn description(root: &Value, path: &str) -> String {
    let text = property(root, path)["description"].as_str();
    text.unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_every_table_has_a_text() {
        for section in Section::all() {
            assert!(!section.doc.is_empty(), "{}", section.name);
            for key in section.keys {
                assert!(!key.doc.is_empty(), "{}", key.path);
            }
        }
    }

    #[test]
    fn a_key_knows_what_it_takes() {
        let keys = Key::all();
        let kind = |path: &str| &keys.iter().find(|key| key.path == path).unwrap().kind;
        let bounds = Some((100, 86_400_000));
        assert_eq!(*kind("limits.min_ttl_ms"), ValueKind::WholeNumber(bounds));
        assert_eq!(*kind("limits.max_waiters"), ValueKind::WholeNumber(None));
        assert_eq!(*kind("insecure_no_auth"), ValueKind::Boolean);
        assert_eq!(*kind("store"), ValueKind::Text);
        let words = vec!["text".to_owned(), "json".to_owned()];
        assert_eq!(*kind("log.format"), ValueKind::OneOf(words));
        assert_eq!(*kind("http.allowed_origins"), ValueKind::Texts);
    }

    #[test]
    fn no_two_keys_share_a_variable() {
        let mut variables: Vec<_> = Key::all().iter().map(Key::variable).collect();
        variables.sort();
        let count = variables.len();
        variables.dedup();
        assert_eq!(variables.len(), count);
    }
}
