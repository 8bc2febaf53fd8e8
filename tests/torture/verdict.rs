//! The exit code of a run.

use std::process::ExitCode;

use crate::history::Report;

/// An invariant was violated.
pub(crate) const VIOLATED: u8 = 1;
/// The run proves nothing.
pub(crate) const INVALID: u8 = 2;

/// The exit code of a run. A violation counts even if the run is invalid.
pub(crate) fn exit_code(report: &Report) -> ExitCode {
    if !report.violations.is_empty() {
        ExitCode::from(VIOLATED)
    } else if !report.invalid.is_empty() {
        ExitCode::from(INVALID)
    } else {
        ExitCode::SUCCESS
    }
}
