//! When which fault strikes: all of it follows from a seed.

use std::{fmt, time::Duration};

use super::Fault;
use crate::random::Random;

/// When which fault strikes, one after the other.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) blows: Vec<Blow>,
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blow {
    /// From the beginning, or a while after the one before if that took longer.
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
    /// Which of several it strikes.
    pub(crate) choice: usize,
}

/// What is to be seen of a healthy service, before the first fault.
const WARM_UP: Duration = Duration::from_secs(8);
/// After how many faults there is a longer pause, if the run is not short, and how long: longer than any of
/// them may be felt.
const PAUSE: (usize, Duration) = (10, Duration::from_secs(14));
const SHORT: Duration = Duration::from_secs(90);
/// How long there is no fault, in ms: at least, and how much longer at most.
const CALM: (usize, usize) = (1_000, 1_500);
/// What is left of the time after the last fault.
const COOL_DOWN: Duration = Duration::from_secs(5);

// === impl Plan ===

impl Plan {
    /// A plan in which each fault comes once before one comes twice.
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
