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
mod support;
