//! The prefix under which the whole service appears.

use std::{fmt, sync::Arc};

/// A path prefix: empty, or with a slash at its beginning and none at its end. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BasePath(Arc<str>);

// === impl BasePath ===

impl BasePath {
    /// Takes the prefix as it is configured, slashes at its ends or not.
    pub(super) fn new(configured: &str) -> Self {
        match configured.trim_matches('/') {
            "" => Self("".into()),
            path => Self(format!("/{path}").into()),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_one_slash_at_its_beginning_and_none_at_its_end() {
        for configured in ["", "/"] {
            assert_eq!(BasePath::new(configured).as_str(), "");
        }
        for configured in ["/a/b", "a/b", "/a/b/"] {
            assert_eq!(BasePath::new(configured).as_str(), "/a/b");
        }
    }
}
