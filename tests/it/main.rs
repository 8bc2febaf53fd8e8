//! Everything that is tested from outside the crate, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "a test that meets an error which it does not expect should stop there"
)]

mod conformance;
//! Tests against real servers and real files, in one binary.

#[cfg(test)]
mod lua;
#[cfg(test)]
mod redis;
#[cfg(test)]
//! Everything that is tested from outside of the modules, in one binary.

mod config;
mod golden;
mod layers;
mod support;
