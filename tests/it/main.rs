//! All tests that use the library or the programs from outside, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where it unwraps; clippy exempts test functions only, not what they call"
)]

// The library's own tests include `support/manual_clock.rs`, too, and there it finds the trait by this path.
use latchgate::clock;

mod api;
mod bad_input;
mod checker;
mod cli;
mod client;
mod config;
mod conformance;
mod contention;
mod embedded;
mod events;
mod golden;
mod history;
mod layers;
mod lua;
mod model;
mod redis;
mod redlock;
mod rolling;
mod support;
mod tls;
mod traces;
