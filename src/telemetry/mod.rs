//! Telemetry: logs, metrics and traces.

mod logging;
pub mod metrics;
pub mod trace;

pub use logging::{LogEnd, LoggingError, init};
