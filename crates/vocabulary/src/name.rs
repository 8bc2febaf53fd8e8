//! Lock names and lock name prefixes.

use std::{fmt, sync::Arc};

/// The name of a lock: 1 to 200 bytes of ASCII letters, digits and `. _ : @ ~ -`, and neither `.` nor `..`.
///
/// A name has no `/`, so that it is one path segment through every proxy, and no braces, because Redis Cluster
/// reads them as a hash tag. Use `:` for hierarchy. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

/// Why a text is not a lock name or a name prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The lock name is empty.
    #[error("is empty; a lock name has 1 to 200 characters")]
    Empty,
    /// The lock name or the prefix is longer than [`LockName::MAX_LEN`] bytes.
    #[error("has {0} bytes; a lock name has at most 200")]
    TooLong(usize),
    /// The lock name or the prefix has a character that lock names do not allow.
    #[error("has {0:?} in it; allowed are ASCII letters, digits and . _ : @ ~ -")]
    Character(char),
    /// The lock name is `.` or `..`, which HTTP clients remove from a path.
    #[error("is {0:?}, which HTTP clients remove from a path")]
    Dots(&'static str),
}

// === impl LockName ===

impl LockName {
    /// The maximum length of a lock name or a prefix, in bytes.
    pub const MAX_LEN: usize = 200;

    /// Makes a lock name of a text. Fails if the text is not a lock name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        match text {
            "" => return Err(NameError::Empty),
            "." => return Err(NameError::Dots(".")),
            ".." => return Err(NameError::Dots("..")),
            _ => {}
        }
        check(text)?;
        Ok(Self(text.into()))
    }

    /// The lock name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for LockName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// Checks the length and the characters of a lock name or a prefix.
fn check(text: &str) -> Result<(), NameError> {
    if text.len() > LockName::MAX_LEN {
        return Err(NameError::TooLong(text.len()));
    }
    let allows = |c: char| c.is_ascii_alphanumeric() || "._:@~-".contains(c);
    match text.chars().find(|&c| !allows(c)) {
        Some(c) => Err(NameError::Character(c)),
        None => Ok(()),
    }
}

// === Name prefix ===

/// A prefix of lock names: 0 to 200 bytes of the characters that lock names allow. The empty prefix covers every lock
/// name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NamePrefix(String);

// === impl NamePrefix ===

impl NamePrefix {
    /// Makes a prefix of a text. Fails if the text is not a prefix of lock names.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the lock name begins with this prefix.
    pub fn covers(&self, name: &LockName) -> bool {
        name.as_str().starts_with(&self.0)
    }

    /// Whether this prefix covers every lock name that `other` covers.
    pub fn covers_all(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_every_allowed_character_up_to_the_longest() {
        let longest = "a".repeat(LockName::MAX_LEN);
        for name in [
            "a",
            "deploy:prod:eu",
            "Az09._:@~-",
            "...",
            ".a",
            longest.as_str(),
        ] {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn refuses_what_a_path_or_a_cluster_would_read_differently() {
        assert_eq!(LockName::new(""), Err(NameError::Empty));
        assert_eq!(LockName::new("."), Err(NameError::Dots(".")));
        assert_eq!(LockName::new(".."), Err(NameError::Dots("..")));
        assert_eq!(
            LockName::new(&"a".repeat(201)),
            Err(NameError::TooLong(201))
        );
        for (name, c) in [
            ("a/b", '/'),
            ("{a}", '{'),
            ("a b", ' '),
            ("a\0", '\0'),
            ("ä", 'ä'),
        ] {
            assert_eq!(LockName::new(name), Err(NameError::Character(c)));
        }
    }

    #[test]
    fn covers_the_names_that_begin_so() {
        let name = |text| LockName::new(text).unwrap();
        let prefix = NamePrefix::new("team").unwrap();
        for (text, covered) in [("team", true), ("team2:a", true), ("tea", false)] {
            assert_eq!(prefix.covers(&name(text)), covered, "{text}");
        }
        assert!(NamePrefix::default().covers(&name("a")));
        for (text, covered) in [
            ("team", true),
            ("team2:", true),
            ("tea", false),
            ("", false),
        ] {
            let other = NamePrefix::new(text).unwrap();
            assert_eq!(prefix.covers_all(&other), covered, "{text}");
        }
    }

    #[test]
    fn takes_the_beginnings_of_names_and_nothing_else() {
        let longest = "a".repeat(LockName::MAX_LEN);
        for text in ["", ".", "..", "deploy:", longest.as_str()] {
            assert_eq!(NamePrefix::new(text).unwrap().as_str(), text);
        }
        assert_eq!(
            NamePrefix::new(&"a".repeat(LockName::MAX_LEN + 1)),
            Err(NameError::TooLong(201))
        );
        // These characters belong to glob patterns, Redis hash tags or paths.
        for c in ['*', '?', '[', ']', '^', '\\', '{', '}', '/', ' ', 'ä'] {
            assert_eq!(
                NamePrefix::new(&format!("a{c}")),
                Err(NameError::Character(c))
            );
        }
    }
}
