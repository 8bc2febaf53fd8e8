//! The fencing token: the public number of a grant, which is larger for each later grant of the same lock.

use std::fmt;

/// A fencing token: strictly larger for each new grant of a lock name, and unchanged by a renewal.
///
/// A fencing token is between 1 and 2^53 - 1, so that JSON, JavaScript and Lua represent it exactly. Use it only for
/// comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

/// The error for a number that is not a fencing token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is {0}; a fencing token is 1 to 9007199254740991")]
pub struct FenceError(u64);

// === impl FencingToken ===

impl FencingToken {
    /// The largest fencing token, 2^53 - 1. When the counter of a lock has reached it, no further lease of the lock is
    /// granted (`fence-exhausted`).
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Makes a fencing token of a number. Fails if the number is not a fencing token.
    pub fn new(number: u64) -> Result<Self, FenceError> {
        if (1..=Self::MAX.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(FenceError(number))
        }
    }

    /// The fencing token as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_where_a_json_number_is_exact() {
        assert_eq!(FencingToken::new(1).unwrap().get(), 1);
        assert_eq!(FencingToken::new((1 << 53) - 1), Ok(FencingToken::MAX));
        for number in [0, 1 << 53, u64::MAX] {
            assert_eq!(FencingToken::new(number), Err(FenceError(number)));
        }
    }
}
