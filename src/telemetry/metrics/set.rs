//! All metrics of one gateway.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::release;

use super::{
    AcquireOutcome, Figures, LeaseOutcome, SeenBy,
    histogram::{Histogram, Histograms, long, short},
    labels::{Labels, RequestLabels, RouteLabels},
    process::Process,
    registrar::MetricRegistrar,
    route::{KnownHistograms, RouteMetrics},
    store_gauges::{FloatGauge, StoreGauges},
};

/// All metrics of one gateway. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(pub(super) Arc<Set>);

type Counts<const N: usize> = Family<Labels<N>, Counter>;

pub(super) struct Set {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_duration: Histograms<RouteLabels>,
    pub(super) acquires: Counts<1>,
    /// The same by outcome, so that no request looks one up.
    acquired: [Counter; AcquireOutcome::ALL.len()],
    pub(super) shared_grants: Counter,
    wait: Histograms<Labels<1>>,
    pub(super) handoffs: Counts<1>,
    pub(super) abandoned_waits: Counter,
    pub(super) given_back: Counter,
    pub(super) renewals: Counts<2>,
    pub(super) renew_margin: Histograms<Labels<1>>,
    pub(super) releases: Counts<1>,
    /// The same by their end.
    released: [Counter; LeaseOutcome::ALL.len()],
    abandoned_releases: Counts<1>,
    hold: Histogram,
    pub(super) expired_while_held: Counts<1>,
    pub(super) broken: Counter,
    release_requests: Counter,
    fence_regressions: Counter,
    /// By operation.
    store_durations: KnownHistograms,
    store_errors: Counts<2>,
    /// All of them, to be read.
    pub(super) unanswered: Counter,
    scraped: ScrapedGauges,
}

/// What is set when somebody asks.
struct ScrapedGauges {
    draining: Gauge,
    checks: Family<Labels<1>, Gauge>,
    waiters: Gauge,
    held_streams: Gauge,
    event_streams: Gauge,
    leases: Gauge,
    shared_leases: Gauge,
    certificate_ends: Family<Labels<0>, Gauge>,
    store: StoreGauges,
    started_at: Family<Labels<0>, FloatGauge>,
    cpu: Family<Labels<0>, Counter<f64, AtomicU64>>,
    resident: Family<Labels<0>, Gauge>,
    open_files: Family<Labels<0>, Gauge>,
    most_files: Family<Labels<0>, Gauge>,
}

// === impl Metrics ===

impl Default for Metrics {
    /// Those of this program.
    fn default() -> Self {
        Self::new(release::VERSION, release::COMMIT)
    }
}

impl Metrics {
    /// New metrics, all at 0, of a program of this version.
    pub fn new(version: &str, commit: &str) -> Self {
        let mut registrar = MetricRegistrar::default();
        let build = registrar.add(
            "latchgate_build_info",
            Family::<[(&str, String); 2], Gauge>::default(),
        );
        build
            .get_or_create(&[
                ("version", version.to_owned()),
                ("commit", commit.to_owned()),
            ])
            .set(1);
        let scraped = ScrapedGauges::register(&mut registrar);
        let acquires: Counts<1> = registrar.add("latchgate_acquires", Family::default());
        let releases: Counts<1> = registrar.add("latchgate_releases", Family::default());
        let set = Set {
            acquired: AcquireOutcome::ALL
                .map(|outcome| acquires.get_or_create_owned(&[("outcome", outcome.as_str())])),
            released: LeaseOutcome::ALL.map(|ended| {
                releases.get_or_create_owned(&[("outcome", ended.as_str("released"))])
            }),
            requests: registrar.add("latchgate_http_requests", Family::default()),
            request_duration: registrar.add(
                "latchgate_http_request_duration_seconds",
                Family::new_with_constructor(short),
            ),
            acquires,
            shared_grants: registrar.add("latchgate_shared_grants", Counter::default()),
            wait: registrar.add("latchgate_wait_seconds", Family::new_with_constructor(long)),
            handoffs: registrar.add("latchgate_handoffs", Family::default()),
            abandoned_waits: registrar.add("latchgate_abandoned_waits", Counter::default()),
            given_back: registrar.add("latchgate_given_back_grants", Counter::default()),
            renewals: registrar.add("latchgate_renewals", Family::default()),
            renew_margin: registrar.add(
                "latchgate_renew_margin_seconds",
                Family::new_with_constructor(long),
            ),
            releases,
            unanswered: Counter::default(),
            abandoned_releases: registrar.add("latchgate_abandoned_releases", Family::default()),
            hold: registrar.add("latchgate_hold_seconds", long()),
            expired_while_held: registrar.add("latchgate_expired_while_held", Family::default()),
            broken: registrar.add("latchgate_broken_leases", Counter::default()),
            release_requests: registrar.add("latchgate_release_requests", Counter::default()),
            fence_regressions: registrar.add("latchgate_fence_regressions", Counter::default()),
            store_durations: KnownHistograms::new(
                "operation",
                registrar.add(
                    "latchgate_store_duration_seconds",
                    Family::new_with_constructor(short),
                ),
            ),
            store_errors: registrar.add("latchgate_store_errors", Family::default()),
            scraped,
            registry: registrar.into_registry(),
        };
        set.begin();
        Self(Arc::new(set))
    }

