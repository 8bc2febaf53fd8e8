//! When to look after what: a lock, as soon as the lease ends of which somebody here waits; a place that
//! is kept, when its time is over.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// One timer for each, however often it is set.
#[derive(Debug)]
pub(super) struct Timers<K> {
    timers: Mutex<Schedule<K>>,
    sooner: Notify,
}

#[derive(Debug)]
struct Schedule<K> {
    by_due: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
}

/// Redis counts in milliseconds, and a key is gone when its instant has passed.
const MARGIN: Duration = Duration::from_millis(2);

// === impl Timers ===

impl<K: Clone + Ord + Hash> Timers<K> {
    /// Looks after it when `left` has passed, unless it is looked after earlier anyway. Too early does
    /// no harm: whoever looks finds out what is left.
    pub(super) fn set(&self, name: &K, left: Duration) {
        let due = Instant::now() + left + MARGIN;
        let mut schedule = self.lock();
        if schedule.due.get(name).is_some_and(|&before| before <= due) {
            return;
        }
        if let Some(before) = schedule.due.insert(name.clone(), due) {
            schedule.by_due.remove(&(before, name.clone()));
        }
        schedule.by_due.insert((due, name.clone()));
        let first = schedule.by_due.first();
        let sooner = first.is_some_and(|(_, first)| first == name);
        drop(schedule);
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// How many are set.
    pub(super) fn len(&self) -> usize {
        self.lock().due.len()
    }

    /// Waits for the next that is due. Safe to drop and call again.
    pub(super) async fn next(&self) -> K {
        loop {
            let due = match self.take_due() {
                Ok(name) => return name,
                Err(due) => due,
            };
            let until_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = until_due => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    /// One that is due; or when the next one will be.
    fn take_due(&self) -> Result<K, Option<Instant>> {
        let mut schedule = self.lock();
        match schedule.by_due.first() {
            Some((due, _)) if *due <= Instant::now() => {}
            first => return Err(first.map(|(due, _)| *due)),
        }
        let first = schedule.by_due.pop_first();
        let (_, name) = first.expect("the first was just looked at");
        schedule.due.remove(&name);
        Ok(name)
    }

    fn lock(&self) -> MutexGuard<'_, Schedule<K>> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        let timers = Mutex::new(Schedule {
            by_due: BTreeSet::new(),
            due: HashMap::new(),
        });
        Self {
            timers,
            sooner: Notify::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::LockName;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn names_come_when_they_are_due_each_once_and_at_its_earliest() {
        let timers = Timers::default();
        let start = Instant::now();
        for (text, seconds) in [("a", 9), ("b", 5), ("a", 3), ("a", 7)] {
            timers.set(&name(text), Duration::from_secs(seconds));
        }
        for (text, seconds) in [("a", 3), ("b", 5)] {
            assert_eq!(timers.next().await, name(text));
            assert_eq!(start.elapsed(), Duration::from_secs(seconds) + MARGIN);
        }
        assert!(timers.lock().due.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_due_sooner_cuts_the_wait_short() {
        let timers = Timers::default();
        timers.set(&name("late"), Duration::from_mins(1));
        let start = Instant::now();
        let (first, ()) = tokio::join!(timers.next(), async {
            tokio::task::yield_now().await;
            timers.set(&name("soon"), Duration::from_secs(1));
        });
        assert_eq!(first, name("soon"));
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}
