//! What the program says about itself while it runs.

mod logging;
pub mod metrics;
pub mod trace;

pub use logging::{LogEnd, LoggingError, init};
