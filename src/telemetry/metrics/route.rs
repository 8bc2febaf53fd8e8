//! The metrics of each request, found without looking up labels.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{Method, StatusCode};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family},
};

use super::histogram::ShortHistogram;

/// The metrics of the requests of one route. A series is created with the first request that belongs to it.
#[derive(Debug)]
pub struct RouteMetrics {
    route: Arc<str>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabel, ShortHistogram>,
    counters: Cached<(&'static str, Status), Counter>,
    duration: OnceLock<ShortHistogram>,
}

/// A cache of the metrics that were looked up first, each with its key.
#[derive(Debug)]
pub(super) struct Cached<K, M>([OnceLock<(K, M)>; KNOWN]);

/// The size of the cache: as many as a route normally has pairs of method and status, and as many as a store has
/// operations. Metrics beyond this number are looked up each time.
const KNOWN: usize = 12;

/// The labels of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    method: &'static str,
    route: Arc<str>,
    status: Status,
}

/// The label of a metric with one series per route.
pub(super) type RouteLabel = [(&'static str, Arc<str>); 1];

/// The status of an answer; `None` if the caller hung up before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Status(Option<u16>);

impl EncodeLabelValue for Status {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self.0 {
            Some(status) => status.encode(encoder),
            None => "hung-up".encode(encoder),
        }
    }
}

/// The method of a request as a label value. Unknown methods become `other`, because callers could invent any number of
/// them.
fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or("other")
}

// === impl RouteMetrics ===

impl RouteMetrics {
    pub(super) fn new(
        route: &str,
        requests: &Family<RequestLabels, Counter>,
        durations: &Family<RouteLabel, ShortHistogram>,
    ) -> Self {
        Self {
            route: route.into(),
            requests: requests.clone(),
            durations: durations.clone(),
            counters: Cached::default(),
            duration: OnceLock::new(),
        }
    }

    /// Counts a request with its duration. `status` is `None` if the caller hung up before the answer.
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
            self.durations.get_or_create_owned(&[("route", route)])
        });
        duration.observe(took);
    }
}

// === impl Cached ===

impl<K, M> Default for Cached<K, M> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; KNOWN])
    }
}

impl<K: Copy + PartialEq, M> Cached<K, M> {
    /// Runs `work` with the metric of this key. If the metric is not in the cache, `look_up` finds it.
    pub(super) fn with(&self, key: K, look_up: impl Fn() -> M, work: impl FnOnce(&M)) {
        for slot in &self.0 {
            // Another thread may have filled this slot of the cache first, with the metric of another key.
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
