//! Timers for locks with a waiter here, which fire when the lease ends, and for kept positions, which fire when they
//! must be given up; and the releases of orphaned attempts.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, sleep_until},
};
use tracing::warn;

use crate::{
    lock::{FencingToken, LockName, RecipientId, TokenHash},
    store::partition::{Partition, PartitionedCommands},
};

/// An attempt without a caller at this gateway, which may still hold a lock or a position.
#[derive(Debug, Clone)]
pub(crate) struct OrphanedAttempt {
    pub(crate) name: LockName,
    pub(crate) token: TokenHash,
    pub(crate) kind: OrphanKind,
}

/// Which grant or position of an orphaned attempt must be released.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OrphanKind {
    /// The grant with this fence. If the attempt received the grant in another way, it keeps the grant.
    Grant(FencingToken),
    /// The attempt has ended, and another server has taken over since. Its position in the queue there must be
    /// released, or the grant with this fence, which this recipient may have adopted.
    Departed(Option<FencingToken>, Option<RecipientId>),
}

/// Timers by key: at most one for each key, which fires at the earliest time that was set.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    timers: Mutex<Schedule<K>>,
    sooner: Notify,
}

#[derive(Debug)]
struct Schedule<K> {
    by_due: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
}

/// How many orphaned attempts may wait for their release, and how many kept positions may have timers. If more attempts
/// are orphaned, their leases end with their TTL.
pub(crate) const BACKLOG: usize = 16_384;
/// Added to the time of each timer, because Redis counts in milliseconds and deletes a key only after its expiry has
/// passed.
const MARGIN: Duration = Duration::from_millis(2);

// === impl Timers ===

