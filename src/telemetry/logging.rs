//! Logging on standard error. A panic is logged as one line, and invisible characters are escaped in every line.

use std::{
    any::Any,
    borrow::Cow,
    fs::File,
    io::{self, IsTerminal, Write},
    mem,
    os::fd::AsFd,
    panic,
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
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

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The configured log level is invalid.
    #[error(transparent)]
    Level(#[from] Invalid),
    /// Another subscriber for log events is already installed in this process.
    #[error("cannot log: {0}")]
    Taken(#[from] TryInitError),
    /// The system cannot start a thread, or cannot duplicate the descriptor of standard error.
    #[error("cannot start the thread of the log: {0}")]
    Thread(io::Error),
}

/// Starts logging on standard error. Called once per process.
///
/// A line that cannot be written is lost, and nothing else happens. The logging library's own writer would report the
/// failure on standard error, and panic if standard error cannot be written.
pub fn init(config: &LogConfig) -> Result<LogEnd, LoggingError> {
    let filter = config.filter()?;
    let lines = LogLines::start(standard_error()?, |lost| {
        warn!(lost, "log lines were lost: their reader is too slow");
    })
    .map_err(LoggingError::Thread)?;
    let end = LogEnd(lines.clone());
    let panicked = lines.clone();
    let layer = fmt::layer().log_internal_errors(false);
    let layer = match config.format {
        LogFormat::Text => layer
            .with_writer(move || PlainLines {
                inner: lines.clone(),
                escape: escape_text,
            })
            .with_ansi(io::stderr().is_terminal())
            .boxed(),
        LogFormat::Json => layer
            .with_writer(move || PlainLines {
                inner: lines.clone(),
                escape: escape_json,
            })
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

/// A separate descriptor of standard error, used by the log only. The library's handle is locked during a write, so a
/// log that no program reads would also block the last messages of the program.
fn standard_error() -> Result<File, LoggingError> {
    let descriptor = io::stderr().as_fd().try_clone_to_owned();
    Ok(File::from(descriptor.map_err(LoggingError::Thread)?))
}

// === Panics ===

/// How long a panic waits until its log line is written, because the process may end right after the panic.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

/// Logs each panic as one line, instead of printing it over several lines. Called once per process.
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

/// A writer of whole log lines that escapes invisible characters, so that names and error messages of callers cannot
/// pretend to be other lines or fields.
struct PlainLines {
    inner: LogLines,
    /// How the format of the log escapes an invisible character.
    escape: fn(&str) -> Cow<'_, str>,
}

impl Write for PlainLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match str::from_utf8(line) {
            Ok(text) => self.inner.write_all((self.escape)(text).as_bytes())?,
            // Bytes that are not UTF-8 are written as they are: this program does not log such lines.
            Err(_) => self.inner.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === Log lines ===
//
// The queue of log lines, which a separate thread writes to standard error.

/// A queue of whole log lines, which a separate thread writes to standard error.
///
/// Logging never waits for the reader of the log: a stopped terminal or a hanging log collector must not stop the
/// gateway, whose holders would lose their leases. Lines that do not fit into the queue are lost, and the log reports
/// their number as soon as it can be written again.
#[derive(Clone)]
struct LogLines(Arc<LogShared>);

/// Waits for the last lines of the log to be written when it is dropped, which is at the end of the program.
#[must_use = "the last lines of the log are written when it is dropped"]
pub struct LogEnd(LogLines);

struct LogShared {
    waiting: Mutex<PendingLines>,
    /// Notified when the writing thread has lines to write, and for callers of `flush` when all lines are written.
    changed: Condvar,
}

#[derive(Default)]
struct PendingLines {
    lines: Vec<u8>,
    lost: u64,
    /// Whether the writing thread has taken lines from the queue and is writing them.
    writing: bool,
    /// Whether the writing thread sleeps until there are lines in the queue.
    asleep: bool,
}

/// The capacity of the queue in bytes: about what a busy gateway logs in a second.
const ROOM: usize = 4 * 1024 * 1024;
/// The pause of the writing thread after each write, so that a busy gateway writes many lines together.
const GATHER: Duration = Duration::from_millis(5);
/// How long the end of the program waits for the last lines to be written.
const LAST_LINES: Duration = Duration::from_millis(500);

// === impl LogLines ===

impl LogLines {
    /// Starts the thread that writes queued lines to `output`. The thread calls `lost` with the number of lost lines.
    fn start(
        output: impl Write + Send + 'static,
        lost: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let lines = Self(Arc::new(LogShared {
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }));
        let written = lines.clone();
        thread::Builder::new()
            .name("latchgate-log".to_owned())
            .spawn(move || written.write_to(output, lost))?;
        Ok(lines)
    }

    /// Waits until all queued lines are written, but not longer than `within`.
    fn flush(&self, within: Duration) {
        let unwritten = |waiting: &mut PendingLines| waiting.writing || !waiting.lines.is_empty();
        let changed = &self.0.changed;
        // After a time-out the program continues, as it does when all lines are written.
        let _ = changed.wait_while_for(&mut self.0.waiting.lock(), unwritten, within);
    }

    fn write_to(&self, mut output: impl Write, report_lost: impl Fn(u64)) {
        let mut lines = Vec::new();
        loop {
            let lost = self.take(&mut lines);
            if lost > 0 {
                report_lost(lost);
            }
            // A failed write is ignored, because there is no other place to report it.
            drop(output.write_all(&lines));
            drop(output.flush());
            lines.clear();
            if lines.capacity() > ROOM / 4 {
                lines = Vec::new();
            }
            self.0.waiting.lock().writing = false;
            self.0.changed.notify_all();
            thread::sleep(GATHER);
        }
    }

    /// Waits for lines in the queue and takes them all. Returns the number of lines that were lost before.
    fn take(&self, lines: &mut Vec<u8>) -> u64 {
        let mut waiting = self.0.waiting.lock();
        while waiting.lines.is_empty() {
            waiting.asleep = true;
            self.0.changed.wait(&mut waiting);
        }
        waiting.asleep = false;
        waiting.writing = true;
        mem::swap(&mut waiting.lines, lines);
        mem::take(&mut waiting.lost)
    }
}

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.waiting.lock();
        if waiting.lines.len() + line.len() > ROOM {
            waiting.lost += 1;
            return Ok(line.len());
        }
        waiting.lines.extend_from_slice(line);
        if mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl LogEnd ===

impl Drop for LogEnd {
    fn drop(&mut self) {
        self.0.flush(LAST_LINES);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, SyncSender};

    use tokio::time::Instant;

    use super::*;

    /// An output for tests whose reader decides when each piece is read.
    struct Reader(SyncSender<Vec<u8>>);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            self.0.send(bytes.to_vec()).map_err(gone)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn read_by_hand() -> (LogLines, Receiver<Vec<u8>>, Receiver<u64>) {
        let (sender, read) = mpsc::sync_channel(0);
        let (lost_sender, lost) = mpsc::sync_channel(8);
        let report_lost = move |lost| lost_sender.send(lost).unwrap();
        (
            LogLines::start(Reader(sender), report_lost).unwrap(),
            read,
            lost,
        )
    }

    #[test]
    fn every_line_is_written_in_order() {
        let (mut lines, read, _lost) = read_by_hand();
        for number in 0..1_000 {
            lines.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        let mut text = Vec::new();
        while !text.ends_with(b"999\n") {
            text.extend(read.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().eq((0..1_000).map(|number| number.to_string())));
    }

    #[test]
    fn nobody_waits_for_who_does_not_read() {
        let (mut lines, read, lost) = read_by_hand();
        let line = [b'x'; 1_024];
        // The writing thread takes this line, and blocks while it writes the line.
        lines.write_all(&line).unwrap();
        while !lines.0.waiting.lock().writing {
            thread::yield_now();
        }
        for _ in 0..ROOM / line.len() + 7 {
            lines.write_all(&line).unwrap();
        }
        assert_eq!(lines.0.waiting.lock().lost, 7);
        let began = Instant::now();
        lines.flush(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50));
        // When the reader continues, it sees the number of lost lines, and new lines have room in the queue.
        drop(read.recv().unwrap());
        drop(read.recv().unwrap());
        assert_eq!(lost.recv().unwrap(), 7);
        lines.write_all(b"at last\n").unwrap();
        assert_eq!(read.recv().unwrap(), b"at last\n");
        lines.flush(Duration::from_secs(10));
        assert_eq!(lines.0.waiting.lock().lost, 0);
    }

    #[test]
    fn the_last_lines_are_written_before_the_end() {
        let (mut lines, read, _lost) = read_by_hand();
        let reader = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            read.iter().flatten().collect::<Vec<u8>>()
        });
        lines.write_all(b"last\n").unwrap();
        lines.flush(Duration::from_secs(10));
        let waiting = lines.0.waiting.lock();
        assert!(waiting.lines.is_empty() && !waiting.writing);
        drop(waiting);
        // The reader would return only if the writer were gone; the writing thread never ends.
        assert!(!reader.is_finished());
    }
}
