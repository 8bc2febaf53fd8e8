//! Samples of the figures of this gateway: one every ten seconds, for the last hour.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use crate::telemetry::metrics::{Acquires, RenewMargin};

/// The numbers of one gateway at one time. Each field is that of `GET /stats`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Sample {
    /// When the sample was taken, by the clock of the gateway.
    #[schema(format = DateTime)]
    pub at: String,
    /// How long the gateway had run.
    pub uptime_ms: u64,
    /// The number of leases of this gateway.
    pub leases: usize,
    /// The number of these leases that shared their lock.
    pub shared_leases: usize,
    /// How long the longest-held of these leases had been held; null if there was none.
    #[schema(required = true)]
    pub longest_hold_ms: Option<u64>,
    /// The number of requests that waited in a queue through this gateway.
    pub waiters: usize,
    /// How long the longest-waiting of these requests had waited; null if there was none.
    #[schema(required = true)]
    pub longest_wait_ms: Option<u64>,
    /// Counts since the start of the gateway.
    pub totals: SampledTotals,
    /// How much TTL was left when leases were renewed through this gateway, since its start.
    pub renew_margin: RenewMargin,
}

/// The counts of a sample.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SampledTotals {
    /// Acquires and holds, by outcome.
    pub acquires: Acquires,
}

/// The samples of the last hour, oldest first.
#[derive(Debug, Default)]
pub(super) struct Samples(Mutex<VecDeque<Sample>>);

/// The time between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// How many samples are kept: an hour.
const MAX_SAMPLES: usize = 360;

// === impl Samples ===

impl Samples {
    pub(super) fn add(&self, sample: Sample) {
        let mut samples = self.0.lock();
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// All samples, oldest first.
    pub(super) fn all(&self) -> Vec<Sample> {
        self.0.lock().iter().cloned().collect()
    }
}
