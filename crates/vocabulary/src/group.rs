//! Several locks that are taken as one.

use crate::{LockName, NameError};

/// The names of locks that are taken as one: 2 to 16, each once, in sorted order.
///
/// Everybody takes the locks of a group in this order, so two groups cannot wait for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNames(Box<[LockName]>);

/// Why names are no group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupNamesError {
    /// They are fewer than 2 or more than 16.
    #[error("has {0} names; a group has 2 to 16")]
    Count(usize),
    /// One is there twice.
    #[error("has {0} more than once")]
    Repeated(LockName),
    /// One is no name of a lock.
    #[error("names {0:?}, which {1}")]
    Name(String, NameError),
}

/// The group that a lease is a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The first of its names.
    pub first: LockName,
    /// How many leases it has.
    pub count: u8,
}

// === impl GroupNames ===

impl GroupNames {
    /// The fewest names.
    pub const MIN: usize = 2;
    /// The most names: each is a command of its own, and held while the next one is waited for.
    pub const MAX: usize = 16;

    /// Takes names as a group, in whatever order they are.
    pub fn new(names: impl IntoIterator<Item = LockName>) -> Result<Self, GroupNamesError> {
        let mut sorted: Box<[_]> = names.into_iter().collect();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(GroupNamesError::Repeated(pair[0].clone()));
        }
        if !(Self::MIN..=Self::MAX).contains(&sorted.len()) {
            return Err(GroupNamesError::Count(sorted.len()));
        }
        Ok(Self(sorted))
    }

    /// Reads names as texts.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, GroupNamesError> {
        let texts: Vec<_> = texts.into_iter().collect();
        if !(Self::MIN..=Self::MAX).contains(&texts.len()) {
            return Err(GroupNamesError::Count(texts.len()));
        }
        let parse = |text| {
            LockName::new(text).map_err(|error| {
                // What is far too long for a name says nothing more at full length.
                let shown = text.chars().take(LockName::MAX_LEN).collect();
                GroupNamesError::Name(shown, error)
            })
        };
        let names: Result<Vec<_>, _> = texts.into_iter().map(parse).collect();
        Self::new(names?)
    }

    /// The names in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &LockName> {
        self.0.iter()
    }

    /// The names in their order.
    pub fn as_slice(&self) -> &[LockName] {
        &self.0
    }

    /// What the leases of the group show of it.
    pub fn group(&self) -> Group {
        Group {
            first: self.0[0].clone(),
            count: u8::try_from(self.0.len()).expect("a group has at most 16 names"),
        }
    }

    /// The names with a comma between, which no name has.
    pub fn joined(&self) -> String {
        let names: Vec<_> = self.0.iter().map(LockName::as_str).collect();
        names.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_2_to_16_distinct_names_in_sorted_order() {
        let names = GroupNames::parse(["c", "a", "b"]).unwrap();
        assert_eq!(names.joined(), "a,b,c");
        let group = names.group();
        assert_eq!((group.first.as_str(), group.count), ("a", 3));
        let many: Vec<_> = (0..17).map(|n| format!("n{n}")).collect();
        let parse = |count: usize| GroupNames::parse(many[..count].iter().map(String::as_str));
        assert!(parse(2).is_ok() && parse(16).is_ok());
        for count in [0, 1, 17] {
            assert_eq!(parse(count), Err(GroupNamesError::Count(count)));
        }
        let repeated = LockName::new("a").unwrap();
        assert_eq!(
            GroupNames::parse(["a", "b", "a"]),
            Err(GroupNamesError::Repeated(repeated))
        );
    }

    #[test]
    fn says_which_name_is_wrong() {
        let error = GroupNames::parse(["a", "b/c"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "names \"b/c\", which has '/' in it; allowed are ASCII letters, digits and . _ : @ ~ -"
        );
    }
}
