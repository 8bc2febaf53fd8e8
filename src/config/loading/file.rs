//! Reads the configuration file into settings, each with its value and source.

use std::{fmt, ops::Range, path::Path};

use serde::Deserialize;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use crate::bounded_file;

use super::super::{ConfigError, NotToml, Source, StoreUrl};

/// A value that a source sets for a key, with that source. The value may hold a password, which `Debug` masks.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) path: String,
    pub(crate) value: toml::Value,
    pub(crate) source: Source,
}

// === impl Setting ===

impl Setting {
    /// The value for messages: without a password, even if the value is malformed.
    pub(crate) fn displayed(&self) -> String {
        match &self.value {
            toml::Value::String(text) if self.path == "store" => {
                format!("{:?}", StoreUrl::redact(text))
            }
            toml::Value::Table(_) => "a table".to_owned(),
            // Only the lists of hosts and origins are shown: for any other key, a list may contain a store URL with its
            // password by mistake.
            toml::Value::Array(_) if !self.path.starts_with("http.allowed_") => "a list".to_owned(),
            value => value.to_string(),
        }
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.path, self.displayed(), self.source)
    }
}

// === File ===

/// One `key = value` of a TOML text. The value may hold a password, so `Debug` does not show it.
pub(crate) struct TomlEntry {
    /// The names of the tables and of the key, with dots between. The tables of an array are numbered: `key[0].name`.
    pub(crate) path: String,
    pub(crate) value: toml::Value,
    /// The line of the entry in the text, counted from 1.
    pub(crate) line: usize,
}

// === impl TomlEntry ===

impl fmt::Debug for TomlEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (line {})", self.path, self.line)
    }
}

/// The maximum length of a configuration file in bytes: twenty times a file with every key and its description.
const MAX_LEN: u64 = 1024 * 1024;

/// Reads all settings of a configuration file, including settings of unknown keys.
pub(crate) fn read(path: &Path, named_by: Source) -> Result<Vec<Setting>, ConfigError> {
    let text = bounded_file::read_text(path, MAX_LEN).map_err(|error| ConfigError::Unreadable {
        path: path.to_owned(),
        named_by,
        error,
    })?;
    let setting = |entry: TomlEntry| Setting {
        path: entry.path,
        value: entry.value,
        source: Source::File {
            path: path.to_owned(),
            line: entry.line,
        },
    };
    Ok(entries(path, &text, &[])?
        .into_iter()
        .map(setting)
        .collect())
}

/// Every `key = value` in the text of a TOML file, in the order of the text. A table whose path has one of the ends `whole`
/// is one entry.
pub(crate) fn entries(path: &Path, text: &str, whole: &[&str]) -> Result<Vec<TomlEntry>, NotToml> {
    let lines = |range: Range<usize>| text.get(range).unwrap_or_default().matches('\n').count();
    let document = DeTable::parse(text).map_err(|error| NotToml {
        path: path.to_owned(),
        line: 1 + error.span().map_or(0, |span| lines(0..span.start)),
        // The short message of the parser, because its long form repeats the line, which may hold a password.
        reason: error.message().to_owned(),
    })?;
    let mut found = Vec::new();
    collect(document.into_inner(), "", whole, &mut found);
    found.sort_by_key(|(offset, ..)| *offset);
    // Each line is counted from the line of the previous entry. A keys file may have a hundred thousand entries, and
    // counting from the beginning for each would take quadratic time.
    let (mut counted, mut line) = (0, 1);
    let entry = |(offset, path, value)| {
        line += lines(counted..offset);
        counted = offset;
        TomlEntry { path, value, line }
    };
    Ok(found.into_iter().map(entry).collect())
}

fn collect(
    table: DeTable<'_>,
    prefix: &str,
    whole: &[&str],
    found: &mut Vec<(usize, String, toml::Value)>,
) {
    for (key, value) in table {
        let name = key.get_ref();
        let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        // A name with quotes keeps them, and is then unknown: no key needs quotes, and without them the name "a.b"
        // would be taken for the key `a.b`.
        let path = if !name.is_empty() && name.chars().all(is_bare) {
            format!("{prefix}{name}")
        } else {
            format!("{prefix}{name:?}")
        };
        collect_value(key.span().start, path, value, whole, found);
    }
}

fn collect_value(
    offset: usize,
    path: String,
    value: Spanned<DeValue<'_>>,
    whole: &[&str],
    found: &mut Vec<(usize, String, toml::Value)>,
) {
    let span = value.span();
    let is_whole = whole.iter().any(|end| path.ends_with(end));
    match value.into_inner() {
        DeValue::Table(inner) if !inner.is_empty() && !is_whole => {
            collect(inner, &format!("{path}."), whole, found);
        }
        DeValue::Array(tables)
            if !tables.is_empty() && tables.iter().all(|it| it.get_ref().is_table()) =>
        {
            for (number, table) in tables.into_iter().enumerate() {
                collect_value(
                    table.span().start,
                    format!("{path}[{number}]"),
                    table,
                    whole,
                    found,
                );
            }
        }
        value => {
            // A number that is too large for TOML is kept as a fraction or NaN, which every key refuses.
            let number = match &value {
                DeValue::Integer(number) => number.to_string().parse().unwrap_or(f64::NAN),
                _ => f64::NAN,
            };
            let value = ValueDeserializer::from(Spanned::new(span, value));
            let value = toml::Value::deserialize(value);
            found.push((offset, path, value.unwrap_or(toml::Value::Float(number))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_line_of_every_value() {
        let text = "# words\nb = 1\n\n[t]\n  x = 'y'\na.c = true\n[empty]\n\
                    [[k]]\nd = [1]\n[[k]]\n[[k]]\nd = 2\n";
        let entries = entries(Path::new("f"), text, &[]).unwrap();
        let found: Vec<_> = entries
            .iter()
            .map(|entry| (entry.path.as_str(), entry.value.to_string(), entry.line))
            .collect();
        assert_eq!(
            found,
            [
                ("b", "1".to_owned(), 2),
                ("t.x", "\"y\"".to_owned(), 5),
                ("t.a.c", "true".to_owned(), 6),
                ("empty", "{}".to_owned(), 7),
                ("k[0].d", "[1]".to_owned(), 9),
                ("k[1]", "{}".to_owned(), 10),
                ("k[2].d", "2".to_owned(), 12),
            ]
        );
    }

    #[test]
    fn does_not_repeat_a_line_that_is_not_toml() {
        let text = "x = 1\nstore = \"redis://:s3cret@h\nlisten = 2";
        let error = entries(Path::new("f"), text, &[]).unwrap_err().to_string();
        assert!(error.starts_with("line 2 of f is not TOML: "), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_number_that_is_too_large_is_kept_as_one_that_no_key_takes() {
        for (text, value) in [
            ("a = 9223372036854775807", "9223372036854775807"),
            ("a = 9223372036854775808", "9223372036854776000.0"),
        ] {
            let entries = entries(Path::new("f"), text, &[]).unwrap();
            assert_eq!(entries[0].value.to_string(), value);
        }
    }
}
