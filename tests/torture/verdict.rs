//! What a run came to, as an exit code.

use std::process::ExitCode;

use crate::history::Report;

/// A promise was broken.
pub(crate) const VIOLATED: u8 = 1;
/// The run shows nothing.
pub(crate) const INVALID: u8 = 2;

/// The exit code of a run. A promise that was broken in a run that shows nothing else is broken.
pub(crate) fn exit_code(report: &Report) -> ExitCode {
    if !report.violations.is_empty() {
        ExitCode::from(VIOLATED)
    } else if !report.invalid.is_empty() {
        ExitCode::from(INVALID)
    } else {
        ExitCode::SUCCESS
    }
}
