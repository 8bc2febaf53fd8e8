//! Spans as OTLP writes them: protocol buffers.
//!
//! Written out here, because it is a few fields of five messages, and the crates that generate them
//! bring a gRPC stack along. The tests read it back with the official definitions.

use std::time::SystemTime;

use crate::release;

use super::record::{Record, Value};

/// Who sends spans.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) service_name: String,
    /// Different for every process.
    pub(super) instance: String,
}

/// The scope of our spans: who made them.
const SCOPE: &str = "latchgate";

const STATUS_CODE_ERROR: u64 = 2;
/// Sampled, and it is known whether the parent is in another process.
const FLAGS: u32 = 0x101;
const IS_PARENT_REMOTE: u32 = 0x200;

/// One field after the other of a message.
#[derive(Default)]
struct ProtoMessage(Vec<u8>);

/// An `ExportTraceServiceRequest` with these spans.
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

/// Since 1970. A clock that is wrong by centuries shows in the trace and nowhere else.
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

    /// A `KeyValue` with its `AnyValue`.
    fn attribute(&mut self, field: u32, name: &str, value: &Value) {
        let mut any = Self::default();
        match value {
            Value::Text(text) => any.text(1, text),
            Value::Flag(flag) => any.number(2, u64::from(*flag)),
            // Two's complement, as the format has it.
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
