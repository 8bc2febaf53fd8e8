//! What is known of the disk.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use crate::clock::Clock;

use super::lease::Moment;

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
    writing_since: Option<Moment>,
}

// === impl DiskHealth ===

impl DiskHealth {
    /// Why the disk cannot be written, if it cannot.
    pub(super) fn now(&self, clock: &dyn Clock) -> Option<String> {
        let report = self.lock();
        report.failure.clone().or_else(|| {
            let taken = Moment::now(clock).since(report.writing_since?);
            (taken >= SLOW).then(|| format!("a write has been under way for {} s", taken.as_secs()))
        })
    }

    /// A write begins.
    pub(super) fn record_write_start(&self, since: Moment) {
        self.lock().writing_since = Some(since);
    }

    /// A write was durable.
    pub(super) fn record_write_done(&self) {
        *self.lock() = Report::default();
    }

    /// A write failed.
    pub(super) fn record_failure(&self, why: &str) {
        *self.lock() = Report {
            failure: Some(why.to_owned()),
            ..Report::default()
        };
    }

    /// The file is not in its place any more.
    pub(super) fn record_misplaced(&self, why: &str) {
        *self.lock() = Report {
            failure: Some(why.to_owned()),
            misplaced: true,
            ..Report::default()
        };
    }

    /// Whether it is not.
    pub(super) fn is_misplaced(&self) -> bool {
        self.lock().misplaced
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.0
            .lock()
            .expect("nothing panics while it holds the report on the disk")
    }
}
