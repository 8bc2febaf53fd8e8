//! The fields of a JSON body, taken one by one while everything that is wrong is collected.

use std::{borrow::Cow, collections::BTreeMap, fmt::Display};

use crate::http::problem::{FieldError, Problem};

use super::json_value::{JsonValue, Object};

/// The fields of a body that have not been taken yet, and what was wrong with those that have.
///
/// `null` is the same as leaving a field out. What nobody takes is unknown, and refused.
pub(in crate::http) struct Fields<'a> {
    left: Object<'a>,
    /// The names of the fields that were asked for.
    known: [&'static str; MOST_FIELDS],
    asked: usize,
    errors: Vec<FieldError>,
}

/// How many errors an answer names: a person reads no more, and the body may hold thousands.
const NAMED: usize = 16;
/// The most fields that a body has.
const MOST_FIELDS: usize = 8;
/// The byte order mark, which some editors and shells put in front.
const BOM: &[u8] = "\u{feff}".as_bytes();

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Reads a body that is a JSON object. An empty one has no fields.
    pub(in crate::http) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        Ok(Self {
            left: if body.is_empty() {
                Vec::new()
            } else {
                object(body)?
            },
            known: [""; MOST_FIELDS],
            asked: 0,
            errors: Vec::new(),
        })
    }

    /// A whole number from 0 to 2^64 - 1.
    pub(in crate::http) fn whole(&mut self, name: &'static str) -> Option<u64> {
        match self.take(name)? {
            JsonValue::Whole(number) => Some(number),
            other => {
                let expected = match other {
                    JsonValue::Text(_) => "a number is expected, without quotes",
                    _ => "a whole number from 0 is expected, without fraction or exponent",
                };
                self.refuse(name, format!("{}; {expected}", other.is()));
                None
            }
        }
    }

    /// A text.
    pub(in crate::http) fn text(&mut self, name: &'static str) -> Option<Cow<'a, str>> {
        match self.take(name)? {
            JsonValue::Text(text) => Some(text),
            other => {
                self.refuse(name, format!("{}; a text is expected", other.is()));
                None
            }
        }
    }

    /// An object whose values are texts.
    pub(in crate::http) fn texts(
        &mut self,
        name: &'static str,
    ) -> Option<BTreeMap<String, String>> {
        let entries = match self.take(name)? {
            JsonValue::Object(entries) => entries,
            other => {
                let reason = format!("{}; an object of texts is expected", other.is());
                self.refuse(name, reason);
                return None;
            }
        };
        let mut texts = BTreeMap::new();
        for (key, value) in entries {
            if let JsonValue::Text(text) = value {
                texts.insert(key.into_owned(), text.into_owned());
            } else {
                let reason = format!("{}; a text is expected", value.is());
                self.refuse(format!("{name}.{key}"), reason);
            }
        }
        Some(texts)
    }

    /// Keeps a value that is right, or why it is not.
    pub(in crate::http) fn check<T>(
        &mut self,
        name: &'static str,
        value: Result<T, impl Display>,
    ) -> Option<T> {
        value
            .map_err(|error| self.refuse(name, error.to_string()))
            .ok()
    }

    /// Says that a field is wrong.
    pub(in crate::http) fn refuse(
        &mut self,
        field: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) {
        self.errors.push(FieldError::new(field, reason));
    }

    /// Everything that was wrong, fields that nobody has taken included.
    pub(in crate::http) fn finish(mut self) -> Result<(), Problem> {
        if self.left.is_empty() && self.errors.is_empty() {
            return Ok(());
        }
        let known = self.known[..self.asked].join(", ");
        for (name, _) in std::mem::take(&mut self.left) {
            self.refuse(
                name.into_owned(),
                format!("is not known; the fields of this body are {known}"),
            );
        }
        self.errors.truncate(NAMED);
        Err(Problem::invalid(self.errors))
    }

    fn take(&mut self, name: &'static str) -> Option<JsonValue<'a>> {
        self.known[self.asked] = name;
        self.asked += 1;
        let at = self.left.iter().position(|(key, _)| key == name)?;
        match self.left.swap_remove(at).1 {
            JsonValue::Null => None,
            value => Some(value),
        }
    }
}

fn object(body: &[u8]) -> Result<Object<'_>, Problem> {
    let refuse = |reason| Err(Problem::invalid_field("body", reason));
    if body.starts_with(BOM) {
        return refuse("begins with a byte order mark; leave it out".to_owned());
    }
    match serde_json::from_slice(body) {
        Ok(JsonValue::Object(entries)) => Ok(entries),
        Ok(other) => refuse(format!("{}; a JSON object is expected", other.is())),
        Err(error) if error.is_data() => refuse(format!("is ambiguous: {error}")),
        Err(error) => refuse(format!("is not JSON: {error}")),
    }
}
