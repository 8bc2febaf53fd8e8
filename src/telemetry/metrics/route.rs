//! What is counted for each request, found without a look-up among the labels.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{Method, StatusCode};
use prometheus_client::metrics::{counter::Counter, family::Family};

use super::{
    histogram::ShortHistogram,
    labels::{Labels, RequestLabels, RouteLabels, Status, method},
};

/// Counts the requests of a route. A series begins with the first request that belongs to it.
#[derive(Debug)]
pub struct RouteMetrics {
    route: Arc<str>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, ShortHistogram>,
    counters: Cached<(&'static str, Status), Counter>,
    duration: OnceLock<ShortHistogram>,
}

/// Histograms of a family whose one label has few values.
#[derive(Debug)]
pub(super) struct KnownHistograms {
    label: &'static str,
    family: Family<Labels<1>, ShortHistogram>,
    known: Cached<&'static str, ShortHistogram>,
}

/// Metrics that were asked for before, by what tells them apart: the first few of them.
#[derive(Debug)]
struct Cached<K, M>([OnceLock<(K, M)>; KNOWN]);

/// As many as a route has pairs of a method and a status in its daily work, and as many as there are
/// operations of a store. What is not among them is looked up.
const KNOWN: usize = 12;

// === impl RouteMetrics ===

impl RouteMetrics {
    pub(super) fn new(
        route: &str,
        requests: &Family<RequestLabels, Counter>,
        durations: &Family<RouteLabels, ShortHistogram>,
    ) -> Self {
        Self {
            route: route.into(),
            requests: requests.clone(),
            durations: durations.clone(),
            counters: Cached::default(),
            duration: OnceLock::new(),
        }
    }

    /// A request was answered, or its caller was gone before.
    pub fn request(&self, asked: &Method, status: Option<StatusCode>, took: Duration) {
        let (method, status) = (method(asked), Status(status.map(|status| status.as_u16())));
        let look_up = || {
            self.requests.get_or_create_owned(&RequestLabels {
                method,
                route: Arc::clone(&self.route),
                status,
            })
        };
        self.counters.with((method, status), look_up, |counter| {
            counter.inc();
        });
        let duration = self.duration.get_or_init(|| {
            let route = Arc::clone(&self.route);
            self.durations.get_or_create_owned(&RouteLabels { route })
        });
        duration.observe(took);
    }
}

// === impl KnownHistograms ===

impl KnownHistograms {
    pub(super) fn new(label: &'static str, family: Family<Labels<1>, ShortHistogram>) -> Self {
        Self {
            label,
            family,
            known: Cached::default(),
        }
    }

    /// Counts a duration under a value of the label.
    pub(super) fn observe(&self, value: &'static str, duration: Duration) {
        let look_up = || self.family.get_or_create_owned(&[(self.label, value)]);
        self.known
            .with(value, look_up, |histogram| histogram.observe(duration));
    }
}

// === impl Cached ===

impl<K, M> Default for Cached<K, M> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; KNOWN])
    }
}

impl<K: Copy + PartialEq, M> Cached<K, M> {
    fn with(&self, key: K, look_up: impl Fn() -> M, work: impl FnOnce(&M)) {
        for slot in &self.0 {
            // Another thread may fill the slot first, with what has another key.
            let (of, metric) = slot.get_or_init(|| (key, look_up()));
            if *of == key {
                return work(metric);
            }
        }
        work(&look_up());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_among_the_known_is_counted_all_the_same() {
        let requests = Family::default();
        let durations = Family::default();
        let metrics = RouteMetrics::new("/x", &requests, &durations);
        for _ in 0..2 {
            for status in 200..220 {
                let status = StatusCode::from_u16(status).ok();
                metrics.request(&Method::GET, status, Duration::ZERO);
            }
            metrics.request(&Method::GET, None, Duration::ZERO);
        }
        for status in (200..220).map(Some).chain([None]) {
            let labels = RequestLabels {
                method: "GET",
                route: "/x".into(),
                status: Status(status),
            };
            assert_eq!(requests.get_or_create(&labels).get(), 2, "{status:?}");
        }
        assert_eq!(metrics.duration.get().unwrap().counts()[0], 42);
    }
}
