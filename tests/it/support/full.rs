//! Whether tests take the time for everything.

/// Whether tests take the time for everything, as `scripts/test --full` says. What is left out
/// otherwise is said at the end of `scripts/test`.
#[expect(
    clippy::disallowed_methods,
    reason = "the switch of the person who runs the tests, not a configuration of the product"
)]
pub(crate) fn full() -> bool {
    std::env::var_os("LATCHGATE_TEST_FULL").is_some()
}
