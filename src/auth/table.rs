//! One `[[key]]` of a keys file, taken field by field.

use std::path::Path;

use toml::Value;

use crate::config::{TomlEntry, closest};

use super::KeysFileError;

/// One `[[key]]`. What nobody takes is unknown, and refused.
pub(super) struct Table<'a> {
    pub(super) file: &'a Path,
    /// Counted from 1.
    pub(super) number: usize,
    /// By their names in the table. Of a table without any there is one without a name.
    pub(super) fields: &'a [TomlEntry],
    pub(super) known: Vec<&'static str>,
}

// === impl Table ===

impl<'a> Table<'a> {
    /// A text; empty if it is left out.
    pub(super) fn text(&mut self, field: &'static str) -> Result<&'a str, KeysFileError> {
        match self.take(field) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(self.refuse(field, "a text")),
        }
    }

    /// A list of texts; empty if it is left out.
    pub(super) fn texts(&mut self, field: &'static str) -> Result<Vec<&'a str>, KeysFileError> {
        let list = match self.take(field) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(self.refuse(field, "a list of texts")),
        };
        let texts: Option<Vec<_>> = list.iter().map(Value::as_str).collect();
        texts.ok_or_else(|| self.refuse(field, "a list of texts"))
    }

    /// Yes or no; no if it is left out.
    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, KeysFileError> {
        match self.take(field) {
            None => Ok(false),
            Some(Value::Boolean(value)) => Ok(*value),
            Some(_) => Err(self.refuse(field, "true or false")),
        }
    }

    /// A whole number within bounds.
    pub(super) fn number(
        &mut self,
        field: &'static str,
        (least, most): (u64, u64),
    ) -> Result<Option<u64>, KeysFileError> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let number = value.as_integer().and_then(|n| u64::try_from(n).ok());
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refuse(field, &format!("a whole number from {least} to {most}"))),
        }
    }

    /// A date with its time, in quotes or without.
    pub(super) fn date(&mut self, field: &'static str) -> Result<Option<String>, KeysFileError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Datetime(date)) => Ok(Some(date.to_string())),
            Some(_) => Err(self.refuse(field, "a date and time")),
        }
    }

    /// Everything has been taken that there should be.
    pub(super) fn finish(self) -> Result<(), KeysFileError> {
        let unknown = |field: &&TomlEntry| !self.known.contains(&field.path.as_str());
        let Some(TomlEntry { path, line, .. }) = self.fields.iter().find(unknown) else {
            return Ok(());
        };
        let known = self.known.iter().map(|&known| known.to_owned());
        Err(KeysFileError::UnknownField {
            path: self.file.to_owned(),
            line: *line,
            field: self.displayed_field(if is_secret(path) { "***" } else { path }),
            closest: closest(path, known),
        })
    }

    /// Says that a field is wrong.
    pub(super) fn refuse(&self, field: &str, allowed: &str) -> KeysFileError {
        let found = self.field(field);
        // A missing field has no line: the message names the line of the first field of its table.
        let line = found.or(self.fields.first()).map_or(1, |it| it.line);
        let value = found.map(|it| displayed(field, &it.value));
        KeysFileError::refused(
            self.file,
            line,
            self.displayed_field(field),
            value.unwrap_or("missing".to_owned()),
            allowed,
        )
    }

    fn take(&mut self, field: &'static str) -> Option<&'a Value> {
        self.known.push(field);
        self.field(field).map(|it| &it.value)
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

/// A value as it may be shown: somebody may have put a key where its hash should be.
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
