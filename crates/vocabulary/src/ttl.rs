//! How long a grant lasts.

use std::time::Duration;

/// The time to live of a lease: 100 ms to 24 hours, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

/// The number is no time to live.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is {0} ms; a TTL is 100 to 86400000 ms")]
pub struct TtlError(u64);

// === impl Ttl ===

impl Ttl {
    /// The shortest: below it a lease is over before its holder has read the answer.
    pub const MIN: Self = Self(Duration::from_millis(100));
    /// The longest. There is no lock without an expiry.
    pub const MAX: Self = Self(Duration::from_hours(24));

    /// Takes a number of milliseconds.
    pub fn from_millis(ms: u64) -> Result<Self, TtlError> {
        let ttl = Self(Duration::from_millis(ms));
        if ttl < Self::MIN || ttl > Self::MAX {
            Err(TtlError(ms))
        } else {
            Ok(ttl)
        }
    }

    /// The TTL as a duration.
    pub fn duration(self) -> Duration {
        self.0
    }

    /// The TTL in milliseconds.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).expect("a TTL is at most a day")
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
}
