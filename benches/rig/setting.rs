//! How long a benchmark runs.

/// A number from the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark takes its settings from the environment"
)]
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
