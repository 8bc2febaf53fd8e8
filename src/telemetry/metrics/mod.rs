//! The Prometheus metrics of the gateway.

mod catalogue;
mod figures;
mod histogram;
mod labels;
mod route;
mod set;
#[cfg(test)]
mod tests;
mod totals;

pub use catalogue::{CATALOGUE, Metric, MetricKind, page};
pub use figures::{Figures, NodeFigures, ServerFigures, StoreFigures};
pub use labels::{AcquireOutcome, LeaseOutcome, SeenBy};
pub use route::RouteMetrics;
pub use set::Metrics;
pub use totals::{Acquires, MARGINS_MS, RenewMargin, Totals};
