//! Counters that several clients share.

use std::{
    collections::BTreeMap,
    fmt::{Display, Formatter, Result},
    sync::Mutex,
    time::Duration,
};

/// Counters by name, and the longest of the times that were reported under each name.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    longest: Mutex<BTreeMap<&'static str, Duration>>,
}

// === impl Tally ===

impl Tally {
    /// Increments a counter.
    pub(crate) fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
    }

    /// Stores a time if it is the longest so far.
    pub(crate) fn took(&self, what: &'static str, time: Duration) {
        let mut longest = self.longest.lock().unwrap();
        let longest = longest.entry(what).or_default();
        *longest = time.max(*longest);
    }

    /// The value of a counter.
    pub(crate) fn total(&self, what: &str) -> u64 {
        let counts = self.counts.lock().unwrap();
        counts.get(what).copied().unwrap_or_default()
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (what, count) in &*self.counts.lock().unwrap() {
            writeln!(f, "{count:>8}  {what}")?;
        }
        for (what, time) in &*self.longest.lock().unwrap() {
            writeln!(f, "{:>6}ms  {what}, the longest", time.as_millis())?;
        }
        Ok(())
    }
}
