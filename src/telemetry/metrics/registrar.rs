//! Registers metrics as the catalogue describes them.

use prometheus_client::registry::{Metric as Registered, Registry};

use super::Metric;

/// Registers metrics as the catalogue describes them.
#[derive(Default)]
pub(super) struct MetricRegistrar(Registry);

// === impl MetricRegistrar ===

impl MetricRegistrar {
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
