//! Holds a history against every promise.

use super::{History, Report, Terms, invariants, validity};

/// Holds a history against every promise.
pub(crate) fn check(history: &History, terms: &Terms) -> Report {
    let mut report = Report::of(history);
    for invariant in invariants::ALL {
        invariant(history, terms, &mut report);
    }
    report.violations.sort_by_key(|violation| violation.at);
    report.invalid = validity::why_not(history, terms, &report);
    report
}
