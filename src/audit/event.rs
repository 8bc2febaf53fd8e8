//! Events for the audit log, and the lines written for them.

use std::{net::IpAddr, sync::Arc, time::SystemTime};

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    invisible_chars::escape_json,
    lock::{FencingToken, LockName, OrderNumber},
};

/// Numbers of refusals, of sign-outs and of exchanges that were left out of the audit log since the last line that reports
/// such numbers.
pub(super) type LeftOut = [u64; 3];

/// Fields in which an audit line reports how many lines were left out, in the order of [`LeftOut`].
const LEFT_OUT_FIELDS: [&str; 3] = [
    "refusals_left_out",
    "sign_outs_left_out",
    "exchanges_left_out",
];

/// The caller of a request, as far as known.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// The name of the API key, never the key itself.
    pub key: Option<&'a str>,
    /// The id of the request in the log of the gateway.
    pub request_id: &'a str,
    /// The other end of the connection: the caller, or the last proxy on its way.
    pub remote: Option<IpAddr>,
}

/// A request that was refused.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// The caller that was refused.
    pub requester: Requester<'a>,
    /// The method of the request.
    pub method: &'a str,
    /// The route of the request, such as `/locks/{name}`.
    pub route: &'a str,
    /// The name of the lock in the request, if any.
    pub name: Option<&'a LockName>,
    /// The code of the problem in the answer.
    pub outcome: &'a str,
    /// Why the request was refused.
    pub reason: &'a str,
}

/// The result of reading the API keys again: which keys, by name, are different now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadedKeys {
    /// How many API keys the gateway has now.
    pub count: usize,
    /// The names of keys that are new.
    pub added: Vec<Arc<str>>,
    /// The names of keys that were removed.
    pub removed: Vec<Arc<str>>,
    /// The names of keys whose secrets, permissions, limits or end have changed.
    pub changed: Vec<Arc<str>>,
}

/// An attempt to break a lock, or to request its release.
#[derive(Debug, Clone, Copy)]
pub struct BreakAttempt<'a> {
    /// The caller that sent the request to break the lock.
    pub requester: Requester<'a>,
    /// The name of the lock to break.
    pub name: &'a LockName,
    /// Each lease that the break hit or was meant to hit. Not empty.
    pub leases: &'a [AuditedLease<'a>],
    /// The reason that the caller gave.
    pub reason: &'a str,
    /// The outcome: `broken`, `requested` if the holder was asked to release the lock first, or the code of the
    /// problem in the answer.
    pub outcome: &'a str,
}

/// A lease in the audit log. What is not known, or what the lease does not have, is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditedLease<'a> {
    /// The fencing token of the lease.
    pub fence: Option<FencingToken>,
    /// The owner text of the lease.
    pub owner: Option<&'a str>,
    /// The name of the API key that made the reservation that the lease is.
    pub reserved_by: Option<&'a str>,
}

/// A lock that was reserved.
#[derive(Debug, Clone, Copy)]
pub struct Reserved<'a> {
    /// The caller that reserved the lock.
    pub requester: Requester<'a>,
    /// The name of the lock.
    pub name: &'a LockName,
    /// The lease.
    pub lease: AuditedLease<'a>,
    /// When the reservation ends.
    pub until: SystemTime,
    /// The reason that the caller gave.
    pub reason: &'a str,
}

/// An attempt to set the order that a lock remembers.
#[derive(Debug, Clone, Copy)]
pub struct OrderAttempt<'a> {
    /// The caller that sent the request.
    pub requester: Requester<'a>,
    /// The name of the lock.
    pub name: &'a LockName,
    /// The new order; `None` if the lock is to forget its order.
    pub order: Option<OrderNumber>,
    /// The reason that the caller gave.
    pub reason: &'a str,
    /// The outcome: `set`, or the code of the problem in the answer.
    pub outcome: &'a str,
}

// === Audit entry ===
//
// One line of the audit log.

