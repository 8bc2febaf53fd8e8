//! What the program says about itself while it runs.

mod logging;

pub use logging::{LoggingError, init};
