//! Groups: several locks that one request acquires, all or none.

use crate::{LockName, NameError, TokenHash, Ttl};

/// The lock names of a group: 2 to 16 different names in sorted order.
///
/// Every caller acquires the locks of a group in this order, so two groups cannot deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNames(Box<[LockName]>);

/// Why a list of names is not a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupNamesError {
    /// The group has fewer than 2 or more than 16 names.
    #[error("has {0} names; a group has 2 to 16")]
    Count(usize),
    /// A name occurs more than once in the group.
    #[error("has {0} more than once")]
    Repeated(LockName),
    /// A text is not a lock name.
    #[error("names {0:?}, which {1}")]
    Name(String, NameError),
}

/// The group to which a lease belongs, as an answer about the lease shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The first lock name of the group.
    pub first: LockName,
    /// How many locks the group has.
    pub count: u8,
    /// How the group is collected; `None` if the lease was granted by an older gateway.
    pub mark: Option<CollectionMark>,
}

/// What each lease of a group keeps about the collection of the group, for as long as the lease lives. The mark counts
/// only while the lease has the TTL of an incomplete group ([`HeldLease::mark`](crate::HeldLease::mark)), so the
/// renewal that gives the lease its whole TTL removes the mark on every store, without a write of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionMark {
    /// The TTL of the lease once the group is complete.
    pub ttl: Ttl,
    /// Which leases belong to one collection: the first bytes of the hash of their token.
    pub id: u32,
    /// The lock of the group that follows in the order of the names; `None` for the last lock.
    pub next: Option<LockName>,
}

/// How long the lock of an incomplete group is held at most without a renewal, in ms: a killed gateway leaves locks
/// behind for that long.
const COLLECTING_MS: u64 = 10_000;

// === impl Ttl ===

impl Ttl {
    /// The TTL of a lease that has this TTL once its group is complete, as long as the group is not: at most 10 seconds,
    /// and always another TTL.
    #[must_use]
    pub fn while_collected(self) -> Self {
        let ms = self.as_millis().min(COLLECTING_MS);
        let ttl = Self::from_millis(ms - 1).or_else(|_| Self::from_millis(ms + 1));
        ttl.expect("a millisecond more than the shortest TTL is a TTL")
    }
}

// === impl GroupNames ===

impl GroupNames {
    /// The smallest number of names in a group.
    pub const MIN: usize = 2;
    /// The largest number of names in a group. Each name costs a command to the store, and the lock of each name is
    /// held during the wait for the next lock.
    pub const MAX: usize = 16;

    /// Makes a group of names in any order, or says why they are none.
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

    /// Makes a group of texts, in any order. Fails if a text is not a lock name, or if the names are not a group.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, GroupNamesError> {
        let texts: Vec<_> = texts.into_iter().collect();
        if !(Self::MIN..=Self::MAX).contains(&texts.len()) {
            return Err(GroupNamesError::Count(texts.len()));
        }
        let parse = |text| {
            LockName::new(text).map_err(|error| {
                // If a text is far too long for a lock name, the error shows only its beginning.
                let shown = text.chars().take(LockName::MAX_LEN).collect();
                GroupNamesError::Name(shown, error)
            })
        };
        let names: Result<Vec<_>, _> = texts.into_iter().map(parse).collect();
        Self::new(names?)
    }

    /// The names of the group in sorted order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &LockName> {
        self.0.iter()
    }

    /// The names of the group in sorted order, as a slice.
    pub fn as_slice(&self) -> &[LockName] {
        &self.0
    }

    /// The group as each of its leases shows it: the first name, and the number of names.
    pub fn group(&self) -> Group {
        Group {
            first: self.0[0].clone(),
            count: u8::try_from(self.0.len()).expect("a group has at most 16 names"),
            mark: None,
        }
    }

    /// The group as the lease of the lock at this index keeps it, with the mark of the collection under this token.
    pub fn marked(&self, at: usize, ttl: Ttl, token: &TokenHash) -> Group {
        let [first, second, third, fourth, ..] = *token.as_bytes();
        Group {
            mark: Some(CollectionMark {
                ttl,
                id: u32::from_be_bytes([first, second, third, fourth]),
                next: self.0.get(at + 1).cloned(),
            }),
            ..self.group()
        }
    }

    /// The names of the group in sorted order, separated by commas. No name contains a comma.
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
    fn an_incomplete_group_has_a_ttl_that_the_complete_group_does_not_have() {
        for (whole, brief) in [
            (86_400_000, 9_999),
            (10_000, 9_999),
            (9_999, 9_998),
            (100, 101),
        ] {
            let whole = Ttl::from_millis(whole).unwrap();
            assert_eq!(whole.while_collected().as_millis(), brief);
        }
    }

    #[test]
    fn says_which_name_is_wrong() {
        let error = GroupNames::parse(["a", "b/c", "b c"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "names \"b c\", which has ' ' in it; allowed are ASCII letters, digits and . _ : @ ~ - /"
        );
    }
}
