//! Everything that is tested from outside the crate, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "a test that meets an error which it does not expect should stop there"
)]

mod api;
mod conformance;
mod embedded;
mod support;
