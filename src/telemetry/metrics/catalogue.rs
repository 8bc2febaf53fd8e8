//! The catalogue of all metrics: the source of the registry and of `docs/metrics.md`.

use std::fmt::Write as _;

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::{Metric as Registered, Registry},
};

use crate::with_all::with_all;

use super::{
    histogram::{LongHistogram, ShortHistogram},
    labels::Labels,
    route::{RequestLabels, RouteLabel},
};

/// A metric as its readers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name as scraped; for a counter without its suffix `_total`.
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What the metric means, in sentences.
    pub help: &'static str,
}

with_all! {
    /// The kind of a metric.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MetricKind {
        /// The value only rises, from 0 at the start.
        Counter => "counter",
        /// The value rises and falls.
        Gauge => "gauge",
        /// Counts values in buckets, with a sum and a count.
        Histogram => "histogram",
    }
}

/// A family of counters, by their labels.
type Counts<const N: usize> = Family<Labels<N>, Counter>;

macro_rules! catalogue {
    ($($kind:ident $name:literal [$($label:literal),*] $(=> $field:ident: $type:ty)?, $help:literal)*) => {
        /// All metrics. No label contains a lock name, an owner or any other value that callers choose, so the
        /// number of series is bounded.
        pub const CATALOGUE: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        }),*];

        /// The metrics that are counted as events happen. The values of the others are looked up when the metrics
        /// are read.
        pub(super) struct Counted {
            $($(pub(super) $field: $type,)?)*
        }

        impl Counted {
            /// New metrics, all at 0, registered with the names and texts of the catalogue.
            pub(super) fn registered(registry: &mut Registry) -> Self {
                Self { $($($field: register(registry, $name, $help),)?)* }
            }
        }
    };
}

