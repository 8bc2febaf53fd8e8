//! What holds of a lease that one node tells.

use std::time::Duration;

use crate::lock::{HeldLease, Token};

/// What a record says for its fence until the second round has named it, as in `reserve.lua`.
const UNRATIFIED: u64 = 1;

/// Whether the second round has named the fence of a lease.
pub(super) fn is_ratified(lease: &HeldLease) -> bool {
    lease.fence.get() > UNRATIFIED
}

// === Nonce ===
//
// Tells the tries of one attempt apart.

/// The identity of one try to acquire. An attempt that tries again does so under another: else what is
/// still on its way of one try would count for the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nonce(Box<str>);

/// How many hexadecimal digits it has: 128 bits.
const LENGTH: usize = 32;

// === impl Nonce ===

impl Nonce {
    pub(super) fn random() -> Self {
        let digits = Token::random().hash().to_string();
        Self(digits[..LENGTH].into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

// === Validity ===
//
// For how long a lease may be relied on that some nodes have.

/// What may be relied on of a time that a node has told: clocks run apart by up to a hundredth, and a
/// key is gone up to 2 ms before or after its instant.
pub(super) fn validity(reported: Duration, spent: Duration) -> Duration {
    let drift = reported / 100 + Duration::from_millis(2);
    reported.saturating_sub(drift).saturating_sub(spent)
}

/// For how long at least so many of these will last.
pub(super) fn majority_validity(lefts: Vec<Duration>, majority: usize) -> Duration {
    least_of_majority(lefts, majority).unwrap_or_default()
}

/// What at least so many of these come to, or all if there are fewer; `None` if there are none.
pub(super) fn least_of_majority<T: Ord + Copy>(mut values: Vec<T>, majority: usize) -> Option<T> {
    values.sort_unstable_by(|a, b| b.cmp(a));
    let least = values.get(majority - 1).or(values.last());
    least.copied()
}

/// Milliseconds, and the one that has begun.
pub(super) fn begun_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).map_or(u64::MAX, |ms| ms.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn is_what_is_left_without_drift_and_the_time_that_it_took() {
        assert_eq!(validity(ms(30_000), ms(50)), ms(30_000 - 302 - 50));
        assert_eq!(validity(ms(100), ms(97)), Duration::ZERO);
        assert_eq!(validity(ms(100), ms(96)), ms(1));
    }

    #[test]
    fn ends_when_the_first_of_the_majority_ends() {
        assert_eq!(majority_validity(vec![ms(3), ms(9), ms(5)], 2), ms(5));
        assert_eq!(
            majority_validity(vec![ms(3), ms(9), ms(5), ms(1), ms(7)], 3),
            ms(5)
        );
        // Where some of the majority have not answered.
        assert_eq!(majority_validity(vec![ms(9)], 2), ms(9));
        assert_eq!(majority_validity(Vec::new(), 2), Duration::ZERO);
    }
}
