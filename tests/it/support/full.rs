//! Whether tests take the time for everything.

/// Whether tests take the time for everything, as `scripts/test --full` says. What is left out
/// otherwise is said at the end of `scripts/test`.
pub(crate) fn full() -> bool {
    std::env::var_os("LATCHGATE_TEST_FULL").is_some()
}