    /// Counts the requests of a route; one that has no name is that of requests which no route matches.
    pub fn route_metrics(&self, route: &str) -> RouteMetrics {
        let route = if route.is_empty() { "unmatched" } else { route };
        RouteMetrics::new(route, &self.0.requests, &self.0.request_duration)
    }

    /// An acquire ended.
    pub fn acquired(&self, outcome: AcquireOutcome) {
        self.0.acquired[outcome as usize].inc();
    }

    /// A lease was granted that shares its lock.
    pub fn granted_shared(&self) {
        self.0.shared_grants.inc();
    }

    /// Somebody stood in the queue for so long.
    pub fn waited(&self, for_this_long: Duration, granted: bool) {
        let outcome = if granted { "granted" } else { "not-granted" };
        let wait = self.0.wait.get_or_create(&[("outcome", outcome)]);
        wait.observe(for_this_long);
    }

    /// A lock passed to somebody who waited here.
    pub fn handed_over(&self, by_another_gateway: bool) {
        let by = if by_another_gateway {
            "another"
        } else {
            "this"
        };
        self.0.handoffs.get_or_create(&[("by", by)]).inc();
    }

    /// Somebody who waited has gone.
    pub fn wait_abandoned(&self) {
        self.0.abandoned_waits.inc();
    }

    /// A lease was ended because nobody was there to use it.
    pub fn given_back(&self) {
        self.0.given_back.inc();
    }

    /// A renewal ended; `left` is what the store had left of the lease until then, if it said so.
    pub fn renewed(&self, by: SeenBy, ended: LeaseOutcome, left: Option<Duration>) {
        let renewer = by.renewer();
        let labels = [("by", renewer), ("outcome", ended.as_str("renewed"))];
        self.0.renewals.get_or_create(&labels).inc();
        if let (LeaseOutcome::Done, Some(left)) = (ended, left) {
            let margin = self.0.renew_margin.get_or_create(&[("by", renewer)]);
            margin.observe(left);
        }
    }

    /// A release ended; `held` is for how long the lease was held, if that is known.
    pub fn released(&self, ended: LeaseOutcome, held: Option<Duration>) {
        self.0.released[ended as usize].inc();
        if let (LeaseOutcome::Done, Some(held)) = (ended, held) {
            self.0.hold.observe(held);
        }
    }

    /// The caller of a release had gone before the answer.
    pub fn release_abandoned(&self, is_carried_out: bool) {
        let outcome = if is_carried_out {
            "carried-out"
        } else {
            "dropped"
        };
        let labels = [("outcome", outcome)];
        self.0.abandoned_releases.get_or_create(&labels).inc();
    }

    /// Somebody took a lease for theirs that had ended, and had not been broken.
    pub fn expired_while_held(&self, seen_by: SeenBy) {
        let labels = [("seen_by", seen_by.as_str())];
        self.0.expired_while_held.get_or_create(&labels).inc();
    }

    /// A lock was taken away from so many.
    pub fn lock_broken(&self, holders: u64) {
        self.0.broken.inc_by(holders);
    }

    /// So many holders were asked to release a lock.
    pub fn release_requested(&self, holders: u64) {
        self.0.release_requests.inc_by(holders);
    }

    /// A fencing token did not rise.
    pub fn fence_regressed(&self) {
        self.0.fence_regressions.inc();
    }

