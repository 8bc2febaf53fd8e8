//! The page about metrics.

use latchgate::telemetry::metrics::page;

use crate::support::golden::assert_golden;

#[test]
fn the_page_on_metrics_is_what_the_program_counts() {
    assert_golden("docs/metrics.md", &page());
}
