//! Everything that is tested from outside of the modules, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where it unwraps; clippy exempts test functions only, not what they call"
)]

mod api;
mod cli;
mod client;
mod config;
mod conformance;
mod contention;
mod embedded;
mod events;
mod golden;
mod layers;
mod lua;
mod redis;
mod rolling;
mod support;
mod tls;
mod traces;
