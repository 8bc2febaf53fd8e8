//! The schedule of faults, which follows from a seed.

use std::{fmt, time::Duration};

use super::Fault;
use crate::random::Random;

/// The schedule of faults, one after the other.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) blows: Vec<Blow>,
}

/// A planned fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blow {
    /// When the fault begins, counted from the beginning of the run, or later if the fault before took longer.
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
    /// A random number that chooses the target.
    pub(crate) choice: usize,
}

/// The time before the first fault, which shows the healthy service.
const WARM_UP: Duration = Duration::from_secs(8);
/// After how many faults there is a longer pause, unless the run is short, and its length: longer than the effects of a
/// fault may last.
const PAUSE: (usize, Duration) = (10, Duration::from_secs(14));
const SHORT: Duration = Duration::from_secs(90);
/// The pause between faults, in ms: the least time, and how much more it may be.
const CALM: (usize, usize) = (1_000, 1_500);
/// The time of a run that is left after the last fault.
const COOL_DOWN: Duration = Duration::from_secs(5);

// === impl Plan ===

impl Plan {
    /// A plan in which each kind of fault comes once before any comes twice.
    pub(crate) fn draw(
        faults: &[Fault],
        lasts: Duration,
        calm: Option<Duration>,
        random: &mut Random,
    ) -> Self {
        let mut blows = Vec::new();
        let mut deck = Vec::new();
        let mut at = WARM_UP;
        loop {
            if deck.is_empty() {
                faults.clone_into(&mut deck);
            }
            let Some(choice) = random.below(deck.len().max(1)).checked_rem(deck.len()) else {
                break;
            };
            let fault = deck.swap_remove(choice);
            let (least, more) = fault.lasts();
            let blow = Blow {
                at,
                fault,
                lasts: millis(least + random.below(more)),
                choice: random.below(usize::MAX),
            };
            let usual = millis(CALM.0 + random.below(CALM.1));
            at += blow.lasts + calm.unwrap_or(usual);
            if at + COOL_DOWN > lasts {
                break;
            }
            blows.push(blow);
            if blows.len().is_multiple_of(PAUSE.0) && lasts > SHORT {
                at += PAUSE.1;
            }
        }
        Self { blows }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for blow in &self.blows {
            let (at, lasts) = (blow.at.as_secs_f64(), blow.lasts.as_millis());
            writeln!(f, "{at:>7.1} s  {} for {lasts} ms", blow.fault.name())?;
        }
        Ok(())
    }
}

fn millis(ms: usize) -> Duration {
    Duration::from_millis(u64::try_from(ms).expect("a short while"))
}
