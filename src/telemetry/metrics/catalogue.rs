//! The list of all metrics, from which the registry and `docs/metrics.md` are made.

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

/// The description of a metric: name, kind, labels and help text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name of the metric. A scrape adds `_total` to the name of a counter.
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: MetricKind,
    /// The names of the metric's labels.
    pub labels: &'static [&'static str],
    /// The help text of the metric, which says what its values mean.
    pub help: &'static str,
}

with_all! {
    /// The kind of a metric: how its value changes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MetricKind {
        /// A number that only rises, from 0 at the start of the process.
        Counter => "counter",
        /// A number that rises and falls.
        Gauge => "gauge",
        /// A count of measurements in each bucket, with their sum and their number.
        Histogram => "histogram",
    }
}

/// A counter for each combination of `N` labels.
type Counts<const N: usize> = Family<Labels<N>, Counter>;

macro_rules! catalogue {
    ($($kind:ident $name:literal [$($label:literal),*] $(=> $field:ident: $type:ty)?, $help:literal)*) => {
        /// All metrics. No label holds a lock name, an owner or another value that callers choose, so the number of
        /// series is bounded.
        pub const CATALOGUE: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        }),*];

        /// The metrics that are updated when an event happens. All other metrics are computed for each scrape.
        pub(super) struct Counted {
            $($(pub(super) $field: $type,)?)*
        }

        impl Counted {
            /// Registers the counted metrics, with the names and help texts of the catalogue and the value 0.
            pub(super) fn registered(registry: &mut Registry) -> Self {
                Self { $($($field: register(registry, $name, $help),)?)* }
            }
        }
    };
}

