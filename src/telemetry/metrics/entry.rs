//! Registers metrics as the catalogue describes them.

use prometheus_client::{
    metrics::histogram::Histogram,
    registry::{Metric as Registered, Registry},
};

use super::Metric;

/// Registers metrics as the catalogue describes them.
#[derive(Default)]
pub(super) struct Entry(Registry);

// === impl Entry ===

impl Entry {
    /// Registers a metric of the catalogue.
    pub(super) fn add<M: Registered + Clone>(&mut self, name: &str, metric: M) -> M {
        let described = Metric::named(name).expect("every metric is in the catalogue");
        // The library ends the sentence.
        let help = described.help.trim_end_matches('.');
        self.0.register(name, help, metric.clone());
        metric
    }

    /// What is registered.
    pub(super) fn into_registry(self) -> Registry {
        self.0
    }
}

/// For what takes milliseconds, unless something is wrong.
pub(super) fn short() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
        60.0,
    ])
}

/// For what callers decide: from milliseconds to a day.
pub(super) fn long() -> Histogram {
    Histogram::new([
        0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0,
        86_400.0,
    ])
}
