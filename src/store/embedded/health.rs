//! The health of the embedded store's disk, as the writer reports it.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

use super::state::Moment;

/// How long one write may take before the disk is reported as hanging: far above any sound disk, well below the
/// time that a command waits.
const SLOW: Duration = Duration::from_secs(3);

/// The last disk failure, shortage of space and write that the writer reported.
#[derive(Debug, Default)]
pub(super) struct DiskHealth(Mutex<Report>);

#[derive(Debug, Default)]
struct Report {
    failure: Option<String>,
    /// Whether the failure is a missing or replaced log file, which only an operator can put right.
    misplaced: bool,
    /// Why no lock is acquired, although the disk can be written.
    shortage: Option<String>,
    writing_since: Option<Moment>,
}

// === impl DiskHealth ===

impl DiskHealth {
    /// Why the disk cannot be written or why locks cannot be acquired; `None` if the disk has no problem.
    pub(super) fn now(&self, clock: &dyn Clock) -> Option<String> {
        let report = self.0.lock();
        let failure = report.failure.as_ref().or(report.shortage.as_ref());
        failure.cloned().or_else(|| {
            let taken = Moment::now(clock).since(report.writing_since?);
            (taken >= SLOW).then(|| format!("a write has been under way for {} s", taken.as_secs()))
        })
    }

    /// Records that the writer begins a write to the disk.
    pub(super) fn record_write_start(&self, since: Moment) {
        self.0.lock().writing_since = Some(since);
    }

    /// Records that a write to the disk is durable, and clears the last failure.
    pub(super) fn record_write_done(&self) {
        let mut report = self.0.lock();
        *report = Report {
            shortage: report.shortage.take(),
            ..Report::default()
        };
    }

    /// Records why no lock is acquired for lack of space; `None` if there is enough space again.
    pub(super) fn set_shortage(&self, why: Option<String>) {
        self.0.lock().shortage = why;
    }

    /// Records a failed write, or, if `misplaced`, that a file of the store was moved, deleted or replaced.
    pub(super) fn record_failure(&self, why: &str, misplaced: bool) {
        let mut report = self.0.lock();
        *report = Report {
            failure: Some(why.to_owned()),
            misplaced,
            shortage: report.shortage.take(),
            ..Report::default()
        };
    }

    /// Whether the last failure is that a file of the store was moved, deleted or replaced.
    pub(super) fn is_misplaced(&self) -> bool {
        self.0.lock().misplaced
    }
}
