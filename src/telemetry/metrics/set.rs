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
    /// The counters of acquires, one for each outcome, so that no request has to look one up.
    pub(super) acquired: [Counter; AcquireOutcome::ALL.len()],
    /// The counters of releases, one for each outcome.
    pub(super) released: [Counter; LeaseOutcome::ALL.len()],
    /// The histograms of the durations of store commands, by operation.
    store_durations: Cached<&'static str, ShortHistogram>,
    /// The counter of all commands that the store did not answer, for [`Metrics::totals`].
    pub(super) unanswered: Counter,
}

// === impl Metrics ===

impl Default for Metrics {
    /// Makes the metrics of a gateway, all at 0.
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
    /// The metrics of the requests of a route. An empty name stands for requests that match no route.
    pub fn route_metrics(&self, route: &str) -> RouteMetrics {
        let route = if route.is_empty() { "unmatched" } else { route };
        RouteMetrics::new(
            route,
            &self.0.counted.requests,
            &self.0.counted.request_duration,
        )
    }

    /// Counts an acquire that ended with this outcome.
    pub fn acquired(&self, outcome: AcquireOutcome) {
        self.0.acquired[outcome as usize].inc();
    }

    /// Counts a grant of a shared lease.
    pub fn granted_shared(&self) {
        self.0.counted.shared_grants.inc();
    }

    /// Counts a waiter that left the queue after this time, with or without a grant.
    pub fn waited(&self, for_this_long: Duration, granted: bool) {
        let outcome = if granted { "granted" } else { "not-granted" };
        self.0.counted.waits(outcome).observe(for_this_long);
    }

    /// Counts a lock that passed to a waiter at this gateway. `by_another_gateway`: another gateway made the grant.
    pub fn handed_over(&self, by_another_gateway: bool) {
        let by = if by_another_gateway {
            "another"
        } else {
            "this"
        };
        self.0.counted.handed_over(by).inc();
    }

    /// Counts a waiter whose caller hung up.
    pub fn wait_abandoned(&self) {
        self.0.counted.abandoned_waits.inc();
    }

    /// Counts a lease that was released because its grant could not be delivered or its stream had ended.
    pub fn given_back(&self) {
        self.0.counted.given_back.inc();
    }

    /// Counts records of the history that were dropped.
    pub fn history_dropped(&self, records: u64) {
        self.0.counted.history_dropped.inc_by(records);
    }

    /// Counts a renewal. `left` is the time that was left of the lease before the renewal, if known.
    pub fn renewed(&self, by: SeenBy, ended: LeaseOutcome, left: Option<Duration>) {
        let renewer = by.renewer();
        self.0.counted.renewed(renewer, ended).inc();
        if let (LeaseOutcome::Done, Some(left)) = (ended, left) {
            self.0.counted.margins(renewer).observe(left);
        }
    }

    /// Counts a release. `held` is how long the lease had been held, if known.
    pub fn released(&self, ended: LeaseOutcome, held: Option<Duration>) {
        self.0.released[ended as usize].inc();
        if let (LeaseOutcome::Done, Some(held)) = (ended, held) {
            self.0.counted.hold.observe(held);
        }
    }

    /// Counts a release whose caller hung up before the answer. `is_carried_out`: the release is carried out
    /// nevertheless.
    pub fn release_abandoned(&self, is_carried_out: bool) {
        let outcome = if is_carried_out {
            "carried-out"
        } else {
            "dropped"
        };
        self.0.counted.abandoned(outcome).inc();
    }

    /// Counts a lease that ended, other than by a break, while its holder still used it. `seen_by`: how that was found.
    pub fn expired_while_held(&self, seen_by: SeenBy) {
        self.0.counted.expired(seen_by).inc();
    }

    /// Counts a holder whose check was refused after a larger fencing token was granted.
    pub fn stale_write_refused(&self) {
        self.0.counted.stale_writes.inc();
    }

    /// Counts a break that ended this many leases or foreign locks.
    pub fn lock_broken(&self, holders: u64) {
        self.0.counted.broken.inc_by(holders);
    }

    /// Counts release requests to this many holders.
    pub fn release_requested(&self, holders: u64) {
        self.0.counted.release_requests.inc_by(holders);
    }

    /// Counts a command to the store. `error` is the kind of error in one word, if the store gave no answer.
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

    /// Formats all metrics as `OpenMetrics`. `now`: the current figures of the gateway.
    pub fn text(&self, now: &Figures) -> String {
        let mut text = String::new();
        now.write_to(&mut text);
        encode(&mut text, &self.0.registry).expect("writing to a String never fails");
        text
    }

    /// Formats all metrics in the older text format of Prometheus, 0.0.4. It has neither units nor an end, and describes
    /// a counter under the name of its samples: under another name, Prometheus would not know their type.
    pub fn plain_text(&self, now: &Figures) -> String {
        let open_metrics = self.text(now);
        let (mut text, mut help) = (String::with_capacity(open_metrics.len()), None);
        for line in open_metrics.lines() {
            if let Some(described) = line.strip_prefix("# HELP ") {
                help = described.split_once(' ');
            } else if let Some(typed) = line.strip_prefix("# TYPE ") {
                let (name, kind) = typed.split_once(' ').unwrap_or((typed, ""));
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some((_, help)) = help.take() {
                    text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
                }
                text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            } else if !line.starts_with('#') {
                text.extend([line, "\n"]);
            }
        }
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
// The series of counted metrics whose labels are known at compile time.

impl Counted {
    /// Creates these series with the value 0. A series that appears only with its first event would hide that event
    /// from the functions `increase` and `rate` of Prometheus.
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
