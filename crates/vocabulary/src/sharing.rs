//! With whom a lock is shared.

use std::{fmt, num::NonZeroU16};

/// How many may hold a lock together: 1 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(NonZeroU16);

/// The number is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is {0}; a limit is 1 to 9999")]
pub struct LimitError(u64);

/// How an attempt wants to share a lock.
///
/// It is granted the lock beside others that share it, as long as fewer than `limit` hold it. That binds at
/// its own grant only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// How many may hold the lock, this one included.
    pub limit: Limit,
    /// Whether the caller has set the limit, and not the gateway: then its lease has a slot.
    pub has_slot: bool,
}

/// With whom a lease shares its lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// It holds the lock alone.
    #[default]
    Exclusive,
    /// It holds the lock beside others that share it.
    Shared {
        /// The smallest number from 0 that no other lease of the lock had when this one was granted, if its
        /// request had a limit. Always below that limit.
        slot: Option<u16>,
    },
}

// === impl Limit ===

impl Limit {
    /// The largest limit.
    pub const MAX: u16 = 9_999;

    /// Takes a number as a limit.
    pub fn new(number: u64) -> Result<Self, LimitError> {
        let limit = u16::try_from(number)
            .ok()
            .filter(|limit| *limit <= Self::MAX);
        let limit = limit.and_then(NonZeroU16::new);
        limit.map(Self).ok_or(LimitError(number))
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Sharing ===

impl Sharing {
    /// The limit that the caller has set, if any.
    pub fn explicit_limit(&self) -> Option<Limit> {
        self.has_slot.then_some(self.limit)
    }

    /// The mode of a request that wants to share the lock in this way, or to be alone: of a lease that is not
    /// granted yet, so without a slot.
    pub fn mode(sharing: Option<Self>) -> Mode {
        match sharing {
            None => Mode::Exclusive,
            Some(_) => Mode::Shared { slot: None },
        }
    }
}

// === impl Mode ===

impl Mode {
    /// Whether the lease shares its lock.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// The slot of the lease, if it has one.
    pub fn slot(self) -> Option<u16> {
        match self {
            Self::Exclusive => None,
            Self::Shared { slot } => slot,
        }
    }

    /// Reads the word, for a lease with this slot.
    pub fn from_word(word: &str, slot: Option<u16>) -> Option<Self> {
        match word {
            "exclusive" => Some(Self::Exclusive),
            "shared" => Some(Self::Shared {
                slot: slot.filter(|slot| *slot < Limit::MAX),
            }),
            _ => None,
        }
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared { .. } => "shared",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_1_to_9999() {
        assert_eq!(Limit::new(1).unwrap().get(), 1);
        assert_eq!(Limit::new(9_999).unwrap().get(), Limit::MAX);
        for number in [0, 10_000, 65_536, 65_537, u64::MAX] {
            assert_eq!(Limit::new(number), Err(LimitError(number)));
        }
    }
    #[test]
    fn a_mode_is_read_as_it_is_written() {
        for mode in [
            Mode::Exclusive,
            Mode::Shared { slot: None },
            Mode::Shared { slot: Some(2) },
        ] {
            assert_eq!(Mode::from_word(mode.as_str(), mode.slot()), Some(mode));
        }
        let beyond = Mode::from_word("shared", Some(Limit::MAX));
        assert_eq!(beyond, Some(Mode::Shared { slot: None }));
        assert_eq!(Mode::from_word("Shared", None), None);
    }
}
