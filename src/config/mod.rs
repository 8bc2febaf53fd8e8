//! The settings of the gateway: one struct per concern, which validates its own values.
//!
//! The doc comments of these structs *are* the configuration reference: `config/latchgate.toml` and
//! `docs/configuration.md` are generated from them.

mod auth;
mod error;
mod history;
mod host;
mod http;
mod limits;
mod loading;
mod locks;
mod millis;
mod redis;
pub mod reference;
mod root;
mod store_url;
mod telemetry;

pub use auth::{AuditConfig, AuthConfig};
pub use error::{ConfigError, Invalid, NotToml, RefusedValue, Source};
pub use history::HistoryConfig;
pub use host::{Host, HostError, HostPort, Origin, OriginError};
pub use http::{ClientAuth, HttpConfig, HttpTlsConfig};
pub use limits::{LimitsConfig, OrderLimits, ShutdownConfig};
pub use loading::{
    key::{Key, Section, ValueKind},
    load::{Loaded, Sources},
};
pub use locks::{DeclaredLock, DeclaredLocks, DeclaredMode, LocksConfig, LocksFileError};
pub use millis::Millis;
pub use redis::{Persistence, RedisConfig, RedisSentinelConfig, RedisTlsConfig, RedlockConfig};
pub use root::Config;
pub use store_url::{RedisLogin, RedisNode, ServersKind, ServersUrl, StoreUrl, StoreUrlError};
pub use telemetry::{LogConfig, LogFormat, LogRequests, MetricsConfig, TraceConfig};

pub(crate) use error::closest;
pub(crate) use loading::file::{TomlEntry, entries};
