//! All metrics of one gateway.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{encoding::text::encode, metrics::counter::Counter, registry::Registry};

use super::{
    AcquireOutcome, Figures, LeaseOutcome, SeenBy,
    catalogue::Counted,
    histogram::{LongHistogram, ShortHistogram},
    route::{Cached, RouteMetrics},
};

/// All metrics of one gateway. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(pub(super) Arc<Set>);

pub(super) struct Set {
    registry: Registry,
    pub(super) counted: Counted,
    /// The acquires by outcome, so that no request looks one up.
    pub(super) acquired: [Counter; AcquireOutcome::ALL.len()],
    /// The releases by their end.
    pub(super) released: [Counter; LeaseOutcome::ALL.len()],
    /// By operation.
    store_durations: Cached<&'static str, ShortHistogram>,
    /// All errors of the store, to be read.
    pub(super) unanswered: Counter,
}

// === impl Metrics ===

impl Default for Metrics {
    /// New metrics, all at 0.
    fn default() -> Self {
        let mut registry = Registry::default();
        let counted = Counted::registered(&mut registry);
        let set = Set {
            acquired: AcquireOutcome::ALL.map(|outcome| {
                let labels = [("outcome", outcome.as_str())];
                counted.acquires.get_or_create_owned(&labels)
            }),
            released: LeaseOutcome::ALL.map(|ended| {
                let labels = [("outcome", ended.word("released"))];
                counted.releases.get_or_create_owned(&labels)
            }),
            store_durations: Cached::default(),
            unanswered: Counter::default(),
            registry,
            counted,
        };
        set.counted.begin();
        Self(Arc::new(set))
    }
}

impl Metrics {
    /// Counts the requests of a route; one that has no name is that of requests which no route matches.
    pub fn route_metrics(&self, route: &str) -> RouteMetrics {
        let route = if route.is_empty() { "unmatched" } else { route };
        RouteMetrics::new(
            route,
            &self.0.counted.requests,
            &self.0.counted.request_duration,
        )
    }

    /// An acquire ended.
    pub fn acquired(&self, outcome: AcquireOutcome) {
        self.0.acquired[outcome as usize].inc();
    }

    /// A lease was granted that shares its lock.
    pub fn granted_shared(&self) {
        self.0.counted.shared_grants.inc();
    }

    /// Somebody stood in the queue for so long.
    pub fn waited(&self, for_this_long: Duration, granted: bool) {
        let outcome = if granted { "granted" } else { "not-granted" };
        self.0.counted.waits(outcome).observe(for_this_long);
    }

    /// A lock passed to somebody who waited here.
    pub fn handed_over(&self, by_another_gateway: bool) {
        let by = if by_another_gateway {
            "another"
        } else {
            "this"
        };
        self.0.counted.handed_over(by).inc();
    }

    /// Somebody who waited has gone.
    pub fn wait_abandoned(&self) {
        self.0.counted.abandoned_waits.inc();
    }

    /// A lease was ended because nobody was there to use it.
    pub fn given_back(&self) {
        self.0.counted.given_back.inc();
    }

    /// A renewal ended; `left` is what the store had left of the lease until then, if it said so.
    pub fn renewed(&self, by: SeenBy, ended: LeaseOutcome, left: Option<Duration>) {
        let renewer = by.renewer();
        self.0.counted.renewed(renewer, ended).inc();
        if let (LeaseOutcome::Done, Some(left)) = (ended, left) {
            self.0.counted.margins(renewer).observe(left);
        }
    }

    /// A release ended; `held` is for how long the lease was held, if that is known.
    pub fn released(&self, ended: LeaseOutcome, held: Option<Duration>) {
        self.0.released[ended as usize].inc();
        if let (LeaseOutcome::Done, Some(held)) = (ended, held) {
            self.0.counted.hold.observe(held);
        }
    }

    /// The caller of a release had gone before the answer.
    pub fn release_abandoned(&self, is_carried_out: bool) {
        let outcome = if is_carried_out {
            "carried-out"
        } else {
            "dropped"
        };
        self.0.counted.abandoned(outcome).inc();
    }

    /// Somebody took a lease for theirs that had ended, and had not been broken.
    pub fn expired_while_held(&self, seen_by: SeenBy) {
        self.0.counted.expired(seen_by).inc();
    }

    /// A lock was taken away from so many.
    pub fn lock_broken(&self, holders: u64) {
        self.0.counted.broken.inc_by(holders);
    }

    /// So many holders were asked to release a lock.
    pub fn release_requested(&self, holders: u64) {
        self.0.counted.release_requests.inc_by(holders);
    }

    /// The store was asked; `error` in one word if it gave no answer.
    pub fn store_asked(
        &self,
        operation: &'static str,
        took: Duration,
        error: Option<&'static str>,
    ) {
        let durations = &self.0.counted.store_duration;
        let look_up = || durations.get_or_create_owned(&[("operation", operation)]);
        let known = &self.0.store_durations;
        known.with(operation, look_up, |histogram| histogram.observe(took));
        if let Some(error) = error {
            let labels = [("operation", operation), ("error", error)];
            self.0.counted.store_errors.get_or_create(&labels).inc();
            self.0.unanswered.inc();
        }
    }

    /// Everything, as Prometheus scrapes it.
    pub fn text(&self, now: &Figures) -> String {
        let mut text = String::new();
        now.write_to(&mut text);
        encode(&mut text, &self.0.registry).expect("writing to a String never fails");
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

// === impl Counted ===
//
// The series of metrics whose labels are known when the program is written.

impl Counted {
    /// What is there from the beginning, at 0: a series that appears with its first event hides that
    /// event from `increase` and `rate`.
    fn begin(&self) {
        for by in ["this", "another"] {
            self.handed_over(by);
        }
        for outcome in ["carried-out", "dropped"] {
            self.abandoned(outcome);
        }
        for outcome in ["granted", "not-granted"] {
            self.waits(outcome);
        }
        for by in ["caller", "stream"] {
            self.margins(by);
            for ended in LeaseOutcome::ALL {
                self.renewed(by, ended);
            }
        }
        for seen_by in SeenBy::ALL {
            self.expired(seen_by);
        }
    }

    pub(super) fn handed_over(&self, by: &'static str) -> Counter {
        self.handoffs.get_or_create_owned(&[("by", by)])
    }

    fn abandoned(&self, outcome: &'static str) -> Counter {
        let labels = [("outcome", outcome)];
        self.abandoned_releases.get_or_create_owned(&labels)
    }

    fn waits(&self, outcome: &'static str) -> LongHistogram {
        self.wait.get_or_create_owned(&[("outcome", outcome)])
    }

    pub(super) fn margins(&self, by: &'static str) -> LongHistogram {
        self.renew_margin.get_or_create_owned(&[("by", by)])
    }

    pub(super) fn renewed(&self, by: &'static str, ended: LeaseOutcome) -> Counter {
        let labels = [("by", by), ("outcome", ended.word("renewed"))];
        self.renewals.get_or_create_owned(&labels)
    }

    pub(super) fn expired(&self, seen_by: SeenBy) -> Counter {
        let labels = [("seen_by", seen_by.as_str())];
        self.expired_while_held.get_or_create_owned(&labels)
    }
}
