//! Latchgate is a lock gateway: distributed locks over plain HTTP and JSON.
//!
//! The crate is both the `latchgate` program and the library it is made of. Modules depend on each
//! other in one direction only; `ARCHITECTURE.md` draws the map and a test checks it.
//!
//! With `default-features = false` only [`lock`], [`tls`] and [`client`] remain, with what they stand on: what a program needs that
//! takes locks through a gateway.

#[cfg(feature = "server")]
pub mod audit;
#[cfg(feature = "server")]
pub mod auth;
pub mod bounded_file;
#[cfg(feature = "server")]
pub mod cli;
pub mod client;
#[cfg(feature = "server")]
pub mod clock;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod engine;
#[cfg(feature = "server")]
pub mod file_stamp;
#[cfg(all(feature = "server", any(test, feature = "fuzzing")))]
pub mod fuzzing;
#[cfg(feature = "server")]
pub mod http;
#[cfg(feature = "server")]
pub mod invisible_chars;
#[cfg(feature = "server")]
pub mod lifecycle;
pub mod lock;
#[cfg(feature = "server")]
mod mutants;
pub mod release;
#[cfg(feature = "server")]
pub mod store;
#[cfg(feature = "server")]
pub mod telemetry;
pub mod tls;
pub mod trace_context;
#[cfg(feature = "server")]
mod with_all;
