//! The sharing of a lock: the limit, the mode of a lease and its slot.

use std::{fmt, num::NonZeroU16};

/// The limit of a shared lock: how many leases may hold the lock together, 1 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(NonZeroU16);

/// The error for a number that is not a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is {0}; a limit is 1 to 9999")]
pub struct LimitError(u64);

/// The sharing terms of an attempt to acquire a lock together with others.
///
/// The attempt is granted while only shared leases hold the lock, fewer than `limit` of them. The limit is checked only
/// when this attempt is granted: later grants have limits of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// How many leases may hold the lock, the lease of this attempt included.
    pub limit: Limit,
    /// Whether the caller gave the limit, so that the lease gets a slot. If the gateway chose the limit, the lease has
    /// no slot.
    pub has_slot: bool,
}

/// How a lease holds its lock: exclusively or shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// The lease holds the lock alone.
    #[default]
    Exclusive,
    /// The lease holds the lock together with other shared leases.
    Shared {
        /// The slot of the lease, if its request had a limit: the smallest number from 0 that no other lease of the
        /// lock had at the time of the grant. The slot is always below the limit.
        slot: Option<u16>,
    },
}

// === impl Limit ===

impl Limit {
    /// The largest limit.
    pub const MAX: u16 = 9_999;

    /// Makes a limit of a number. Fails if the number is not a limit.
    pub fn new(number: u64) -> Result<Self, LimitError> {
        let limit = u16::try_from(number)
            .ok()
            .filter(|limit| *limit <= Self::MAX);
        let limit = limit.and_then(NonZeroU16::new);
        limit.map(Self).ok_or(LimitError(number))
    }

    /// The limit as a number.
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
    /// The limit that the caller gave, if it gave one.
    pub fn explicit_limit(&self) -> Option<Limit> {
        self.has_slot.then_some(self.limit)
    }

    /// The mode that an attempt requests: shared if it has sharing terms, otherwise exclusive. There is no slot yet,
    /// because no lease is granted.
    pub fn mode(sharing: Option<Self>) -> Mode {
        match sharing {
            None => Mode::Exclusive,
            Some(_) => Mode::Shared { slot: None },
        }
    }
}

// === impl Mode ===

impl Mode {
    /// Whether the lease holds its lock together with other shared leases.
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

    /// Parses the word for a mode on the wire (`exclusive` or `shared`). A shared mode gets this slot.
    pub fn from_word(word: &str, slot: Option<u16>) -> Option<Self> {
        match word {
            "exclusive" => Some(Self::Exclusive),
            "shared" => Some(Self::Shared {
                slot: slot.filter(|slot| *slot < Limit::MAX),
            }),
            _ => None,
        }
    }

    /// The word for the mode on the wire: `exclusive` or `shared`.
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
