//! Room for releases that go on without the connections that they came on.
//!
//! Nobody waits for their answers, and nothing holds back who sends them: a connection costs its client
//! nothing any more once it is gone. So they must not take the room of releases whose callers do wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;

use crate::{lifecycle::Lifecycle, telemetry::metrics::Metrics};

/// Room for releases without a connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct CarryingRoom {
    /// For those that are worked on.
    working: Arc<Semaphore>,
    /// For those that have not begun, and wait until they are worked on.
    waiting: Arc<Semaphore>,
    metrics: Metrics,
    lifecycle: Lifecycle,
}

/// The same for what came on one connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Carrier {
    all: CarryingRoom,
    room: Arc<Semaphore>,
}

/// The part of the room that is kept for releases which those do not take whose callers have gone.
const KEPT: usize = 2;
/// How many may wait: each costs no more than the head of its request. Callers that hang up while the
/// gateway does not run are all found together when it goes on.
const MOST_WAITING: usize = 1_024;
/// How many may go on that came on one connection: over HTTP/2 it bears many requests, and whoever gives
/// them up one after the other must leave room to others. A client that ends gives back no more at once.
const MOST_OF_CONNECTION: usize = 64;

// === impl CarryingRoom ===

impl CarryingRoom {
    /// `reserved` releases have room of their own.
    pub(super) fn new(reserved: usize, metrics: Metrics, lifecycle: &Lifecycle) -> Self {
        Self {
            working: Arc::new(Semaphore::new((reserved / KEPT).max(1))),
            waiting: Arc::new(Semaphore::new(MOST_WAITING)),
            metrics,
            lifecycle: lifecycle.clone(),
        }
    }

    /// The room for what comes on one connection.
    pub(super) fn of_connection(&self) -> Carrier {
        Carrier {
            all: self.clone(),
            room: Arc::new(Semaphore::new(MOST_OF_CONNECTION)),
        }
    }
}

// === impl Carrier ===

impl Carrier {
    /// Goes on with a release in a task of its own, if there is room.
    ///
    /// One that has begun is not to wait: it may keep others from being worked on. What the store was
    /// asked already goes on without it.
    pub(super) fn carry<F>(&self, release: F, has_begun: bool)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let room = self.take(has_begun);
        self.all.metrics.release_abandoned(room.is_some());
        let Some((of_connection, turn)) = room else {
            debug!("the caller of a release has hung up, and there is no room to go on with it");
            return;
        };
        debug!("the caller of a release has hung up; it is carried out all the same");
        let working = Arc::clone(&self.all.working);
        self.all.lifecycle.spawn(async move {
            let _turn = match turn {
                Turn::Now(turn) => turn,
                Turn::Later(place) => {
                    let turn = working.acquire_owned().await;
                    drop(place);
                    turn.expect("the room is never closed")
                }
            };
            release.await;
            drop(of_connection);
        });
    }

    fn take(&self, has_begun: bool) -> Option<(OwnedSemaphorePermit, Turn)> {
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_owned().ok();
        let of_connection = take(&self.room)?;
        let turn = match take(&self.all.working) {
            Some(turn) => Turn::Now(turn),
            None if has_begun => return None,
            None => Turn::Later(take(&self.all.waiting)?),
        };
        Some((of_connection, turn))
    }
}

/// When a release is worked on.
enum Turn {
    Now(OwnedSemaphorePermit),
    /// When there is room; until then it takes this.
    Later(OwnedSemaphorePermit),
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::time::timeout;

    use crate::telemetry::metrics::Figures;

    use super::*;

    /// Releases that all wait for the store, and how many have been carried out.
    struct Rig {
        room: CarryingRoom,
        store: Arc<Semaphore>,
        under_way: Arc<AtomicUsize>,
        done: Arc<AtomicUsize>,
    }

    impl Rig {
        fn new(reserved: usize) -> Self {
            Self {
                room: CarryingRoom::new(reserved, Metrics::default(), &Lifecycle::new()),
                store: Arc::new(Semaphore::new(0)),
                under_way: Arc::default(),
                done: Arc::default(),
            }
        }

        fn release(&self) -> impl Future<Output = ()> + Send + 'static {
            let store = Arc::clone(&self.store);
            let (under_way, done) = (Arc::clone(&self.under_way), Arc::clone(&self.done));
            async move {
                under_way.fetch_add(1, Ordering::Relaxed);
                drop(store.acquire().await);
                done.fetch_add(1, Ordering::Relaxed);
            }
        }

        /// The store answers, and everything ends.
        async fn end(&self) -> usize {
            self.store.add_permits(1_000_000);
            let quiet = self.room.lifecycle.quiet();
            timeout(Duration::from_secs(5), quiet).await.unwrap();
            self.done.load(Ordering::Relaxed)
        }

        fn counted(&self, outcome: &str) -> usize {
            let text = self.room.metrics.text(&Figures::default());
            let sample = format!("latchgate_abandoned_releases_total{{outcome=\"{outcome}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&sample));
            line.unwrap().parse().unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_have_begun_take_half_of_the_room_and_the_others_end() {
        let rig = Rig::new(8);
        for _ in 0..1_000 {
            rig.room.of_connection().carry(rig.release(), true);
        }
        assert_eq!(rig.end().await, 4);
        assert_eq!(rig.counted("carried-out"), 4);
        assert_eq!(rig.counted("dropped"), 996);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_have_not_begun_wait_for_their_turn() {
        let rig = Rig::new(8);
        for _ in 0..4 + MOST_WAITING + 10 {
            rig.room.of_connection().carry(rig.release(), false);
        }
        tokio::task::yield_now().await;
        assert_eq!(rig.under_way.load(Ordering::Relaxed), 4);
        assert_eq!(rig.end().await, 4 + MOST_WAITING);
        assert_eq!(rig.counted("dropped"), 10);
        // There is room again.
        rig.room.of_connection().carry(rig.release(), true);
        assert_eq!(rig.end().await, 4 + MOST_WAITING + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_connection_leaves_room_to_another() {
        let rig = Rig::new(10_000);
        let one = rig.room.of_connection();
        for _ in 0..1_000 {
            one.carry(rig.release(), true);
        }
        rig.room.of_connection().carry(rig.release(), true);
        assert_eq!(rig.end().await, MOST_OF_CONNECTION + 1);
    }
}