/// One line of the audit log: fields with their values. Fields that do not apply to an event are left out.
pub(super) struct AuditEntry(Vec<(&'static str, Value)>);

/// The maximum length, in bytes, of a value that a caller has chosen. Longer values are cut.
const MAX_VALUE: usize = 512;

// === impl AuditEntry ===

impl AuditEntry {
    /// Makes an audit line with the name of its event and the time.
    pub(super) fn new(event: &'static str, at: SystemTime) -> Self {
        let mut entry = Self(Vec::with_capacity(12));
        // The time is in RFC 3339, in UTC.
        entry.set("at", humantime::format_rfc3339_millis(at).to_string());
        entry.set("event", event);
        entry
    }

    /// Sets a field of the audit line, unless its value is null or an empty list.
    pub(super) fn set(&mut self, field: &'static str, value: impl Into<Value>) {
        match value.into() {
            Value::Null => {}
            Value::Array(list) if list.is_empty() => {}
            value => self.0.push((field, value)),
        }
    }

    /// Sets the fields of the audit line that identify the caller.
    pub(super) fn set_requester(&mut self, requester: &Requester<'_>) {
        self.set("key", requester.key.map(bounded));
        self.set("request_id", bounded(requester.request_id));
        self.set("remote", requester.remote.map(|it| it.to_string()));
    }

    /// Sets the fields of a lease.
    pub(super) fn set_lease(&mut self, lease: &AuditedLease<'_>) {
        self.set("fencing_token", lease.fence.map(FencingToken::get));
        self.set("owner", lease.owner.map(bounded));
        self.set("reserved_by", lease.reserved_by.map(bounded));
    }

    /// Sets the fields that report how many lines were left out before this line.
    pub(super) fn set_left_out(&mut self, left_out: LeftOut) {
        for (field, count) in LEFT_OUT_FIELDS.into_iter().zip(left_out) {
            self.set(field, (count > 0).then_some(count));
        }
    }

    /// The line with its newline. JSON escapes characters that would end the text or the line; invisible
    /// characters, which could make the text look like another, are escaped here too.
    pub(super) fn line(&self) -> Vec<u8> {
        let text = serde_json::to_string(self).expect("texts and numbers can be written as JSON");
        let mut line = escape_json(&text).into_owned();
        line.push('\n');
        line.into_bytes()
    }
}

impl Serialize for AuditEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(field, value)| (field, value)))
    }
}

/// A value that a caller has chosen, cut to [`MAX_VALUE`] bytes.
pub(super) fn bounded(value: &str) -> &str {
    &value[..value.floor_char_boundary(MAX_VALUE)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_line_whatever_is_in_it() {
        let mut entry = AuditEntry::new("break", SystemTime::UNIX_EPOCH);
        entry.set("key", None::<&str>);
        entry.set("reason", "a \"b\"\n{\"event\":\"start\"}\r\u{1b}[31m");
        let line = String::from_utf8(entry.line()).unwrap();
        assert_eq!(
            line,
            "{\"at\":\"1970-01-01T00:00:00.000Z\",\"event\":\"break\",\"reason\":\"a \\\"b\\\"\\n\
             {\\\"event\\\":\\\"start\\\"}\\r\\u001b[31m\"}\n"
        );
    }

    #[test]
    fn shows_no_other_text_than_the_one_that_is_there() {
        let reason = "\u{202e}gpj\u{2066}\u{2028}\u{9b}a\u{200d}é";
        let mut entry = AuditEntry::new("break", SystemTime::UNIX_EPOCH);
        entry.set("reason", reason);
        let line = String::from_utf8(entry.line()).unwrap();
        let escaped = r#""reason":"\u202egpj\u2066\u2028\u009ba\u200dé""#;
        assert!(line.contains(escaped), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["reason"], reason);
    }

    #[test]
    fn a_long_value_is_cut_between_two_characters() {
        let long = "é".repeat(MAX_VALUE);
        assert_eq!(bounded(&long).len(), MAX_VALUE);
        assert_eq!(bounded(&format!("a{long}")).len(), MAX_VALUE - 1);
        assert_eq!(bounded("short"), "short");
    }
}
