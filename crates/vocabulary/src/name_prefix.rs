//! How the names of some locks begin.

use crate::{LockName, NameError};

/// The beginning of lock names: 0 to 200 bytes of the characters that a name has. Empty, it is the
/// beginning of every name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NamePrefix(String);

// === impl NamePrefix ===

impl NamePrefix {
    /// Checks a text and takes it as a prefix.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.len() > LockName::MAX_LEN {
            return Err(NameError::TooLong(text.len()));
        }
        match text.chars().find(|&c| !LockName::allows(c)) {
            Some(c) => Err(NameError::Character(c)),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a name begins so.
    pub fn covers(&self, name: &LockName) -> bool {
        name.as_str().starts_with(&self.0)
    }

    /// Whether every name that begins with another prefix begins so.
    pub fn covers_all(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

impl std::str::FromStr for NamePrefix {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // What would be a pattern, a hash tag or a path.
        for c in ['*', '?', '[', ']', '^', '\\', '{', '}', '/', ' ', 'ä'] {
            assert_eq!(
                NamePrefix::new(&format!("a{c}")),
                Err(NameError::Character(c))
            );
        }
    }
}
