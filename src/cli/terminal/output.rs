//! Output of commands: answers on standard output, messages for people on standard error.

use std::{
    io::{self, Write},
    pin::pin,
    process::ExitCode,
};

use tokio::time::timeout;

use crate::lock::LockName;

use super::{super::error::CliError, signals::CLEANUP_GRACE, visible};

/// Writes the answer of a command to standard output, and flushes it.
pub(crate) fn answer(text: &str) -> Result<(), CliError> {
    write(text).map_err(|error| unwritten(&error))
}

/// The error for an answer that could not be written to standard output.
pub(crate) fn unwritten(error: &io::Error) -> CliError {
    CliError::unexpected(format!("cannot write the answer: {error}"))
}

/// Like [`answer`], but returns the plain I/O error, for a command that has an error text of its own.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes a question to standard error.
pub(crate) fn ask(question: &str) {
    let mut out = io::stderr().lock();
    drop(out.write_all(question.as_bytes()));
    drop(out.flush());
}

/// Writes a line to standard error. A failure is ignored, because there is no other place to report it.
pub(crate) fn note(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

// === Slow notice ===
//
// Messages about failures and slow cleanup.

/// Writes the failure of a command to standard error, and returns its exit code. Paths and texts of other programs
/// in the message are escaped, so that they cannot control the terminal.
pub(crate) fn failure(error: &CliError) -> ExitCode {
    note(&format!("latchgate: {}", visible(&error.to_string())));
    error.code().into()
}

/// Runs the cleanup of a command, and writes a message if the cleanup takes longer than a moment.
pub(crate) async fn notify_if_slow<T>(
    name: &LockName,
    what: &str,
    cleanup: impl Future<Output = T>,
) -> T {
    let mut cleanup = pin!(cleanup);
    if let Ok(done) = timeout(CLEANUP_GRACE, &mut cleanup).await {
        return done;
    }
    note(&format!("latchgate: {name}: {what}"));
    cleanup.await
}
