//! What is done when something falls due, and how much of it at once.

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::mpsc;

use crate::lock::{LockName, TokenHash};

use super::{gateway::OrphanedGrant, timers::Timers};

/// What may fall due.
pub(super) struct DueEvents<'a> {
    /// Ends of leases of which somebody here waits.
    pub(super) ends: &'a Timers<LockName>,
    /// Ends of places that are kept.
    pub(super) kept: &'a Timers<(LockName, TokenHash)>,
    /// Grants that nobody waits for any more.
    pub(super) orphans: mpsc::Receiver<OrphanedGrant>,
}

/// What is done then.
pub(super) trait TimerActions {
    /// Passes a lock on whose lease has ended.
    fn advance(&self, name: LockName) -> BoxFuture<'_, ()>;
    /// Gives up a place that was kept.
    fn lapse(&self, name: LockName, token: TokenHash) -> BoxFuture<'_, ()>;
    /// Gives back a grant that nobody waits for.
    fn give_back(&self, orphan: OrphanedGrant) -> BoxFuture<'_, ()>;
}

/// How many commands that pass locks on are under way at once: enough to fill a pipeline, too few to
/// crowd out callers after an outage.
const PASSING_ON: usize = 64;
/// The same for those that free locks nobody uses: each is as urgent, and comes without a timer.
const GIVING_BACK: usize = 64;
/// The same for places that are given up. They have room of their own, and little: a crowd of them
/// falls due together, and nobody waits for what comes of it.
const LAPSING: usize = 16;

/// Does what falls due, for ever.
pub(super) async fn run_timers(mut due: DueEvents<'_>, actions: &impl TimerActions) {
    let mut passing_on = FuturesUnordered::new();
    let mut giving_back = FuturesUnordered::new();
    let mut lapsing = FuturesUnordered::new();
    loop {
        tokio::select! {
            name = due.ends.next(), if passing_on.len() < PASSING_ON => {
                passing_on.push(actions.advance(name));
            }
            Some(orphan) = due.orphans.recv(), if giving_back.len() < GIVING_BACK => {
                giving_back.push(actions.give_back(orphan));
            }
            (name, token) = due.kept.next(), if lapsing.len() < LAPSING => {
                lapsing.push(actions.lapse(name, token));
            }
            Some(()) = passing_on.next(), if !passing_on.is_empty() => {}
            Some(()) = giving_back.next(), if !giving_back.is_empty() => {}
            Some(()) = lapsing.next(), if !lapsing.is_empty() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, PoisonError},
        time::Duration,
    };

    use futures_util::FutureExt;
    use tokio::time::{Instant, timeout};

    use crate::lock::Token;

    use super::*;

    /// Deeds of which those that only clear up never come to an end: the server answers slowly.
    #[derive(Default)]
    struct Slow {
        passed_on: Mutex<Vec<(LockName, Instant)>>,
        lapsing: Mutex<usize>,
    }

    fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
        of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    impl TimerActions for Slow {
        fn advance(&self, name: LockName) -> BoxFuture<'_, ()> {
            lock(&self.passed_on).push((name, Instant::now()));
            async {}.boxed()
        }

        fn lapse(&self, _name: LockName, _token: TokenHash) -> BoxFuture<'_, ()> {
            *lock(&self.lapsing) += 1;
            std::future::pending().boxed()
        }

        fn give_back(&self, _orphan: OrphanedGrant) -> BoxFuture<'_, ()> {
            std::future::pending().boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_kept_places_delays_no_hand_off() {
        let (ends, kept) = (Timers::default(), Timers::default());
        let (_orphaned, orphans) = mpsc::channel(1);
        let name = |text: &str| LockName::new(text).unwrap();
        for _ in 0..1_000 {
            let place = (name("crowded"), Token::random().hash());
            kept.set(&place, Duration::ZERO);
        }
        let begun = Instant::now();
        ends.set(&name("lock"), Duration::from_secs(1));
        let due = DueEvents {
            ends: &ends,
            kept: &kept,
            orphans,
        };
        let slow = Slow::default();
        let acting = timeout(Duration::from_secs(2), run_timers(due, &slow)).await;
        assert!(acting.is_err());
        let passed_on = lock(&slow.passed_on).clone();
        let [(passed, at)] = &passed_on[..] else {
            panic!("{passed_on:?}");
        };
        assert_eq!(*passed, name("lock"));
        assert!(*at - begun < Duration::from_millis(1_100), "{passed_on:?}");
        assert_eq!(*lock(&slow.lapsing), LAPSING);
    }
}
