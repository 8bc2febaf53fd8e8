//! What the program says about itself while it runs.

mod log_lines;
mod logging;
pub mod metrics;
pub mod trace;

pub use log_lines::LogEnd;
pub use logging::{LoggingError, init};
