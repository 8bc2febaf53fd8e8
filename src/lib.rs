//! Latchgate is a lock gateway: distributed locks over plain HTTP and JSON.
//!
//! The crate is both the `latchgate` program and the library it is made of. Modules depend on each
//! other in one direction only; `ARCHITECTURE.md` draws the map and a test checks it.

pub mod clock;
pub mod config;
pub mod engine;
pub mod http;
pub mod lifecycle;
pub mod lock;
pub mod store;
