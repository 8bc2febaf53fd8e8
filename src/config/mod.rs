//! What can be configured: one struct per concern, each of which validates itself.
//!
//! The doc comments of these structs *are* the configuration reference: `config/latchgate.toml` and
//! `docs/configuration.md` are generated from them.

mod audit;
mod auth;
mod closest;
mod error;
mod host;
mod http;
mod invalid;
mod limits;
mod loading;
mod log;
mod metrics;
mod millis;
mod origin;
mod redis;
mod redis_server;
mod redlock;
pub mod reference;
mod root;
mod shutdown;
mod store_url;
mod trace;

pub use audit::AuditConfig;
pub use auth::AuthConfig;
pub use error::{ConfigError, NotToml, RefusedValue};
pub use host::{Host, HostError, HostPort};
pub use http::{ClientAuth, HttpConfig, HttpTlsConfig};
pub use invalid::Invalid;
pub use limits::LimitsConfig;
pub use loading::{
    key::{Key, Section, ValueKind},
    load::{Loaded, Sources},
    setting::Source,
};
pub use log::{LogConfig, LogFormat, LogRequests};
pub use metrics::MetricsConfig;
pub use millis::Millis;
pub use origin::{Origin, OriginError};
pub use redis::{RedisConfig, RedisSentinelConfig, RedisTlsConfig};
pub use redis_server::{RedisLogin, RedisNode};
pub use redlock::{Persistence, RedlockConfig};
pub use root::Config;
pub use shutdown::ShutdownConfig;
pub use store_url::{
    ClusterUrl, RedisUrl, RedlockUrl, SentinelUrl, ServersUrl, StoreUrl, StoreUrlError,
};
pub use trace::TraceConfig;

pub(crate) use closest::closest;
pub(crate) use loading::file::{TomlEntry, entries};
