//! Whether the tests run in full.

/// Whether the tests run in full, as `scripts/test --full` asks. Otherwise `scripts/test` lists at its end what was
/// left out.
#[expect(
    clippy::disallowed_methods,
    reason = "the switch of the person who runs the tests, not a configuration of the product"
)]
pub(crate) fn full() -> bool {
    std::env::var_os("LATCHGATE_TEST_FULL").is_some()
}
