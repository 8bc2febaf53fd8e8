//! Traces: what becomes of a request, told to a collector with OTLP over HTTP.
//!
//! No span is made unless a collector is configured and the trace is sampled. Spans name routes and
//! operations; tokens and keys are never in one.

mod encode;
mod exporter;
mod tracer;

pub use encode::{SpanKind, Value};
pub use exporter::{TraceError, check_trace};
pub use tracer::{Span, Tracer, child, within};
