//! What is logged, in which form: panics are one line like everything else, and no line shows another text than it has.

use std::{
    any::Any,
    borrow::Cow,
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    panic, thread,
    time::Duration,
};

use tracing::{error, warn};
use tracing_subscriber::{
    Layer, fmt,
    layer::SubscriberExt,
    util::{SubscriberInitExt, TryInitError},
};

use crate::{
    config::{Invalid, LogConfig, LogFormat},
    invisible_chars::{escape_json, escape_text},
};

use super::log_lines::{LogEnd, LogLines};

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
    log_panics(panicked);
    Ok(end)
}

/// Not through the library's handle: that is locked while somebody writes, so that a log which nobody reads would
/// keep the last words of the program waiting too.
fn standard_error() -> Result<File, LoggingError> {
    let descriptor = io::stderr().as_fd().try_clone_to_owned();
    Ok(File::from(descriptor.map_err(LoggingError::Thread)?))
}

// === Panics ===

/// How long a panic waits until it is written down: it may be the last thing that the process does.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

/// Logs panics instead of printing them over several lines. Once per process.
fn log_panics(lines: LogLines) {
    panic::set_hook(Box::new(move |panic| {
        let message = message(panic.payload());
        let at = panic.location().map(ToString::to_string);
        let at = at.as_deref().unwrap_or("an unknown place");
        let thread = thread::current();
        let thread = thread.name().unwrap_or("without a name");
        error!(panic = message, at, thread, "a panic: please report it");
        lines.flush(WRITTEN_WITHIN);
    }));
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

// === Plain lines ===

/// A writer to which whole lines are written, and which escapes what is not seen in them: names and
/// error messages of others must not pretend to be something else.
struct PlainLines<W> {
    inner: W,
    escape: fn(&str) -> Cow<'_, str>,
}

// === impl PlainLines ===

impl<W: Write> PlainLines<W> {
    /// `escape`: how the format of the lines names such a character.
    fn new(inner: W, escape: fn(&str) -> Cow<'_, str>) -> Self {
        Self { inner, escape }
    }
}

impl<W: Write> Write for PlainLines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match str::from_utf8(line) {
            Ok(text) => self.inner.write_all((self.escape)(text).as_bytes())?,
            // Not a line of ours.
            Err(_) => self.inner.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
