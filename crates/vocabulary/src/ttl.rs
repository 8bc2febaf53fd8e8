//! The TTL of a lease; its hold limit: the longest time for which renewals may keep the lease; and its minimum hold:
//! the shortest time from its grant to the next grant of the lock.

use std::{num::NonZeroU32, time::Duration};

/// The time to live of a lease: 100 ms to 24 hours, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(NonZeroU32);

/// The error for a number that is not a TTL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is {0} ms; a TTL is 100 to 86400000 ms")]
pub struct TtlError(u64);

// === impl Ttl ===

impl Ttl {
    /// The shortest TTL: a shorter lease would end before its holder has read the answer.
    pub const MIN: Self = Self(whole(100));
    /// The longest TTL: a day. There are no leases that never expire.
    pub const MAX: Self = Self(whole(24 * 3_600_000));

    /// Makes a TTL of a number of milliseconds. Fails if the number is not a TTL.
    pub fn from_millis(ms: u64) -> Result<Self, TtlError> {
        let ttl = u32::try_from(ms).ok().and_then(NonZeroU32::new).map(Self);
        let ttl = ttl.filter(|ttl| (Self::MIN..=Self::MAX).contains(ttl));
        ttl.ok_or(TtlError(ms))
    }

    /// The TTL as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.as_millis())
    }

    /// The TTL in milliseconds.
    pub fn as_millis(self) -> u64 {
        self.0.get().into()
    }
}

/// A number of milliseconds in a constant. An `Option` of a number that is never zero takes no more room than the number.
const fn whole(ms: u32) -> NonZeroU32 {
    match NonZeroU32::new(ms) {
        Some(ms) => ms,
        None => panic!("it is not zero"),
    }
}

// === Hold limit ===

/// The hold limit of a lease (`max_hold_ms`): the longest time from the grant for which renewals may keep the lease,
/// measured by the store's clock.
///
/// A hold limit is at most seven days, and at least the TTL of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldLimit(NonZeroU32);

/// Why a number is not a hold limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HoldLimitError {
    /// The number is less than 100 ms, or more than seven days.
    #[error("is {0} ms; a hold limit is 100 to 604800000 ms")]
    OutOfRange(u64),
    /// The hold limit is shorter than the TTL, and would end the lease before its TTL does.
    #[error("is {limit} ms, less than the TTL of {ttl} ms")]
    BelowTtl {
        /// The hold limit in milliseconds.
        limit: u64,
        /// The TTL of the lease in milliseconds.
        ttl: u64,
    },
}

// === impl HoldLimit ===

impl HoldLimit {
    /// The longest hold limit: seven days.
    pub const MAX: Self = Self(whole(7 * 24 * 3_600_000));

    /// Makes a hold limit of a number of milliseconds, for a lease with this TTL. Fails if it is out of range.
    pub fn from_millis(ms: u64, ttl: Ttl) -> Result<Self, HoldLimitError> {
        let limit = u32::try_from(ms).ok().and_then(NonZeroU32::new);
        let limit = limit.filter(|limit| (Ttl::MIN.0..=Self::MAX.0).contains(limit));
        match limit {
            None => Err(HoldLimitError::OutOfRange(ms)),
            Some(limit) if limit < ttl.0 => Err(HoldLimitError::BelowTtl {
                limit: ms,
                ttl: ttl.as_millis(),
            }),
            Some(limit) => Ok(Self(limit)),
        }
    }

    /// The hold limit as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.as_millis())
    }

    /// The hold limit in milliseconds.
    pub fn as_millis(self) -> u64 {
        self.0.get().into()
    }
}

// === Minimum hold ===

/// The minimum hold of a lease (`min_hold_ms`): a lease that is released earlier after its grant leaves a rest, and the
/// lock or the slot is granted to no caller until this time is over, measured by the store's clock.
///
/// A minimum hold is at least 1 ms, and at most the TTL of the lease, so no lease ends with its TTL before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinHold(NonZeroU32);

/// The error for a number that is not a minimum hold: it is zero, or longer than the TTL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is {min_hold} ms; allowed are 1 to {ttl} ms, the TTL of the lease")]
pub struct MinHoldError {
    min_hold: u64,
    ttl: u64,
}

// === impl MinHold ===

impl MinHold {
    /// Makes a minimum hold of a number of milliseconds, for a lease with this TTL. Fails if it is out of range.
    pub fn from_millis(ms: u64, ttl: Ttl) -> Result<Self, MinHoldError> {
        let ttl = ttl.as_millis();
        let in_range = u32::try_from(ms).ok().filter(|_| ms <= ttl);
        let in_range = in_range.and_then(NonZeroU32::new);
        in_range.map(Self).ok_or(MinHoldError { min_hold: ms, ttl })
    }

    /// The minimum hold as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.as_millis())
    }

    /// The minimum hold in milliseconds.
    pub fn as_millis(self) -> u64 {
        self.0.get().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_both_its_limits_and_nothing_beyond() {
        assert_eq!(Ttl::from_millis(100), Ok(Ttl::MIN));
        assert_eq!(Ttl::from_millis(86_400_000), Ok(Ttl::MAX));
        for ms in [0, 99, 86_400_001, u64::MAX] {
            assert_eq!(Ttl::from_millis(ms), Err(TtlError(ms)));
        }
    }

    #[test]
    fn is_never_shorter_than_the_ttl() {
        let ttl = Ttl::from_millis(30_000).unwrap();
        assert!(HoldLimit::from_millis(30_000, ttl).is_ok());
        assert!(HoldLimit::from_millis(604_800_000, ttl).is_ok());
        assert_eq!(
            HoldLimit::from_millis(29_999, ttl),
            Err(HoldLimitError::BelowTtl {
                limit: 29_999,
                ttl: 30_000
            })
        );
        for ms in [0, 99, 604_800_001, u64::MAX] {
            assert_eq!(
                HoldLimit::from_millis(ms, ttl),
                Err(HoldLimitError::OutOfRange(ms))
            );
        }
    }

    #[test]
    fn a_minimum_hold_is_at_most_the_ttl() {
        for ms in [1, 100] {
            assert_eq!(MinHold::from_millis(ms, Ttl::MIN).unwrap().as_millis(), ms);
        }
        for ms in [0, 101] {
            let error = MinHold::from_millis(ms, Ttl::MIN).unwrap_err();
            let text = format!("is {ms} ms; allowed are 1 to 100 ms, the TTL of the lease");
            assert_eq!(error.to_string(), text);
        }
    }
}