    /// The store was asked; `error` in one word if it gave no answer.
    pub fn store_asked(
        &self,
        operation: &'static str,
        took: Duration,
        error: Option<&'static str>,
    ) {
        self.0.store_durations.observe(operation, took);
        if let Some(error) = error {
            let labels = [("operation", operation), ("error", error)];
            self.0.store_errors.get_or_create(&labels).inc();
            self.0.unanswered.inc();
        }
    }

    /// Everything, as Prometheus scrapes it.
    pub fn text(&self, now: &Figures) -> String {
        self.0.scraped.set(now, Process::now());
        let mut text = String::new();
        encode(&mut text, &self.0.registry).expect("writing to a String never fails");
        // How a family without labels is written: right, and not what anybody expects to read.
        text.replace("{} ", " ")
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

// === impl Set ===

impl Set {
    /// What is there from the beginning, at 0: a series that appears with its first event hides that
    /// event from `increase` and `rate`.
    fn begin(&self) {
        for by in ["this", "another"] {
            drop(self.handoffs.get_or_create(&[("by", by)]));
        }
        for outcome in ["carried-out", "dropped"] {
            drop(
                self.abandoned_releases
                    .get_or_create(&[("outcome", outcome)]),
            );
        }
        for outcome in ["granted", "not-granted"] {
            drop(self.wait.get_or_create(&[("outcome", outcome)]));
        }
        for ended in LeaseOutcome::ALL {
            for by in ["caller", "stream"] {
                let labels = [("by", by), ("outcome", ended.as_str("renewed"))];
                drop(self.renewals.get_or_create(&labels));
                drop(self.renew_margin.get_or_create(&[("by", by)]));
            }
        }
        for seen_by in SeenBy::ALL {
            let labels = [("seen_by", seen_by.as_str())];
            drop(self.expired_while_held.get_or_create(&labels));
        }
    }
}

// === impl ScrapedGauges ===

impl ScrapedGauges {
    fn register(registrar: &mut MetricRegistrar) -> Self {
        Self {
            draining: registrar.add("latchgate_draining", Gauge::default()),
            checks: registrar.add("latchgate_check", Family::default()),
            waiters: registrar.add("latchgate_waiters", Gauge::default()),
            held_streams: registrar.add("latchgate_held_streams", Gauge::default()),
            event_streams: registrar.add("latchgate_event_streams", Gauge::default()),
            leases: registrar.add("latchgate_leases", Gauge::default()),
            shared_leases: registrar.add("latchgate_shared_leases", Gauge::default()),
            certificate_ends: registrar.add(
                "latchgate_certificate_expiry_timestamp_seconds",
                Family::default(),
            ),
            store: StoreGauges::new(registrar),
            started_at: registrar.add("process_start_time_seconds", Family::default()),
            cpu: registrar.add("process_cpu_seconds", Family::default()),
            resident: registrar.add("process_resident_memory_bytes", Family::default()),
            open_files: registrar.add("process_open_fds", Family::default()),
            most_files: registrar.add("process_max_fds", Family::default()),
        }
    }

    fn set(&self, now: &Figures, process: Process) {
        self.draining.set(i64::from(now.is_withdrawn));
        // What is not looked at any more says nothing.
        self.checks.clear();
        for (check, severity) in &now.checks {
            let check = self.checks.get_or_create_owned(&[("check", *check)]);
            check.set(i64::from(*severity));
        }
        self.waiters.set(count(now.waiters));
        self.held_streams.set(count(now.held_streams));
        self.event_streams.set(count(now.event_streams));
        self.leases.set(count(now.leases));
        self.shared_leases.set(count(now.shared_leases));
        self.store.set(&now.store);
        if let Some(started_at) = process.started_at {
            self.started_at.get_or_create(&[]).set(started_at);
        }
        if let Some(used) = process.cpu {
            let cpu = self.cpu.get_or_create(&[]);
            cpu.inc_by((used - cpu.get()).max(0.0));
        }
        for (gauge, figure) in [
            (&self.certificate_ends, now.certificate_ends),
            (&self.resident, process.resident),
            (&self.open_files, process.open_files),
            (&self.most_files, process.most_files),
        ] {
            if let Some(figure) = figure {
                let figure = i64::try_from(figure).unwrap_or(i64::MAX);
                gauge.get_or_create(&[]).set(figure);
            }
        }
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
