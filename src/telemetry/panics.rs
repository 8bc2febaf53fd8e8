//! Panics in the log, where they are one line like everything else.

use std::{any::Any, panic, thread, time::Duration};

use tracing::error;

use super::log_lines::LogLines;

/// How long a panic waits until it is written down: it may be the last thing that the process does.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

/// Logs panics instead of printing them over several lines. Once per process.
pub(super) fn log(lines: LogLines) {
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
