//! Panics in the log, where they are one line like everything else.

use std::{
    any::Any,
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    thread,
    time::Duration,
};

use tracing::{debug, error};

use super::log_lines::LogLines;

/// How long a panic waits until it is written down: it may be the last thing that the process does.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Logs panics instead of printing them over several lines. Once per process.
pub(super) fn log(lines: LogLines) {
    panic::set_hook(Box::new(move |panic| {
        let message = message(panic.payload());
        let at = panic.location().map(ToString::to_string);
        let at = at.as_deref().unwrap_or("an unknown place");
        if EXPECTED.get() {
            debug!(message, at, "a panic that was expected");
        } else {
            let thread = thread::current();
            let thread = thread.name().unwrap_or("without a name");
            error!(panic = message, at, thread, "a panic: please report it");
            lines.flush(WRITTEN_WITHIN);
        }
    }));
}

/// Does work of a library that panics over bad input; `None` if it did. That is the caller's to report,
/// and is not logged as a bug.
pub fn expecting_panics<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = EXPECTED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(before);
    done.ok()
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
