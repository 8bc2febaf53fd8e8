//! Everything that is tested from outside of the modules, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where it unwraps; clippy exempts test functions only, not what they call"
)]

mod api;
mod conformance;
mod embedded;
mod lua;
mod redis;
mod support;
