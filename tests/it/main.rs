//! Every integration test, in one binary: linked once, run together.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where it unwraps; clippy exempts test functions only, not what they call"
)]

mod api;
