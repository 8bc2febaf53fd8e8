//! Everything that is tested from outside the crate, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "a test that meets an error which it does not expect should stop there"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where it unwraps; clippy exempts test functions only, not what they call"
)]

mod api;
mod conformance;
mod support;
