//! What is known of the disk.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

use super::state::Moment;

/// How long one write may take before it is reported: far above any sound disk, well below what a
/// command waits.
const SLOW: Duration = Duration::from_secs(3);

/// What the writer last met.
#[derive(Debug, Default)]
pub(super) struct DiskHealth(Mutex<Report>);

#[derive(Debug, Default)]
struct Report {
    failure: Option<String>,
    /// Whether that is no failure of the disk: nothing but a person can put it right.
    misplaced: bool,
    /// Why no lock is acquired, although the disk can be written.
    shortage: Option<String>,
    writing_since: Option<Moment>,
}

// === impl DiskHealth ===

impl DiskHealth {
    /// Why the disk cannot be written, if it cannot.
    pub(super) fn now(&self, clock: &dyn Clock) -> Option<String> {
        let report = self.0.lock();
        let failure = report.failure.as_ref().or(report.shortage.as_ref());
        failure.cloned().or_else(|| {
            let taken = Moment::now(clock).since(report.writing_since?);
            (taken >= SLOW).then(|| format!("a write has been under way for {} s", taken.as_secs()))
        })
    }

    /// A write begins.
    pub(super) fn record_write_start(&self, since: Moment) {
        self.0.lock().writing_since = Some(since);
    }

    /// A write was durable.
    pub(super) fn record_write_done(&self) {
        let mut report = self.0.lock();
        *report = Report {
            shortage: report.shortage.take(),
            ..Report::default()
        };
    }

    /// No lock is acquired for want of space, or there is enough again.
    pub(super) fn set_shortage(&self, why: Option<String>) {
        self.0.lock().shortage = why;
    }

    /// A write failed, or `misplaced`: the file is not in its place any more.
    pub(super) fn record_failure(&self, why: &str, misplaced: bool) {
        let mut report = self.0.lock();
        *report = Report {
            failure: Some(why.to_owned()),
            misplaced,
            shortage: report.shortage.take(),
            ..Report::default()
        };
    }

    /// Whether the file is not in its place any more.
    pub(super) fn is_misplaced(&self) -> bool {
        self.0.lock().misplaced
    }
}
