//! Reads the configuration file.

use std::{fs, path::Path};

use toml::de::{DeTable, DeValue};

use super::{ConfigError, Source, setting::Setting};

/// One `key = value` of a TOML text.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) value: toml::Value,
    /// Counted from 1.
    pub(super) line: usize,
}

/// Why a text is not TOML, and where.
#[derive(Debug)]
pub(super) struct Syntax {
    reason: String,
    line: usize,
}

/// Reads what a file sets, whether or not such keys exist.
pub(super) fn read(path: &Path, named_by: Source) -> Result<Vec<Setting>, ConfigError> {
    let text = fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
        path: path.to_owned(),
        named_by,
        error,
    })?;
    let at = |line| Source::File {
        path: path.to_owned(),
        line,
    };
    let entries = entries(&text).map_err(|Syntax { reason, line }| ConfigError::NotToml {
        source_line: at(line),
        reason,
    })?;
    let setting = |entry: Entry| Setting {
        path: entry.path,
        value: entry.value,
        source: at(entry.line),
    };
    Ok(entries.into_iter().map(setting).collect())
}

/// Every `key = value` of a text, in the order of the text.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, Syntax> {
    let line = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
    // The message alone: its long form repeats the line, which may hold a password.
    let syntax = |error: &toml::de::Error| Syntax {
        reason: error.message().to_owned(),
        line: error.span().map_or(1, |span| line(span.start)),
    };
    let document = DeTable::parse(text).map_err(|error| syntax(&error))?;
    // Not by way of the spanned tree: a value there is still the text of a number.
    let values: toml::Table = text.parse().map_err(|error| syntax(&error))?;
    let mut found = Vec::new();
    collect(document.get_ref(), &values, "", &mut found);
    found.sort_by_key(|(offset, ..)| *offset);
    let entry = |(offset, path, value)| Entry {
        path,
        value,
        line: line(offset),
    };
    Ok(found.into_iter().map(entry).collect())
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
        let syntax = entries("x = 1\nstore = \"redis://:s3cret@h\nlisten = 2").unwrap_err();
        assert_eq!(syntax.line, 2);
        assert!(!syntax.reason.contains("s3cret"), "{}", syntax.reason);
    }
}
