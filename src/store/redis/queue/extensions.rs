//! Knows which queues are due to have their expiry extended.

use std::collections::HashMap;

use tokio::time::{Duration, Instant};

use crate::lock::LockName;

/// When the expiry of each queue was extended that somebody stands in here.
#[derive(Default)]
pub(crate) struct Extensions {
    last: HashMap<LockName, Instant>,
}

/// How long a queue lasts, as in `parts/lease.lua`, and how often it is given that again: longer than anybody
/// waits and is not asked after.
pub(crate) const QUEUE_LASTS: Duration = Duration::from_hours(25);
const EXTEND_EVERY: Duration = Duration::from_hours(1);

// === impl Extensions ===

impl Extensions {
    /// Those of the queues that were not extended for an hour. What is known of any that is not `awaited` here any
    /// more is forgotten.
    pub(crate) fn due<'a>(
        &mut self,
        names: &'a [LockName],
        awaited: impl Fn(&LockName) -> bool,
    ) -> Vec<&'a LockName> {
        self.last
            .retain(|name, last| last.elapsed() < EXTEND_EVERY && awaited(name));
        let due = names.iter().filter(|name| !self.last.contains_key(*name));
        due.collect()
    }

    /// Notes that a queue was extended.
    pub(crate) fn extended(&mut self, name: &LockName) {
        self.last.insert(name.clone(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn names(names: &[&str]) -> Vec<LockName> {
        let names = names.iter().map(|name| LockName::new(name).unwrap());
        names.collect()
    }

    /// Those that are due, which are extended.
    fn extend(extensions: &mut Extensions, names: &[LockName]) -> Vec<String> {
        let due = extensions.due(names, |name| names.contains(name));
        for name in &due {
            extensions.extended(name);
        }
        due.iter().map(|name| name.as_str().to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_extended_once_an_hour_for_as_long_as_somebody_stands_in_it() {
        let mut extensions = Extensions::default();
        let queues = names(&["first", "second"]);
        assert_eq!(extend(&mut extensions, &queues[..1]), ["first"]);
        advance(Duration::from_mins(30)).await;
        assert_eq!(extend(&mut extensions, &queues), ["second"]);
        for _ in 0..30 {
            advance(Duration::from_mins(30) - Duration::from_secs(2)).await;
            assert_eq!(extend(&mut extensions, &queues), [""; 0]);
            advance(Duration::from_secs(2)).await;
            assert_eq!(extend(&mut extensions, &queues), ["first"]);
            advance(Duration::from_mins(30)).await;
            assert_eq!(extend(&mut extensions, &queues), ["second"]);
        }
        assert!(QUEUE_LASTS > 24 * EXTEND_EVERY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_nobody_stood_in_for_a_while_is_extended_again() {
        let mut extensions = Extensions::default();
        let queues = names(&["left", "stays"]);
        assert_eq!(extend(&mut extensions, &queues), ["left", "stays"]);
        assert_eq!(extend(&mut extensions, &queues[1..]), [""; 0]);
        assert_eq!(extend(&mut extensions, &queues), ["left"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_could_not_be_extended_stays_due() {
        let mut extensions = Extensions::default();
        let queues = names(&["fails"]);
        for _ in 0..2 {
            assert_eq!(extensions.due(&queues, |_| true).len(), 1);
        }
        assert_eq!(extend(&mut extensions, &queues), ["fails"]);
    }
}
