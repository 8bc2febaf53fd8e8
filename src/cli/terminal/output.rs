//! Where commands write: answers to standard output, words for people to standard error.

use std::{
    io::{self, Write},
    pin::pin,
    process::ExitCode,
};

use tokio::time::timeout;

use crate::lock::LockName;

use super::{super::error::CliError, signals::CLEANUP_GRACE, visible};

/// Writes an answer and sees it off.
pub(crate) fn answer(text: &str) -> Result<(), CliError> {
    write(text).map_err(|error| unwritten(&error))
}

/// The failure to write an answer.
pub(crate) fn unwritten(error: &io::Error) -> CliError {
    CliError::unexpected(format!("cannot write the answer: {error}"))
}

/// The same, for a caller that tells the failure in other words.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Asks whoever watches.
pub(crate) fn ask(question: &str) {
    let mut out = io::stderr().lock();
    drop(out.write_all(question.as_bytes()));
    drop(out.flush());
}

/// Writes a line to standard error. A failure is ignored, because it could not be reported.
pub(crate) fn note(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

// === Slow notice ===
//
// Writes a line if a release or a give-back takes noticeably long.

/// Says on standard error why a command failed, and with which code it exits. Paths and answers of others are a part of the
/// message, and must not move the terminal.
pub(crate) fn failure(error: &CliError) -> ExitCode {
    note(&format!("latchgate: {}", visible(&error.to_string())));
    error.code().into()
}

/// Does it, and says so if there is no answer for more than a moment.
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
