//! Which version of the program this is, and what it was built from.

/// The version, as in `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, its first twelve digits; `unknown` if nobody said (`build.rs`).
pub const COMMIT: &str = env!("BUILT_FROM_COMMIT");

/// Both, as `--version` shows them behind the name of the program.
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
