//! What the store is like, set when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

use super::{
    StoreFigures,
    labels::{Labels, NodeLabels},
    registrar::MetricRegistrar,
};

/// A gauge whose value has a fraction.
pub(super) type FloatGauge = Gauge<f64, AtomicU64>;

/// What the store is like. A store that does not have something leaves it out.
pub(super) struct StoreGauges {
    connections: Family<Labels<0>, Gauge>,
    hears: Family<Labels<0>, Gauge>,
    unsent: Family<Labels<0>, Counter>,
    clock_skew: Family<NodeLabels, FloatGauge>,
    master: Family<NodeLabels, FloatGauge>,
    master_changes: Family<Labels<0>, Counter>,
    sentinels: Family<NodeLabels, Gauge>,
    replicas: Family<Labels<0>, Gauge>,
    up: Family<NodeLabels, Gauge>,
    given: Family<NodeLabels, Counter>,
    refused: Family<NodeLabels, Counter>,
    missing: Family<NodeLabels, Counter>,
}

// === impl StoreGauges ===

impl StoreGauges {
    pub(super) fn new(registrar: &mut MetricRegistrar) -> Self {
        Self {
            connections: registrar.add("latchgate_store_connections", Family::default()),
            hears: registrar.add("latchgate_store_channel", Family::default()),
            unsent: registrar.add("latchgate_store_unsent_messages", Family::default()),
            clock_skew: registrar.add("latchgate_store_clock_skew_seconds", Family::default()),
            master: registrar.add("latchgate_store_master_since_seconds", Family::default()),
            master_changes: registrar.add("latchgate_store_master_changes", Family::default()),
            sentinels: registrar.add("latchgate_store_sentinel", Family::default()),
            replicas: registrar.add("latchgate_store_replicas", Family::default()),
            up: registrar.add("latchgate_store_node", Family::default()),
            given: registrar.add("latchgate_store_votes_given", Family::default()),
            refused: registrar.add("latchgate_store_votes_refused", Family::default()),
            missing: registrar.add("latchgate_store_votes_missing", Family::default()),
        }
    }

    pub(super) fn set(&self, now: &StoreFigures) {
        // A node that is not looked at any more says nothing.
        self.clock_skew.clear();
        self.master.clear();
        self.up.clear();
        for (gauge, figure) in [
            (&self.connections, now.connections.map(i64::from)),
            (&self.hears, now.hears.map(i64::from)),
            (&self.replicas, now.replicas.map(i64::from)),
        ] {
            if let Some(figure) = figure {
                gauge.get_or_create(&[]).set(figure);
            }
        }
        for (counter, figure) in [
            (&self.unsent, now.unsent_messages),
            (&self.master_changes, now.master_changes),
        ] {
            if let Some(figure) = figure {
                let counter = counter.get_or_create(&[]);
                counter.inner().store(figure, Ordering::Relaxed);
            }
        }
        for (node, skew) in &now.clock_skew {
            self.clock_skew.get_or_create(&of(node)).set(*skew);
        }
        if let Some((node, since)) = &now.master {
            self.master.get_or_create(&of(node)).set(*since);
        }
        for (node, answers) in &now.sentinels {
            let sentinel = self.sentinels.get_or_create(&of(node));
            sentinel.set(i64::from(*answers));
        }
        for (node, reached) in &now.masters {
            self.up.get_or_create(&of(node)).set(i64::from(*reached));
        }
        for node in &now.nodes {
            let up = self.up.get_or_create(&of(&node.node));
            up.set(i64::from(node.is_up));
            for (counter, figure) in [
                (&self.given, node.given),
                (&self.refused, node.refused),
                (&self.missing, node.missing),
            ] {
                let counter = counter.get_or_create(&of(&node.node));
                counter.inner().store(figure, Ordering::Relaxed);
            }
        }
    }
}

fn of(node: &str) -> NodeLabels {
    NodeLabels {
        node: node.to_owned(),
    }
}
