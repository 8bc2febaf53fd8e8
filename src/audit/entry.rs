//! One line of the audit log.

use std::{net::IpAddr, sync::Arc, time::SystemTime};

use serde::Serialize;

use crate::invisible_chars::escape_json;

use super::{Requester, bounds::LeftOut};

/// One line. What does not apply to an event is left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct AuditEntry<'a> {
    /// When, in RFC 3339 and UTC.
    pub(super) at: String,
    pub(super) event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remote: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fencing_token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<&'a str>,
    /// How many: keys that count now, lines that are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<u64>,
    /// How long a backup is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// How many refusals were left out of the log since the last line that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusals_left_out: Option<u64>,
    /// How many sign-outs were left out of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sign_outs_left_out: Option<u64>,
    /// The names of keys that are new.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) added: &'a [Arc<str>],
    /// The names of keys that are gone.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) removed: &'a [Arc<str>],
    /// The names of keys of which something else is permitted, or that have other secrets.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) changed: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) listen: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<&'a str>,
}

/// The longest value that somebody else has chosen, in bytes. Longer ones are cut.
const MAX_VALUE: usize = 512;

// === impl AuditEntry ===

impl<'a> AuditEntry<'a> {
    pub(super) fn new(event: &'static str, at: SystemTime) -> Self {
        Self {
            at: humantime::format_rfc3339_millis(at).to_string(),
            event,
            ..Self::default()
        }
    }

    /// Says who asked.
    pub(super) fn set_requester(&mut self, requester: &Requester<'a>) {
        self.key = requester.key.map(bounded);
        self.request_id = Some(bounded(requester.request_id));
        self.remote = requester.remote;
    }

    /// The same line, with what was left out before it.
    pub(super) fn behind(self, left_out: LeftOut) -> Self {
        Self {
            refusals_left_out: left_out.refusals,
            sign_outs_left_out: left_out.sign_outs,
            ..self
        }
    }

    /// The line, with its end. JSON escapes what could break out of it; what could make a reader see
    /// another text than the one that is there is escaped as well.
    pub(super) fn line(&self) -> Vec<u8> {
        let text = serde_json::to_string(self).expect("texts and numbers can be written as JSON");
        let mut line = escape_json(&text).into_owned();
        line.push('\n');
        line.into_bytes()
    }
}

/// A value that somebody else has chosen, at a length that does no harm.
pub(super) fn bounded(value: &str) -> &str {
    &value[..value.floor_char_boundary(MAX_VALUE)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_line_whatever_is_in_it() {
        let entry = AuditEntry {
            reason: Some("a \"b\"\n{\"event\":\"start\"}\r\u{1b}[31m"),
            ..AuditEntry::new("break", SystemTime::UNIX_EPOCH)
        };
        let line = String::from_utf8(entry.line()).unwrap();
        assert_eq!(
            line,
            "{\"at\":\"1970-01-01T00:00:00.000Z\",\"event\":\"break\",\"reason\":\"a \\\"b\\\"\\n\
             {\\\"event\\\":\\\"start\\\"}\\r\\u001b[31m\"}\n"
        );
    }

    #[test]
    fn shows_no_other_text_than_the_one_that_is_there() {
        let entry = AuditEntry {
            reason: Some("\u{202e}gpj\u{2066}\u{2028}\u{9b}a\u{200d}é"),
            ..AuditEntry::new("break", SystemTime::UNIX_EPOCH)
        };
        let line = String::from_utf8(entry.line()).unwrap();
        let escaped = r#""reason":"\u202egpj\u2066\u2028\u009ba\u200dé""#;
        assert!(line.contains(escaped), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["reason"], entry.reason.unwrap());
    }

    #[test]
    fn a_long_value_is_cut_between_two_characters() {
        let long = "é".repeat(MAX_VALUE);
        assert_eq!(bounded(&long).len(), MAX_VALUE);
        assert_eq!(bounded(&format!("a{long}")).len(), MAX_VALUE - 1);
        assert_eq!(bounded("short"), "short");
    }
}
