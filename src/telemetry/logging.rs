//! What is logged, in which form.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
};

use tracing::warn;
use tracing_subscriber::{
    Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt, util::TryInitError,
};

use crate::{
    config::{Invalid, LogConfig, LogFormat},
    invisible_chars::{escape_json, escape_text},
};

use super::{
    log_lines::{LogEnd, LogLines},
    panics,
    plain_lines::PlainLines,
};

/// Why nothing can be logged.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The level is none.
    #[error(transparent)]
    Level(#[from] Invalid),
    /// Another subscriber is installed already.
    #[error("cannot log: {0}")]
    Taken(#[from] TryInitError),
    /// The system has no thread or no descriptor for it.
    #[error("cannot start the thread of the log: {0}")]
    Thread(io::Error),
}

/// Begins to log on standard error. Once per process.
///
/// A line that cannot be written is lost, and nothing else: the library would complain about it on
/// standard error, which panics where that is the very stream that cannot be written.
pub fn init(config: &LogConfig) -> Result<LogEnd, LoggingError> {
    let filter = config.filter()?;
    let lines = LogLines::start(standard_error()?, |lost| {
        warn!(
            lost,
            "log lines were lost: nobody read them as fast as they came"
        );
    })
    .map_err(LoggingError::Thread)?;
    let end = LogEnd(lines.clone());
    let panicked = lines.clone();
    let layer = fmt::layer().log_internal_errors(false);
    let layer = match config.format {
        LogFormat::Text => layer
            .with_writer(move || PlainLines::new(lines.clone(), escape_text))
            .with_ansi(io::stderr().is_terminal())
            .boxed(),
        LogFormat::Json => layer
            .with_writer(move || PlainLines::new(lines.clone(), escape_json))
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .boxed(),
    };
    let registry = tracing_subscriber::registry();
    registry.with(layer.with_filter(filter)).try_init()?;
    panics::log(panicked);
    Ok(end)
}

/// Not through the library's handle: that is locked while somebody writes, so that a log which nobody reads would
/// keep the last words of the program waiting too.
fn standard_error() -> Result<File, LoggingError> {
    let descriptor = io::stderr().as_fd().try_clone_to_owned();
    Ok(File::from(descriptor.map_err(LoggingError::Thread)?))
}
