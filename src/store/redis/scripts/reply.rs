//! The reply of a script: what it is, what it answers, and its fields.

use std::vec;

use bb8_redis::redis::Value;

use crate::store::{StoreError, Uncertainty};

use super::super::run::{RunId, Told};

/// A reply that is known to answer our command.
#[derive(Debug)]
pub(in crate::store::redis) struct Reply {
    kind: String,
    fields: vec::IntoIter<Value>,
    told: Told,
}

/// How much of a text is shown that somebody else has written: more than any version number has.
const LONGEST_FOREIGN: usize = 32;

// === impl Reply ===

impl Reply {
    /// Takes a reply apart. Its second field must repeat `echo`, or it answers something else.
    pub(in crate::store::redis) fn read(value: Value, echo: &str) -> Result<Self, String> {
        let Value::Array(fields) = value else {
            return Err("no list".to_owned());
        };
        let mut fields = fields.into_iter();
        match (fields.next(), fields.next()) {
            (Some(Value::BulkString(kind)), Some(Value::BulkString(echoed)))
                if echoed == echo.as_bytes() =>
            {
                let kind = String::from_utf8(kind).map_err(|_| "no kind".to_owned())?;
                Ok(Self {
                    kind,
                    fields,
                    told: Told::by(None),
                })
            }
            _ => Err("an answer to another command".to_owned()),
        }
    }

    pub(in crate::store::redis) fn kind(&self) -> &str {
        &self.kind
    }

    /// Fields of their own, without a kind.
    pub(super) fn of_fields(fields: Vec<Value>) -> Self {
        Self {
            kind: String::new(),
            fields: fields.into_iter(),
            told: Told::by(None),
        }
    }

    /// The same, as this run of a server gave it just now.
    pub(in crate::store::redis) fn by(self, run: Option<&RunId>) -> Self {
        Self {
            told: Told::by(run),
            ..self
        }
    }

    /// When it came, and which run of which server gave it.
    pub(in crate::store::redis) fn told(&self) -> Told {
        self.told.clone()
    }

    pub(in crate::store::redis) fn integer(&mut self) -> Option<i64> {
        match self.fields.next() {
            Some(Value::Int(number)) => Some(number),
            _ => None,
        }
    }

    pub(in crate::store::redis) fn text(&mut self) -> Option<String> {
        match self.fields.next() {
            Some(Value::BulkString(bytes)) => String::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// A text that somebody else has written, as it can be shown: short, and in one line.
    pub(super) fn foreign_text(&mut self) -> Option<String> {
        let Some(Value::BulkString(bytes)) = self.fields.next() else {
            return None;
        };
        let text = String::from_utf8_lossy(&bytes);
        let mut shown: String = text.chars().take(LONGEST_FOREIGN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Some(shown.escape_debug().to_string())
    }

    pub(super) fn list(&mut self) -> Option<Vec<Value>> {
        match self.fields.next() {
            Some(Value::Array(values)) => Some(values),
            _ => None,
        }
    }

    /// The reply is none that the script gives.
    pub(in crate::store::redis) fn unexpected(&self) -> StoreError {
        Uncertainty::UnexpectedReply(format!("{:?} with unknown fields", self.kind)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn must_repeat_what_it_answers() {
        let value = |echo| Value::Array(vec![text("free"), text(echo), Value::Int(3)]);
        let mut reply = Reply::read(value("a"), "a").unwrap();
        assert_eq!(reply.kind(), "free");
        assert_eq!((reply.integer(), reply.integer()), (Some(3), None));
        assert!(Reply::read(value("b"), "a").is_err());
        assert!(Reply::read(Value::Array(vec![text("free")]), "a").is_err());
        assert!(Reply::read(Value::Int(1), "a").is_err());
    }

    #[test]
    fn shows_of_what_somebody_else_has_written_a_little_and_in_one_line() {
        let shown = |bytes: &[u8]| {
            let value = Value::BulkString(bytes.to_vec());
            Reply::of_fields(vec![value]).foreign_text()
        };
        assert_eq!(shown(b"2").as_deref(), Some("2"));
        let long = shown(&[b'9'; 5_000]).unwrap();
        assert_eq!(long, format!("{}…", "9".repeat(LONGEST_FOREIGN)));
        let odd = shown("a\nb\u{1b}[31m\u{202e}\"".as_bytes()).unwrap();
        assert_eq!(odd, "a\\nb\\u{1b}[31m\\u{202e}\\\"");
        assert_eq!(shown(b"\xff").as_deref(), Some("\u{fffd}"));
        assert_eq!(Reply::of_fields(vec![Value::Int(2)]).foreign_text(), None);
    }

    #[test]
    fn shows_no_field_in_its_error() {
        let reply = Reply::read(Value::Array(vec![text("odd"), text("a"), text("x9")]), "a");
        assert!(!reply.unwrap().unexpected().to_string().contains("x9"));
    }
}
