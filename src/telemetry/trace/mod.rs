//! Traces: what becomes of a request, told to a collector with OTLP over HTTP.
//!
//! No span is made unless a collector is configured and the trace is sampled. Spans name routes and
//! operations; tokens and keys are never in one.

mod encode;
mod error;
mod exporter;
mod headers;
mod record;
mod tracer;

pub use error::TraceError;
pub use exporter::check_trace;
pub use record::{SpanKind, Value};
pub use tracer::{Span, Tracer, child, within};
