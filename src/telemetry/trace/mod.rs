//! Traces: spans of requests, sent to a collector with OTLP over HTTP.
//!
//! A span is made only if a collector is configured and the trace is sampled. Spans contain the names of routes and
//! operations, never tokens or keys.

mod encode;
mod exporter;
mod tracer;

pub use encode::{SpanKind, Value};
pub use exporter::{TraceError, check_trace};
pub use tracer::{Span, Tracer, child, within};
