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
    /// secret. `GET /metrics` is served on the gateway's own address all the same. Requests to this address are treated like
    /// those to any route: without exactly one valid `Host` they are refused (any host may be named), errors are problem
    /// documents, and all are counted in the metrics of requests.
    pub listen: String,
}

// === impl MetricsConfig ===

impl MetricsConfig {
    /// Finds out whether metrics can be served there.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        if self.listen.is_empty() || self.listen.parse::<SocketAddr>().is_ok() {
            return Ok(());
        }
        let allowed = "an address as IP:PORT such as 127.0.0.1:9420, or nothing";
        Err(Invalid::new("metrics.listen", &self.listen, allowed))
    }

    /// Finds out whether the gateway's own address leaves it free.
    pub(super) fn validate_beside(&self, gateway: SocketAddr) -> Result<(), Invalid> {
        let Some(address) = self.address() else {
            return Ok(());
        };
        let same_port = address.port() == gateway.port() && address.port() != 0;
        let (here, there) = (address.ip().to_canonical(), gateway.ip().to_canonical());
        let any = here.is_unspecified() || there.is_unspecified();
        if same_port && (here == there || any && here.is_ipv4() == there.is_ipv4()) {
            let allowed = "an address that the gateway does not listen on itself: it serves \
                           GET /metrics on its own address all the same";
            return Err(Invalid {
                depends_on: Some("listen"),
                ..Invalid::new("metrics.listen", &self.listen, allowed)
            });
        }
        Ok(())
    }

    /// The address, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}
