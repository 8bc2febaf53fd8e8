//! The whole configuration.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    EmbeddedConfig, HttpConfig, LimitsConfig, LogConfig, RedisConfig, ShutdownConfig, StoreUrl,
};

/// The configuration of `latchgate serve`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The address on which the gateway listens, as `IP:PORT`. Port 0 takes a free port and prints
    /// it.
    pub listen: SocketAddr,
    /// Where leases live: `embedded:DIR` or `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`.
    pub store: StoreUrl,
    /// Serve without authentication on an address that other machines can reach. Whoever reaches it
    /// can take and inspect every lock.
    pub insecure_no_auth: bool,
    /// How HTTP is served.
    pub http: HttpConfig,
    /// What a caller may ask for.
    pub limits: LimitsConfig,
    /// The embedded store.
    pub embedded: EmbeddedConfig,
    /// The Redis store.
    pub redis: RedisConfig,
    /// How the gateway stops.
    pub shutdown: ShutdownConfig,
    /// What is logged, and how.
    pub log: LogConfig,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            // Loopback: without API keys nobody else may reach the gateway unless it is meant.
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            store: StoreUrl::default(),
            insecure_no_auth: false,
            http: HttpConfig::default(),
            limits: LimitsConfig::default(),
            embedded: EmbeddedConfig::default(),
            redis: RedisConfig::default(),
            shutdown: ShutdownConfig::default(),
            log: LogConfig::default(),
        }
    }
}
