//! Latchgate is a lock gateway: distributed locks over plain HTTP and JSON.
//!
//! The crate contains both the `latchgate` program and its library. Modules depend on each other in one direction
//! only; `ARCHITECTURE.md` shows the map, and a test checks it.
//!
//! The vocabulary of locks, shared with the clients, is a separate crate (`crates/vocabulary`), and so is the Rust
//! client (`clients/rust`), which the commands use.

#[doc(inline)]
pub use latchgate_client::{self as client, bounded_file, tls};
#[doc(inline)]
pub use latchgate_vocabulary::{self as lock, trace_context};

pub mod audit;
pub mod auth;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod file_stamp;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../fuzz/decoders/mod.rs"]
pub mod fuzzing;
pub mod http;
pub mod invisible_chars;
pub mod lifecycle;
pub mod release;
pub mod store;
pub mod telemetry;
mod with_all;
