//! What can be configured: one struct per concern, each of which validates itself.
//!
//! The doc comments of these structs *are* the configuration reference: `config/latchgate.toml` and
//! `docs/configuration.md` are generated from them.

mod embedded;
mod http;
mod limits;
mod log;
mod millis;
mod redis;
mod root;
mod shutdown;
mod store_url;

pub use embedded::EmbeddedConfig;
pub use http::HttpConfig;
pub use limits::LimitsConfig;
pub use log::{LogConfig, LogFormat};
pub use millis::Millis;
pub use redis::RedisConfig;
pub use root::Config;
pub use shutdown::ShutdownConfig;
pub use store_url::{RedisUrl, StoreUrl, StoreUrlError};
