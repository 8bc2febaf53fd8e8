//! The rules for renewing a lease, which gateways and clients share: when to renew, and until when a lease certainly
//! lasts.

use std::time::Duration;

use tokio::time::Instant;

/// The instant until which a lease certainly lasts, if a request was sent at the instant `sent` and its answer reported
/// the time `left`.
///
/// The clocks of a store and of its callers run at different speeds. The safety margin for that is the one of the
/// Redlock algorithm: a hundredth of the time left, and 2 ms.
#[must_use]
pub fn certain_until(sent: Instant, left: Duration) -> Instant {
    let drift = left / 100 + Duration::from_millis(2);
    sent + left.saturating_sub(drift)
}

/// The period of a repeated action, shortened at random by up to a tenth, so that leases that were granted together are
/// not always renewed at the same moment.
#[must_use]
pub fn spread(period: Duration) -> Duration {
    period.mul_f64(1.0 - 0.1 * random_fraction())
}

/// A random number from 0 to 1; 1 if the system has no random bytes.
#[must_use]
pub fn random_fraction() -> f64 {
    getrandom::u32().map_or(1.0, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_for_certain_a_hundredth_and_2_ms_less_than_its_store_said() {
        let (sent, ms) = (Instant::now(), Duration::from_millis);
        assert_eq!(certain_until(sent, ms(30_000)), sent + ms(29_698));
        assert_eq!(certain_until(sent, ms(1)), sent, "never before it was sent");
    }

    #[test]
    fn a_period_is_spread_over_its_last_tenth() {
        let ten = Duration::from_secs(10);
        let periods: Vec<_> = (0..100).map(|_| spread(ten)).collect();
        assert!(periods.iter().all(|it| (ten * 9 / 10..=ten).contains(it)));
        assert!(periods.iter().any(|it| *it != periods[0]));
    }
}