impl<K: Clone + Ord + Hash> Timers<K> {
    /// Sets a timer that fires after `left`, unless an earlier timer is set. A timer that fires too early does no harm:
    /// its action reads how much time is left.
    pub(crate) fn set(&self, name: &K, left: Duration) {
        let due = Instant::now() + left + MARGIN;
        let mut schedule = self.timers.lock();
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

    /// How many timers are set now.
    pub(crate) fn len(&self) -> usize {
        self.timers.lock().due.len()
    }

    /// Waits for the next due timer. The timer counts as set until [begin](Self::begin) is called for its key. Safe to
    /// drop and call again.
    pub(crate) async fn next(&self) -> K {
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

    /// Takes the key of a due timer; if no timer is due, returns when the next timer is due.
    fn take_due(&self) -> Result<K, Option<Instant>> {
        let mut schedule = self.timers.lock();
        match schedule.by_due.first() {
            Some((due, _)) if *due <= Instant::now() => {}
            first => return Err(first.map(|(due, _)| *due)),
        }
        let first = schedule.by_due.pop_first();
        let (_, name) = first.expect("the first was just looked at");
        Ok(name)
    }

    /// Marks the timer of a key as handled. A timer that is set from now on fires again.
    fn begin(&self, name: &K) {
        self.timers.lock().due.remove(name);
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

// The actions of due timers, and how many of them run at once.

/// The timers and orphaned attempts that need actions.
pub(crate) struct DueEvents<'a> {
    /// Timers for the ends of leases whose locks have a waiter here.
    pub(crate) ends: &'a Timers<LockName>,
    /// Timers for the ends of kept positions.
    pub(crate) kept: &'a Timers<(LockName, TokenHash)>,
    /// Orphaned attempts, whose grants and positions must be released.
    pub(crate) orphans: mpsc::Receiver<OrphanedAttempt>,
}

/// The actions of due timers and orphaned attempts.
pub(crate) trait TimerActions: Sync {
    /// The partition of a lock: actions in one partition do not wait for another partition.
    fn partition(&self, name: &LockName) -> Partition;
    /// Passes a lock on to its next waiter after its lease has ended.
    fn advance(&self, name: LockName) -> BoxFuture<'_, ()>;
    /// Gives up a kept position whose caller has not come back.
    fn lapse(&self, name: LockName, token: TokenHash) -> BoxFuture<'_, ()>;
    /// Releases what an orphaned attempt holds. Answers the attempt if the release must be tried again.
    fn give_back(&self, orphan: OrphanedAttempt) -> BoxFuture<'_, Option<OrphanedAttempt>>;
}

/// How many commands that pass locks on are in progress at once at each server: enough to fill a pipeline, and too few
/// to delay callers after an outage.
const PASSING_ON: usize = 64;
/// How many releases of orphaned attempts are in progress at once at each server. A release is as urgent as passing a
/// lock on, because it frees an unused lock.
const GIVING_BACK: usize = 64;
/// How many commands that give up kept positions are in progress at once at each server. The limit is low and separate
/// from the other limits: many kept positions fall due together, and no caller waits for these commands.
const LAPSING: usize = 16;
/// Pause before a failed release of an orphaned attempt is repeated: the first pause and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Runs the actions of due timers and orphaned attempts, until the future is dropped.
pub(crate) async fn run_timers(mut due: DueEvents<'_>, actions: &impl TimerActions) {
    let mut passing_on = PartitionedCommands::new(PASSING_ON, |name| {
        due.ends.begin(&name);
        actions.advance(name)
    });
    // Answers an attempt that could not be released, and the pause before the next try.
    let mut giving_back = PartitionedCommands::new(GIVING_BACK, |(orphan, pause)| {
        async move { Some((actions.give_back(orphan).await?, pause)) }.boxed()
    });
    let mut lapsing = PartitionedCommands::new(LAPSING, |place: (LockName, TokenHash)| {
        due.kept.begin(&place);
        actions.lapse(place.0, place.1)
    });
    let mut pausing = FuturesUnordered::new();
    loop {
        tokio::select! {
            name = due.ends.next() => passing_on.push(actions.partition(&name), name),
            Some(orphan) = due.orphans.recv(), if giving_back.waiting() < BACKLOG => {
                giving_back.push(actions.partition(&orphan.name), (orphan, RETRY.0));
            }
            Some((orphan, pause)) = pausing.next() => {
                let orphan: OrphanedAttempt = orphan;
                giving_back.push(actions.partition(&orphan.name), (orphan, pause));
            }
            place = due.kept.next() => lapsing.push(actions.partition(&place.0), place),
            Some(()) = passing_on.next(), if !passing_on.is_empty() => {}
            Some(failed) = giving_back.next(), if !giving_back.is_empty() => match failed {
                None => {}
                Some((OrphanedAttempt { name, .. }, _)) if pausing.len() >= BACKLOG => {
                    warn!(%name, "a grant without a waiter is left to its TTL");
                }
                Some((orphan, pause)) => pausing.push(async move {
                    sleep(pause).await;
                    (orphan, (pause * 2).min(RETRY.1))
                }),
            },
            Some(()) = lapsing.next(), if !lapsing.is_empty() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use crate::lock::Token;

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
            // The action has not begun yet, so the timer still counts as set.
            timers.set(&name(text), Duration::ZERO);
            timers.begin(&name(text));
        }
        assert!(timers.timers.lock().due.is_empty());
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

    /// Actions on a slow server: `lapse` never ends, and `give_back` fails as often as `failures` says.
    #[derive(Default)]
    struct Slow {
        ends: Timers<LockName>,
        kept: Timers<(LockName, TokenHash)>,
        passed_on: Mutex<Vec<(LockName, Instant)>>,
        lapsing: Mutex<usize>,
        failures: Mutex<usize>,
        given_back: Mutex<Vec<Instant>>,
    }

    /// Prefix of names of locks at a server that never answers.
    const AWAY: &str = "away";

    impl TimerActions for Slow {
        fn partition(&self, name: &LockName) -> Partition {
            Partition::one_of(if name.as_str().starts_with(AWAY) {
                1
            } else {
                2
            })
        }

        fn advance(&self, name: LockName) -> BoxFuture<'_, ()> {
            if name.as_str().starts_with(AWAY) {
                return std::future::pending().boxed();
            }
            self.passed_on.lock().push((name, Instant::now()));
            async {}.boxed()
        }

        fn lapse(&self, _name: LockName, _token: TokenHash) -> BoxFuture<'_, ()> {
            *self.lapsing.lock() += 1;
            std::future::pending().boxed()
        }

        fn give_back(&self, orphan: OrphanedAttempt) -> BoxFuture<'_, Option<OrphanedAttempt>> {
            if orphan.name.as_str().starts_with(AWAY) {
                return std::future::pending().boxed();
            }
            let mut failures = self.failures.lock();
            if let Some(left) = failures.checked_sub(1) {
                *failures = left;
                return async { Some(orphan) }.boxed();
            }
            self.given_back.lock().push(Instant::now());
            async { None }.boxed()
        }
    }

    fn orphan(name: LockName) -> OrphanedAttempt {
        OrphanedAttempt {
            name,
            token: Token::random().hash(),
            kind: OrphanKind::Grant(FencingToken::new(7).unwrap()),
        }
    }

    // === impl Slow ===

    impl Slow {
        /// Runs the timers for some seconds.
        async fn act(&self, orphans: mpsc::Receiver<OrphanedAttempt>, seconds: u64) {
            let (ends, kept) = (&self.ends, &self.kept);
            let due = DueEvents {
                ends,
                kept,
                orphans,
            };
            let acting = timeout(Duration::from_secs(seconds), run_timers(due, self)).await;
            assert!(acting.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_given_back_is_tried_again_and_keeps_nothing_else_from_being() {
        let slow = Slow::default();
        let (orphaned, orphans) = mpsc::channel(GIVING_BACK + 1);
        // Each attempt fails five times, with pauses of 100, 200, 400, 800 and 1,600 ms.
        *slow.failures.lock() = 5 * GIVING_BACK;
        for _ in 0..GIVING_BACK {
            orphaned.try_send(orphan(name("lock"))).unwrap();
        }
        let begun = Instant::now();
        let another = async {
            sleep(Duration::from_millis(50)).await;
            let failures = std::mem::take(&mut *slow.failures.lock());
            orphaned.try_send(orphan(name("lock"))).unwrap();
            sleep(Duration::from_millis(1)).await;
            assert_eq!(slow.given_back.lock().len(), 1);
            *slow.failures.lock() = failures;
        };
        tokio::join!(slow.act(orphans, 10), another);
        let given_back = slow.given_back.lock().clone();
        assert_eq!(given_back.len(), GIVING_BACK + 1);
        let last = *given_back.last().unwrap() - begun;
        assert!(
            (Duration::from_millis(3_100)..Duration::from_millis(3_200)).contains(&last),
            "{last:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_kept_places_delays_no_hand_off() {
        let slow = Slow::default();
        let (_orphaned, orphans) = mpsc::channel(1);
        for _ in 0..1_000 {
            let place = (name("crowded"), Token::random().hash());
            slow.kept.set(&place, Duration::ZERO);
        }
        let begun = Instant::now();
        slow.ends.set(&name("lock"), Duration::from_secs(1));
        slow.act(orphans, 2).await;
        let passed_on = slow.passed_on.lock().clone();
        let [(passed, at)] = &passed_on[..] else {
            panic!("{passed_on:?}");
        };
        assert_eq!(*passed, name("lock"));
        assert!(*at - begun < Duration::from_millis(1_100), "{passed_on:?}");
        assert_eq!(*slow.lapsing.lock(), LAPSING);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_delays_nothing_at_another() {
        let slow = Slow::default();
        let (orphaned, orphans) = mpsc::channel(BACKLOG);
        for n in 0..1_000 {
            let away = name(&format!("{AWAY}-{n}"));
            slow.ends.set(&away, Duration::ZERO);
            slow.kept
                .set(&(away.clone(), Token::random().hash()), Duration::ZERO);
            orphaned.try_send(orphan(away)).unwrap();
        }
        slow.ends.set(&name("lock"), Duration::from_millis(10));
        slow.kept.set(
            &(name("lock"), Token::random().hash()),
            Duration::from_millis(10),
        );
        orphaned.try_send(orphan(name("lock"))).unwrap();
        slow.act(orphans, 1).await;
        assert_eq!(slow.passed_on.lock().len(), 1);
        assert_eq!(slow.given_back.lock().len(), 1);
        assert_eq!(*slow.lapsing.lock(), LAPSING + 1);
        // A timer whose action waits for its turn is not set again.
        assert_eq!(slow.ends.len(), 1_000 - PASSING_ON);
        slow.ends.set(&name(&format!("{AWAY}-999")), Duration::ZERO);
        assert_eq!(slow.ends.len(), 1_000 - PASSING_ON);
    }
}