catalogue! {
    Gauge "latchgate_build_info" ["version", "commit"],
        "Always 1; the labels are the version and commit of the program."
    Gauge "latchgate_draining" [],
        "1 while the gateway drains before it stops, else 0."
    Gauge "latchgate_check" ["check"],
        "Result of each check of GET /readyz: 0 good, 1 warning, 2 the store does not answer, 3 misconfigured (the gateway is not ready)."

    Counter "latchgate_http_requests" ["method", "route", "status"] => requests: Family<RequestLabels, Counter>,
        "Requests that were answered, by route (never the path). The status is `hung-up` if the caller hung up before the answer; a stream counts when it begins."
    Histogram "latchgate_http_request_duration_seconds" ["route"] => request_duration: Family<RouteLabel, ShortHistogram>,
        "Time from the head of a request to the head of its answer, waits in the queue included; of a stream, until it begins."

    Counter "latchgate_acquires" ["outcome"] => acquires: Counts<1>,
        "Acquires and holds by outcome: `granted`, `again` (answered with the lease of an earlier request with the same Idempotency-Key), `held` (the lock is held, or the wait ran out; a wait that several requests continue under one Idempotency-Key counts once), `refused` (too many waiters, replaced, Idempotency-Key used for another request or expired, permission withdrawn, draining), `unavailable` (nothing happened), `unknown` (the acquire may have taken effect), `failed` (foreign data, no fencing token left)."
    Counter "latchgate_shared_grants" [] => shared_grants: Counter,
        "Shared leases that were granted, a part of the acquires that were `granted`. The other leases are exclusive."
    Histogram "latchgate_wait_seconds" ["outcome"] => wait: Family<Labels<1>, LongHistogram>,
        "How long waiters stood in the queue until they were `granted`, or left `not-granted`. A request that continues the position of an earlier request under its Idempotency-Key counts from when the earlier one was queued."
    Counter "latchgate_handoffs" ["by"] => handoffs: Counts<1>,
        "Locks that passed to a waiter at this gateway: by `this` gateway or the store at once, or provisionally by `another` gateway and confirmed here."
    Counter "latchgate_abandoned_waits" [] => abandoned_waits: Counter,
        "Waits that ended because their caller hung up."
    Counter "latchgate_history_dropped" [] => history_dropped: Counter,
        "Records of the history of locks that were not written, because the store did not take them in time. GET /locks/{name}/history shows such gaps."
    Counter "latchgate_given_back_grants" [] => given_back: Counter,
        "Leases that were released without a caller: the answer could not be delivered, or the stream that held the lease ended while the store could not be asked to release it."

    Counter "latchgate_renewals" ["by", "outcome"] => renewals: Counts<2>,
        "Renewals, by a `caller` or by a hold `stream` of this gateway: `renewed`, `lost`, `adopted` (another stream keeps the lease), `unavailable`, `unknown`, `failed`."
    Histogram "latchgate_renew_margin_seconds" ["by"] => renew_margin: Family<Labels<1>, LongHistogram>,
        "How much of a lease was left at its renewal, as the store knew it, whichever gateway had granted or renewed the lease. Values near 0 warn of lost leases."
    Counter "latchgate_releases" ["outcome"] => releases: Counts<1>,
        "Releases, by callers and by streams that ended: `released`, `lost`, `adopted` (another stream keeps the lease), `unavailable`, `unknown`, `failed`."
    Counter "latchgate_abandoned_releases" ["outcome"] => abandoned_releases: Counts<1>,
        "Releases whose caller hung up before the answer: `carried-out`, or `dropped`, because as many such releases were under way as this gateway allows. A command that a dropped release had sent to the store was done."
    Histogram "latchgate_hold_seconds" [] => hold: LongHistogram,
        "How long leases were held that were granted and released through this gateway."
    Counter "latchgate_expired_while_held" ["seen_by"] => expired_while_held: Counts<1>,
        "Leases granted or renewed through this gateway that had ended without a break when their holder came to `renew` them, or whose time was over and that had ended without a break when their holder came to `release` them, and leases that a `stream` could not renew in time. Most expired under their holder: two holders may have worked at once unless the fencing token was checked."
    Counter "latchgate_stale_writes_refused" [] => stale_writes: Counter,
        "Holders whose lease had ended, and whose check was refused after a larger fencing token was granted: without the check, two holders would have written. A fencing token of a lock counts once a minute, however often it is checked."
    Counter "latchgate_broken_leases" [] => broken: Counter,
        "Leases, and locks of foreign clients, that were broken through this gateway. A break of a shared lock counts each of its leases."
    Counter "latchgate_release_requests" [] => release_requests: Counter,
        "Leases whose holder was asked through this gateway to release the lock, by a break with `grace_ms`. A lease that was not released in time counts as broken, too."

    Gauge "latchgate_waiters" [],
        "Requests that wait in a queue through this gateway now."
    Gauge "latchgate_held_streams" [],
        "Hold streams that hold a lock through this gateway now."
    Gauge "latchgate_event_streams" [],
        "Callers that listen to events at this gateway now."
    Gauge "latchgate_leases" [],
        "Leases that this gateway believes are alive and that it granted, or that one of its hold streams keeps. A lease counts at one gateway, whichever renews it: `sum(latchgate_leases)` counts no lease twice. A lease that is broken, or released through another gateway, counts until its TTL is over; a lease that is renewed only through other gateways counts until the TTL that this gateway knows is over."
    Gauge "latchgate_shared_leases" [],
        "Leases of `latchgate_leases` that are shared."
    Gauge "latchgate_longest_wait_seconds" [],
        "How long the longest-waiting request at this gateway has waited; 0 without a waiter. Only the waiters of this gateway: `max(latchgate_longest_wait_seconds)` is that of all gateways."
    Gauge "latchgate_longest_hold_seconds" [],
        "How long the oldest living lease has been held that was granted or renewed through this gateway, as far as it knows; 0 without one. Reservations do not count. `max(latchgate_longest_hold_seconds)` is that of all gateways."
    Gauge "latchgate_longest_queue" [],
        "Of the requests that wait through this gateway, how many wait for the same lock: those of the lock with the most. Waiters at other gateways do not count."

    Gauge "latchgate_certificate_expiry_timestamp_seconds" [],
        "When the certificate for new connections expires, in seconds since 1970. Only with `http.tls`."

    Histogram "latchgate_store_duration_seconds" ["operation"] => store_duration: Family<Labels<1>, ShortHistogram>,
        "How long the store took for a command, by operation, with all resends."
    Counter "latchgate_store_errors" ["operation", "error"] => store_errors: Counts<2>,
        "Commands to the store that failed: `unavailable` (nothing happened), `unknown` (the command may have taken effect), `foreign-data`, `fence-exhausted`."
    Gauge "latchgate_store_connections" [],
        "Connections to the store that are open and shared by all requests. Redis only."
    Gauge "latchgate_store_channel" [],
        "1 while messages of other gateways arrive (pub/sub), else 0. Redis only."
    Counter "latchgate_store_unsent_messages" [],
        "Messages to other gateways that could not be sent; each delays a waiter by up to two seconds. Redis only."
    Gauge "latchgate_store_clock_skew_seconds" ["node"],
        "By how much the clock of a store's node was ahead of the gateway's at the last check. Redis only."
    Gauge "latchgate_store_master_since_seconds" ["node"],
        "Since when the gateway follows this node as the master, in seconds since 1970. Missing without a master. Sentinel only."
    Counter "latchgate_store_master_changes" [],
        "How often the gateway left a master, mostly for another. Sentinel only."
    Gauge "latchgate_store_sentinel" ["node"],
        "1 while this sentinel answers and its messages arrive, else 0. Sentinel only."
    Gauge "latchgate_store_replicas" [],
        "How many replicas had the last grants when the gateway had waited for them. With redis.wait_replicas only."
    Gauge "latchgate_store_node" ["node"],
        "1 while this master of the cluster can be reached, or this node of the quorum answers, else 0. Cluster and Redlock only."
    Counter "latchgate_store_votes_given" ["node"],
        "How often this node has voted for an acquire. Redlock only."
    Counter "latchgate_store_votes_refused" ["node"],
        "How often this node has refused its vote, because the lock was held there. Redlock only."
    Counter "latchgate_store_votes_missing" ["node"],
        "How often this node had no vote: no answer in time, an unfit node, or too short a time since its start. Redlock only."

    Gauge "process_start_time_seconds" [],
        "When the process started, in seconds since 1970."
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
    /// The metric of the catalogue with this name, if there is one.
    pub fn named(name: &str) -> Option<&'static Self> {
        CATALOGUE.iter().find(|metric| metric.name == name)
    }

    /// The names of the metric's samples in a scrape, such as `_bucket`, `_sum` and `_count` of a histogram.
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
    // The help text is passed without its full stop, because the library adds one.
    registry.register(name, help.trim_end_matches('.'), metric.clone());
    metric
}

/// The text of `docs/metrics.md`, made from the catalogue.
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
