//! What there is to see of the cluster.

use crate::{
    store::{
        Unavailability,
        contract::{Check, Health},
    },
    telemetry::metrics::StoreFigures,
};

use super::members::Cluster;

// === impl Cluster ===

impl Cluster {
    /// What readiness says.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let layout = self.layout();
        let last_error = self.last_error.lock();
        let count = layout.shards.len();
        let (health, note) = match (last_error.as_ref(), layout.unassigned()) {
            (Some(Unavailability::Misconfigured(why)), _) => {
                (Health::Misconfigured(why.clone()), None)
            }
            (Some(why), _) => (Health::Outage(format!("no server answers: {why}")), None),
            (None, (0, _)) => (
                Health::Passing,
                Some(format!("{count} masters have all slots")),
            ),
            (None, (lacking, first)) => {
                let first = first.unwrap_or_default();
                let which = format!("{lacking} slots have no master (the first is {first})");
                (Health::Outage(which), None)
            }
        };
        vec![Check {
            note,
            ..Check::new("cluster", health)
        }]
    }

    /// What metrics say.
    pub(crate) fn figures(&self, figures: &mut StoreFigures) {
        let shards = self.shards();
        let reached = shards.iter().filter_map(|shard| {
            let node = shard.node()?.to_string();
            Some((node, !shard.pool.is_failing()))
        });
        figures.masters = reached.collect();
    }
}