catalogue! {
    Gauge "latchgate_build_info" ["version", "commit"],
        "Always 1; the labels say which program this is."
    Gauge "latchgate_draining" [],
        "1 while the gateway is about to stop, else 0."
    Gauge "latchgate_check" ["check"],
        "What GET /readyz finds, by check: 0 as it should be, 1 somebody should look, 2 the store does not answer, 3 misconfigured (the gateway is not ready)."

    Counter "latchgate_http_requests" ["method", "route", "status"] => requests: Family<RequestLabels, Counter>,
        "Requests that were answered, by route (never the path). The status is `hung-up` if the caller was gone before the answer; a stream counts when it begins."
    Histogram "latchgate_http_request_duration_seconds" ["route"] => request_duration: Family<RouteLabel, ShortHistogram>,
        "From the head of a request to the head of its answer: waits in the queue included, streams until they begin."

    Counter "latchgate_acquires" ["outcome"] => acquires: Counts<1>,
        "Acquires and holds by outcome: `granted`, `again` (answered with the lease that an earlier request with the same Idempotency-Key was granted), `held` (the lock is held, or the wait ran out; a wait that several requests continue under one Idempotency-Key counts once), `refused` (too many waiters, superseded, Idempotency-Key used for another request or expired, permission withdrawn, draining), `unavailable` (nothing happened), `unknown` (it may have happened), `failed` (foreign data, no fencing token left)."
    Counter "latchgate_shared_grants" [] => shared_grants: Counter,
        "Leases that were granted to share their lock, a part of the acquires that were `granted`. The rest is exclusive."
    Histogram "latchgate_wait_seconds" ["outcome"] => wait: Family<Labels<1>, LongHistogram>,
        "How long those who stood in the queue stood there: until they were `granted`, or `not-granted`. A request that goes on with the place of an earlier one under its Idempotency-Key counts from when that was queued."
    Counter "latchgate_handoffs" ["by"] => handoffs: Counts<1>,
        "Locks that passed to somebody who waited at this gateway: by `this` gateway or the store at once, or provisionally by `another` gateway and confirmed here."
    Counter "latchgate_abandoned_waits" [] => abandoned_waits: Counter,
        "Waits that ended because their caller had gone."
    Counter "latchgate_given_back_grants" [] => given_back: Counter,
        "Leases that were ended because nobody was there to use them: the answer could not be delivered, or the stream that held it ended and the store could not be asked to release it then."

    Counter "latchgate_renewals" ["by", "outcome"] => renewals: Counts<2>,
        "Renewals, by a `caller` or by a `stream` that this gateway keeps: `renewed`, `lost`, `adopted` (another stream goes on with it), `unavailable`, `unknown`, `failed`."
    Histogram "latchgate_renew_margin_seconds" ["by"] => renew_margin: Family<Labels<1>, LongHistogram>,
        "How much of a lease was left when it was renewed, as the store knew it: whichever gateway it was granted or renewed at before. Close to 0 is about to go wrong."
    Counter "latchgate_releases" ["outcome"] => releases: Counts<1>,
        "Releases, by callers and by streams that ended: `released`, `lost`, `adopted` (another stream goes on with it), `unavailable`, `unknown`, `failed`."
    Counter "latchgate_abandoned_releases" ["outcome"] => abandoned_releases: Counts<1>,
        "Releases whose caller had gone before the answer: `carried-out` all the same, or `dropped`, because as many were under way as this gateway goes on with for nobody. Of a dropped one what the store had been asked was done."
    Histogram "latchgate_hold_seconds" [] => hold: LongHistogram,
        "How long a lease was held that was granted and released through this gateway."
    Counter "latchgate_expired_while_held" ["seen_by"] => expired_while_held: Counts<1>,
        "Leases granted or renewed through this gateway that had ended when their holder came to `renew` or `release` them, although nobody broke them, and leases that a `stream` could not renew in time. Mostly leases that expired under their holder: two may have worked at once unless the fencing token was checked."
    Counter "latchgate_broken_leases" [] => broken: Counter,
        "Leases, and locks of foreign clients, that were taken away through this gateway with a break. A break of all who share a lock counts each of them."
    Counter "latchgate_release_requests" [] => release_requests: Counter,
        "Leases whose holder was asked through this gateway to release the lock, by a break with `grace_ms`. What was not released in time counts as broken, too."

    Gauge "latchgate_waiters" [],
        "Requests that stand in a queue through this gateway now."
    Gauge "latchgate_held_streams" [],
        "Hold streams that hold a lock through this gateway now."
    Gauge "latchgate_event_streams" [],
        "Who listens to events at this gateway now."
    Gauge "latchgate_leases" [],
        "Leases that, as far as this gateway knows, live and were granted through it, or that one of its hold streams keeps. A lease counts at one gateway, whoever renews it: `sum(latchgate_leases)` counts none twice. A lease that is broken, or released through another gateway, counts until its TTL is over; one that is renewed only through others counts no more when the TTL is over that this gateway knows of."
    Gauge "latchgate_shared_leases" [],
        "Those of them that share their lock."

    Gauge "latchgate_certificate_expiry_timestamp_seconds" [],
        "When the certificate ends that new connections are shown, in seconds since 1970. Only with `http.tls`."

    Histogram "latchgate_store_duration_seconds" ["operation"] => store_duration: Family<Labels<1>, ShortHistogram>,
        "How long the store took for a command, by operation, with its own retries."
    Counter "latchgate_store_errors" ["operation", "error"] => store_errors: Counts<2>,
        "Commands that the store did not answer: `unavailable` (nothing happened), `unknown` (it may have), `foreign-data`, `fence-exhausted`."
    Gauge "latchgate_store_connections" [],
        "Connections to the store that are open and shared by all requests. Redis only."
    Gauge "latchgate_store_channel" [],
        "1 while messages of other gateways arrive (pub/sub), else 0. Redis only."
    Counter "latchgate_store_unsent_messages" [],
        "Messages to other gateways that could not be sent; each delays a waiter by up to two seconds. Redis only."
    Gauge "latchgate_store_clock_skew_seconds" ["node"],
        "By how much the clock of a store's node is ahead of the gateway's, when it was last looked at. Redis only."
    Gauge "latchgate_store_master_since_seconds" ["node"],
        "Since when this node is followed as the master, in seconds since 1970. Missing while there is none. Sentinel only."
    Counter "latchgate_store_master_changes" [],
        "How often a master was left, mostly for another one. Sentinel only."
    Gauge "latchgate_store_sentinel" ["node"],
        "1 while this sentinel answers and its messages arrive, else 0. Sentinel only."
    Gauge "latchgate_store_replicas" [],
        "How many replicas had the last grants when they were waited for. With redis.wait_replicas only."
    Gauge "latchgate_store_node" ["node"],
        "1 while this master of the cluster can be reached, or this node of the quorum answers, else 0. Cluster and Redlock only."
    Counter "latchgate_store_votes_given" ["node"],
        "How often this node has voted for an acquire. Redlock only."
    Counter "latchgate_store_votes_refused" ["node"],
        "How often this node has refused its vote, because the lock was held there. Redlock only."
    Counter "latchgate_store_votes_missing" ["node"],
        "How often this node had no vote: it did not answer in time, is not fit, or was started too short a time ago. Redlock only."

    Gauge "process_start_time_seconds" [],
        "When the process began, in seconds since 1970."
    Counter "process_cpu_seconds" [],
        "Processor time that the process used."
    Gauge "process_resident_memory_bytes" [],
        "Memory of the process that is in RAM."
    Gauge "process_open_fds" [],
        "File descriptors that are open."
    Gauge "process_max_fds" [],
        "File descriptors that may be open."
}

// === impl Metric ===

impl Metric {
    /// The metric with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        CATALOGUE.iter().find(|metric| metric.name == name)
    }

    /// The names of the samples of this metric in the scraped text.
    pub fn samples(&self) -> Vec<String> {
        let with = |end: &str| format!("{}{end}", self.name);
        match self.kind {
            MetricKind::Counter => vec![with("_total")],
            MetricKind::Gauge => vec![with("")],
            MetricKind::Histogram => vec![with("_bucket"), with("_sum"), with("_count")],
        }
    }
}

fn register<M: Registered + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    // The library adds a full stop to the text.
    registry.register(name, help.trim_end_matches('.'), metric.clone());
    metric
}

/// The page about all metrics, `docs/metrics.md`.
pub fn page() -> String {
    let mut page = include_str!("page.md").to_owned();
    for metric in CATALOGUE {
        let name = match metric.kind {
            MetricKind::Counter => format!("{}_total", metric.name),
            MetricKind::Gauge | MetricKind::Histogram => metric.name.to_owned(),
        };
        let labels = metric.labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let kind = metric.kind.as_str();
        writeln!(page, "| `{name}` | {kind} | {labels} | {} |", metric.help)
            .expect("writing to a String never fails");
    }
    page
}
