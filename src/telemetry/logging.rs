//! Log lines on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::{
    Layer, filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt, util::TryInitError,
};

use crate::{
    config::{Invalid, LogConfig, LogFormat},
    unseen::{escape_json, escape_text},
};

use super::{panics, plain_lines::PlainLines};

/// Why nothing can be logged.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The level is none.
    #[error(transparent)]
    Level(#[from] Invalid),
    /// Somebody else logs already.
    #[error("cannot log: {0}")]
    Taken(#[from] TryInitError),
}

/// Begins to log. Once per process.
///
/// A line that cannot be written is lost, and nothing else: the library would complain about it on
/// standard error, which panics where that is the very stream that cannot be written.
pub fn init(config: &LogConfig) -> Result<(), LoggingError> {
    let filter = config.filter()?;
    match config.format {
        LogFormat::Text => {
            let lines = fmt::layer()
                .with_writer(|| PlainLines::new(io::stderr(), escape_text))
                .log_internal_errors(false)
                .with_ansi(io::stderr().is_terminal());
            start(lines, filter)
        }
        LogFormat::Json => {
            let lines = fmt::layer()
                .with_writer(|| PlainLines::new(io::stderr(), escape_json))
                .log_internal_errors(false)
                .json()
                .flatten_event(true)
                .with_current_span(true)
                .with_span_list(false);
            start(lines, filter)
        }
    }
}

fn start<L>(lines: L, filter: Targets) -> Result<(), LoggingError>
where
    L: Layer<tracing_subscriber::Registry> + Send + Sync + 'static,
{
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .try_init()?;
    panics::log();
    Ok(())
}
