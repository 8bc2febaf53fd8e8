//! Where metrics are served.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Invalid;

/// Where metrics are served.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// An address of its own for `GET /metrics`, as `IP:PORT`; empty for none. Whoever reaches it reads
    /// the metrics without an API key, and nothing else: they hold no lock name, no owner and no
    /// secret. `GET /metrics` is served on the gateway's own address all the same.
    pub listen: String,
}

// === impl MetricsConfig ===

impl MetricsConfig {
    /// Finds out whether metrics can be served there.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.listen.is_empty() || self.listen.parse::<SocketAddr>().is_ok() {
            return Ok(());
        }
        let allowed = "an address as IP:PORT such as 127.0.0.1:9420, or nothing";
        Err(Invalid::new("metrics.listen", &self.listen, allowed))
    }

    /// The address, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}
