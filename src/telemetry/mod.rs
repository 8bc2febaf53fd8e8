//! What the program says about itself while it runs.

mod logging;
pub mod metrics;
mod panics;
mod plain_lines;
pub mod trace;

pub use logging::{LoggingError, init};
pub use panics::expecting_panics;
