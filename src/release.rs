//! The version and the commit of the program.

/// The version, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first twelve digits of the commit of the build; `unknown` if the build was not told (`build.rs`).
pub const COMMIT: &str = env!("BUILT_FROM_COMMIT");

/// Version and commit, as `--version` shows them.
pub const DESCRIPTION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("BUILT_FROM_COMMIT"),
    ")"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_twelve_digits_or_unknown() {
        let is_digits = COMMIT.len() == 12 && COMMIT.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_digits || COMMIT == "unknown", "{COMMIT}");
        assert_eq!(DESCRIPTION, format!("{VERSION} ({COMMIT})"));
    }
}
