//! How long to pause before a request is sent again.

use std::time::Duration;

use crate::lock::renewal::random_fraction;

/// The longest first pause, which doubles with every copy.
const BASE: Duration = Duration::from_millis(200);
/// The longest pause of all.
const MOST: Duration = Duration::from_secs(2);

/// Longer than this no gateway needs to be left alone, whatever it asks for.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// A pause before copy number `copy` (the first to be sent again is 1): anything up to the longest,
/// so that clients whose gateway came back do not come all at once.
pub(crate) fn pause(copy: u32) -> Duration {
    longest(copy).mul_f64(random_fraction())
}

fn longest(copy: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(copy.saturating_sub(1));
    BASE.saturating_mul(doubled).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let longest: Vec<_> = [1, 2, 3, 99]
            .map(longest)
            .map(|pause| pause.as_millis())
            .into();
        assert_eq!(longest, [200, 400, 800, 2_000]);
        assert!((0..100).all(|_| pause(1) <= BASE));
    }
}
