//! What the gateway counts and measures, for Prometheus.

mod buckets;
mod catalogue;
mod entry;
mod figures;
mod labels;
mod outcome;
mod process;
mod set;
mod store_gauges;
#[cfg(test)]
mod tests;
mod totals;

pub use catalogue::{CATALOGUE, Kind, Metric, page};
pub use figures::{Figures, NodeFigures, StoreFigures};
pub use outcome::{Ended, Outcome, SeenBy};
pub use set::Metrics;
pub use totals::Totals;
