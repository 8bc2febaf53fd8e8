//! What is told of a span.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// What is told of it.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) parent: Option<u64>,
    /// Whether the parent is in another process.
    pub(super) is_parent_remote: bool,
    pub(super) state: Option<Arc<str>>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) start: SystemTime,
    pub(super) took: Duration,
    pub(super) attributes: Vec<(&'static str, Value)>,
    pub(super) has_failed: bool,
}

/// On which side of what it stands, with the number that OTLP has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Within the process.
    Internal = 1,
    /// It answers a request.
    Server = 2,
    /// It asks somebody else.
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

// === impl Record ===

impl Record {
    /// What is known when it begins.
    pub(super) fn new(
        trace_id: u128,
        name: Cow<'static, str>,
        kind: SpanKind,
        start: SystemTime,
    ) -> Self {
        Self {
            trace_id,
            // A machine without random bytes traces badly, and goes on.
            span_id: getrandom::u64().unwrap_or_default().max(1),
            parent: None,
            is_parent_remote: false,
            state: None,
            name,
            kind,
            start,
            took: Duration::ZERO,
            attributes: Vec::new(),
            has_failed: false,
        }
    }
}

// === impl Value ===

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}
