//! The list of all configuration keys, from the structs that declare them.

use std::path::Path;

use serde_json::Value;

use super::{
    super::{Config, Source},
    file::{self, Setting},
};

/// One configuration key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The path of the key in a file, such as `limits.min_ttl_ms`.
    pub path: String,
    /// The kind of value that the key takes.
    pub kind: ValueKind,
    /// The default value of the key, as TOML.
    pub default: String,
    /// The description of the key, from the doc comment of its field.
    pub doc: String,
}

/// The kind of value that a key takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueKind {
    /// A whole number, with the smallest and the largest allowed if the key has bounds.
    WholeNumber(Option<(u64, u64)>),
    /// The value is `true` or `false`.
    Boolean,
    /// The value is a text, whose form the type of the field checks.
    Text,
    /// The value is one of these words.
    OneOf(Vec<String>),
    /// The value is a list of texts.
    Texts,
}

/// A table of the configuration with its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The name of the table; empty for the keys before the first table.
    pub name: String,
    /// The description of the table, from the doc comment of its field.
    pub doc: String,
    /// The keys of the table, in the order of the struct.
    pub keys: Vec<Key>,
}

// === impl Section ===

impl Section {
    /// All tables of the configuration with all keys, in the order in which the structs declare them.
    ///
    /// Paths and defaults come from the default configuration as TOML, which keeps the order. Types and descriptions
    /// come from the JSON schema of the structs.
    pub fn all() -> Vec<Self> {
        let schema = schemars::schema_for!(Config).to_value();
        let text = toml::to_string(&Config::default()).expect("the configuration is a TOML table");
        let mut sections: Vec<Self> = Vec::new();
        for entry in
            file::entries(Path::new("the defaults"), &text, &[]).expect("it was just written")
        {
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
                kind: ValueKind::from_schema(
                    &schema,
                    resolve(&schema, property(&schema, &entry.path)),
                ),
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
    /// Every key of the configuration, in the order in which the structs declare them.
    pub fn all() -> Vec<Self> {
        Section::all()
            .into_iter()
            .flat_map(|section| section.keys)
            .collect()
    }

    /// The environment variable that sets the key, such as `LATCHGATE_LIMITS_MIN_TTL_MS`.
    pub fn variable(&self) -> String {
        format!(
            "LATCHGATE_{}",
            self.path.replace('.', "_").to_ascii_uppercase()
        )
    }

    /// The path of the key, and the paths of all tables that contain the key.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        let tables = self.path.match_indices('.');
        let tables = tables.map(|(end, _)| self.path[..end].to_owned());
        std::iter::once(self.path.clone()).chain(tables)
    }

    /// Makes a setting of the text of a variable or a flag. If the text cannot be parsed, the setting keeps the text,
    /// and the check of types refuses it later.
    pub(crate) fn setting(&self, text: &str, source: Source) -> Setting {
        let as_text = || toml::Value::String(text.to_owned());
        Setting {
            path: self.path.clone(),
            value: self.kind.read(text).unwrap_or_else(as_text),
            source,
        }
    }

    /// The name of the key in its table: the last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }
}

// === impl ValueKind ===

impl ValueKind {
    /// A description of the values that this kind allows.
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

    /// Parses the text of a variable or a flag as a value of this kind.
    fn read(&self, text: &str) -> Option<toml::Value> {
        match self {
            // Only digits are allowed, because the number parser would accept a plus sign.
            Self::WholeNumber(_) if !text.bytes().all(|byte| byte.is_ascii_digit()) => None,
            Self::WholeNumber(_) => text.parse().ok().map(toml::Value::Integer),
            Self::Boolean => text.parse().ok().map(toml::Value::Boolean),
            Self::Text | Self::OneOf(_) => Some(toml::Value::String(text.to_owned())),
            // An empty text is an empty list, so that a variable or a flag can empty the list of the file.
            Self::Texts => Some(toml::Value::Array(
                text.split(',')
                    .map(str::trim)
                    .filter(|text| !text.is_empty())
                    .map(|text| toml::Value::String(text.to_owned()))
                    .collect(),
            )),
        }
    }

    /// Whether a value is of this kind: its type fits, a number is within its bounds, a word is one of `OneOf`.
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

    fn from_schema(root: &Value, schema: &Value) -> Self {
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

/// The JSON schema of the field for a key or a table, with its description, and perhaps with a reference to its type.
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

/// The doc comment of a key or a table in one line, without the line breaks of the source file.
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
