//! When to look after which lock: as soon as the lease ends of which somebody here waits.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::lock::LockName;

/// One timer for each name, however many wait for it.
#[derive(Debug, Default)]
pub(super) struct Timers {
    timers: Mutex<Schedule>,
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Schedule {
    by_due: BTreeSet<(Instant, LockName)>,
    due: HashMap<LockName, Instant>,
}

/// Redis counts in milliseconds, and a key is gone when its instant has passed.
const MARGIN: Duration = Duration::from_millis(2);

// === impl Timers ===

impl Timers {
    /// Looks after a lock when `left` has passed, unless it is looked after earlier anyway. Too
    /// early does no harm: whoever looks finds out what is left.
    pub(super) fn set(&self, name: &LockName, left: Duration) {
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

    /// Waits for the next name that is due. Safe to drop and call again.
    pub(super) async fn next(&self) -> LockName {
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

    /// A name that is due; or when the next one will be.
    fn take_due(&self) -> Result<LockName, Option<Instant>> {
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

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
