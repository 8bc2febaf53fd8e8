//! Everything that is tested from outside of the modules, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "a test that meets an error which it does not expect should stop there"
)]

mod api;
mod cli;
mod client;
mod config;
mod conformance;
mod embedded;
mod golden;
mod layers;
mod support;
