//! Reads the configuration file.

use std::{fmt, path::Path};

use toml::de::{DeTable, DeValue};

use crate::bounded_file;

use super::{
    super::{ConfigError, Source, error::RefusedValue},
    setting::Setting,
};

/// One `key = value` of a TOML text. It may hold a password, so its `Debug` shows no value.
pub(crate) struct TomlEntry {
    pub(crate) path: String,
    pub(crate) value: toml::Value,
    /// Counted from 1.
    pub(crate) line: usize,
}

/// Why a text cannot be read, and where.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It is not TOML.
    Syntax { reason: String, line: usize },
    /// No number is as large as this one.
    TooLarge {
        path: String,
        number: String,
        line: usize,
    },
}

// === impl TomlEntry ===

impl fmt::Debug for TomlEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (line {})", self.path, self.line)
    }
}

/// With every key and all that there is to say of them it is a twentieth of that.
const MAX_LEN: u64 = 1024 * 1024;

/// Reads what a file sets, whether or not such keys exist.
pub(crate) fn read(path: &Path, named_by: Source) -> Result<Vec<Setting>, ConfigError> {
    let text = bounded_file::read_text(path, MAX_LEN).map_err(|error| ConfigError::Unreadable {
        path: path.to_owned(),
        named_by,
        error,
    })?;
    let at = |line| Source::File {
        path: path.to_owned(),
        line,
    };
    let entries = entries(&text).map_err(|fault| match fault {
        Fault::Syntax { reason, line } => ConfigError::NotToml {
            source_line: at(line),
            reason,
        },
        Fault::TooLarge { path, number, line } => ConfigError::Refused(Box::new(RefusedValue {
            key: path,
            value: number,
            set_by: at(line),
            allowed: format!("a whole number up to {}", i64::MAX),
            depends_on: None,
        })),
    })?;
    let setting = |entry: TomlEntry| Setting {
        path: entry.path,
        value: entry.value,
        source: at(entry.line),
    };
    Ok(entries.into_iter().map(setting).collect())
}

/// Every `key = value` of a text, in the order of the text.
pub(crate) fn entries(text: &str) -> Result<Vec<TomlEntry>, Fault> {
    let line = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
    // The message alone: its long form repeats the line, which may hold a password.
    let syntax = |error: &toml::de::Error| Fault::Syntax {
        reason: error.message().to_owned(),
        line: error.span().map_or(1, |span| line(span.start)),
    };
    let document = DeTable::parse(text).map_err(|error| syntax(&error))?;
    // Not by way of the spanned tree: a value there is still the text of a number.
    let values: toml::Table = text.parse().map_err(|error| {
        let too_large = too_large(document.get_ref(), "");
        too_large.map_or_else(
            || syntax(&error),
            |(offset, path, number)| Fault::TooLarge {
                path,
                number,
                line: line(offset),
            },
        )
    })?;
    let mut found = Vec::new();
    collect(document.get_ref(), &values, "", &mut found);
    found.sort_by_key(|(offset, ..)| *offset);
    let entry = |(offset, path, value)| TomlEntry {
        path,
        value,
        line: line(offset),
    };
    Ok(found.into_iter().map(entry).collect())
}

/// A number that is none of TOML's, if there is one: where its key stands, the key, and the number.
fn too_large(table: &DeTable<'_>, prefix: &str) -> Option<(usize, String, String)> {
    table.iter().find_map(|(key, value)| {
        let path = format!("{prefix}{}", key.get_ref());
        if let DeValue::Table(inner) = value.get_ref() {
            return too_large(inner, &format!("{path}."));
        }
        let number = too_large_in(value.get_ref())?;
        Some((key.span().start, path, number))
    })
}

fn too_large_in(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .is_err()
            .then(|| number.to_string()),
        DeValue::Array(values) => values
            .iter()
            .find_map(|value| too_large_in(value.get_ref())),
        _ => None,
    }
}

fn collect(
    table: &DeTable<'_>,
    values: &toml::Table,
    prefix: &str,
    found: &mut Vec<(usize, String, toml::Value)>,
) {
    for (key, value) in table {
        let Some(plain) = values.get(key.get_ref().as_ref()) else {
            continue;
        };
        let path = format!("{prefix}{}", key.get_ref());
        match (value.get_ref(), plain) {
            (DeValue::Table(inner), toml::Value::Table(values)) if !inner.is_empty() => {
                collect(inner, values, &format!("{path}."), found);
            }
            _ => found.push((key.span().start, path, plain.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_line_of_every_value() {
        let text = "# words\nb = 1\n\n[t]\n  x = 'y'\na.c = true\n[empty]\n";
        let entries = entries(text).unwrap();
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
            ]
        );
    }

    #[test]
    fn does_not_repeat_a_line_that_is_not_toml() {
        let fault = entries("x = 1\nstore = \"redis://:s3cret@h\nlisten = 2").unwrap_err();
        let Fault::Syntax { reason, line } = fault else {
            panic!("{fault:?}");
        };
        assert_eq!(line, 2);
        assert!(!reason.contains("s3cret"), "{reason}");
    }

    #[test]
    fn a_number_that_is_too_large_is_found() {
        for (text, key) in [
            ("a = 1\nb = 9223372036854775808", "b"),
            ("[t]\nc = 0xffffffffffffffffffffffffffffffffffff", "t.c"),
            ("\nd = [1, -99999999999999999999]", "d"),
        ] {
            let fault = entries(text).unwrap_err();
            let Fault::TooLarge { path, line, .. } = fault else {
                panic!("{fault:?}");
            };
            assert_eq!((path.as_str(), line), (key, 2));
        }
        assert!(entries("a = 9223372036854775807").is_ok());
    }
}
