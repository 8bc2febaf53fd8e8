//! Spans, and their encoding as OTLP protocol buffers.
//!
//! The encoding is written by hand: it has only a few fields of five messages, and the crates that generate such code
//! depend on a gRPC stack. The tests decode the result with the official definitions.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::release;

/// The process that sends the spans, which the resource attributes of OTLP describe.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) service_name: String,
    /// A random id of this process, different for each start.
    pub(super) instance: String,
}

/// The name of the instrumentation scope of all spans.
const SCOPE: &str = "latchgate";

const STATUS_CODE_ERROR: u64 = 2;
/// The flags of a span: the trace is sampled, and the flag whether the parent is remote is valid.
const FLAGS: u32 = 0x101;
const IS_PARENT_REMOTE: u32 = 0x200;

/// The encoded fields of a protocol buffer message.
#[derive(Default)]
struct ProtoMessage(Vec<u8>);

/// Encodes an `ExportTraceServiceRequest` with these spans.
pub(super) fn request(sender: &Sender, records: &[Record]) -> Vec<u8> {
    let mut resource = ProtoMessage::default();
    for (name, text) in [
        ("service.name", sender.service_name.as_str()),
        ("service.version", release::VERSION),
        ("service.instance.id", sender.instance.as_str()),
    ] {
        resource.attribute(1, name, &Value::Text(text.to_owned().into()));
    }
    let mut scope = ProtoMessage::default();
    scope.text(1, SCOPE);
    scope.text(2, release::VERSION);
    let mut of_scope = ProtoMessage::default();
    of_scope.message(1, &scope);
    for record in records {
        of_scope.message(2, &span(record));
    }
    let mut of_resource = ProtoMessage::default();
    of_resource.message(1, &resource);
    of_resource.message(2, &of_scope);
    let mut request = ProtoMessage::default();
    request.message(1, &of_resource);
    request.0
}

fn span(record: &Record) -> ProtoMessage {
    let mut span = ProtoMessage::default();
    span.bytes(1, &record.trace_id.to_be_bytes());
    span.bytes(2, &record.span_id.to_be_bytes());
    if let Some(state) = &record.state {
        span.text(3, state);
    }
    if let Some(parent) = record.parent {
        span.bytes(4, &parent.to_be_bytes());
    }
    span.text(5, &record.name);
    span.number(6, record.kind as u64);
    span.fixed64(7, nanoseconds(record.start));
    span.fixed64(8, nanoseconds(record.start + record.took));
    for (name, value) in &record.attributes {
        span.attribute(9, name, value);
    }
    if record.has_failed {
        let mut status = ProtoMessage::default();
        status.number(3, STATUS_CODE_ERROR);
        span.message(15, &status);
    }
    let remote = u32::from(record.is_parent_remote) * IS_PARENT_REMOTE;
    span.fixed32(16, FLAGS | remote);
    span
}

/// The time in nanoseconds since 1970. A time outside the range becomes the nearest end of the range, which is wrong
/// only in the trace.
fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

// === impl ProtoMessage ===

impl ProtoMessage {
    const VARINT: u32 = 0;
    const FIXED64: u32 = 1;
    const LENGTH: u32 = 2;
    const FIXED32: u32 = 5;

    fn number(&mut self, field: u32, number: u64) {
        self.tag(field, Self::VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.tag(field, Self::FIXED64);
        self.0.extend(number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, number: u32) {
        self.tag(field, Self::FIXED32);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, Self::LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u32, message: &Self) {
        self.bytes(field, &message.0);
    }

    /// Encodes an attribute: a `KeyValue` with its `AnyValue`.
    fn attribute(&mut self, field: u32, name: &str, value: &Value) {
        let mut any = Self::default();
        match value {
            Value::Text(text) => any.text(1, text),
            Value::Flag(flag) => any.number(2, u64::from(*flag)),
            // A negative number is encoded in two's complement, as the format requires.
            Value::Number(number) => any.number(3, number.cast_unsigned()),
        }
        let mut pair = Self::default();
        pair.text(1, name);
        pair.message(2, &any);
        self.message(field, &pair);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut number: u64) {
        loop {
            let low = number.to_le_bytes()[0] & 0x7f;
            number >>= 7;
            if number == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }
}

// === Record ===
//
// The data of a span that is sent to the collector.

/// The data of a span: names, ids, times and attributes.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) parent: Option<u64>,
    /// Whether the parent span belongs to another process.
    pub(super) is_parent_remote: bool,
    pub(super) state: Option<Arc<str>>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) start: SystemTime,
    pub(super) took: Duration,
    pub(super) attributes: Vec<(&'static str, Value)>,
    pub(super) has_failed: bool,
}

/// The kind of a span, with the number of the kind in OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// The span is an operation within this process.
    Internal = 1,
    /// The span is the answer to a request.
    Server = 2,
    /// The span is a request to another program.
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The value is a text.
    Text(Cow<'static, str>),
    /// The value is a whole number.
    Number(i64),
    /// The value is true or false.
    Flag(bool),
}

// === impl Record ===

impl Record {
    /// The data of a span that starts now, still without parent, attributes and duration.
    pub(super) fn new(
        trace_id: u128,
        name: Cow<'static, str>,
        kind: SpanKind,
        start: SystemTime,
    ) -> Self {
        Self {
            trace_id,
            // Without random bytes, span ids repeat and traces are wrong, but the gateway works.
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
