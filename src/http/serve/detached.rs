//! Releases that are carried out although their callers have hung up.
//!
//! No caller receives their answers or can be slowed down by them, so these releases have bounded room of
//! their own, and do not take that of releases whose callers wait.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use axum::Extension;
use http::Response;
use tokio::sync::Semaphore;
use tracing::debug;

use crate::{
    engine::{HolderRelease, without_caller},
    http::state::AppState,
    lifecycle::Lifecycle,
    telemetry::metrics::Metrics,
};

use super::connection::ConnectionState;

/// Releases that the store did not answer. The answer to the caller has them as an extension: if the caller
/// has hung up, the gateway repeats them. If the answer is sent, they end: a caller that is told 503 is told
/// that nothing follows.
#[derive(Clone)]
pub(in crate::http) struct UnansweredReleases {
    pub(in crate::http) gateway: Arc<AppState>,
    pub(in crate::http) releases: Vec<HolderRelease>,
}

/// Room for releases whose callers have hung up. Cheap to clone.
#[derive(Clone)]
pub(super) struct DetachedReleases(Arc<DetachedInner>);

struct DetachedInner {
    /// Bounds the releases without callers that are being carried out.
    working: Arc<Semaphore>,
    /// Bounds the releases without callers that wait to be carried out.
    waiting: Arc<Semaphore>,
    metrics: Metrics,
    lifecycle: Lifecycle,
}

/// The answer to a release. If it is dropped before it is complete, the release goes on in a task of its own,
/// if there is room.
pub(super) struct Detachable<F: Future + Send + 'static> {
    /// The future of the answer; `None` once the answer is complete.
    answer: Option<Pin<Box<F>>>,
    has_begun: bool,
    /// Called with the complete answer if the caller has hung up.
    unheard: fn(F::Output),
    room: DetachedReleases,
    connection: Arc<ConnectionState>,
}

/// Releases without callers take at most one in this many of the places for releases; the rest is for connected
/// callers.
const DETACHED_RELEASE_DIVISOR: usize = 2;
/// How many releases without callers may wait for room. Each waiting release costs no more memory than the head
/// of its request. After a pause of the gateway, all callers that hung up during the pause are found together.
const MOST_WAITING: usize = 1_024;
/// How many releases without callers may go on for one connection: an HTTP/2 connection carries many
/// requests, and a client that resets them one after the other must leave room to other clients.
pub(super) const MOST_OF_CONNECTION: u32 = 64;

// === impl UnansweredReleases ===

impl UnansweredReleases {
    /// The extension for the answer; `None` if the store answered all releases.
    pub(in crate::http) fn extension(self) -> Option<Extension<Self>> {
        (!self.releases.is_empty()).then_some(Extension(self))
    }

    /// Repeats the unanswered releases of an answer that no caller receives.
    pub(super) fn go_on<B>(unheard: Result<Response<B>, Infallible>) {
        let Ok(mut answer) = unheard;
        if let Some(unanswered) = answer.extensions_mut().remove::<Self>() {
            unanswered.release_later();
        }
    }

    fn release_later(self) {
        for release in self.releases {
            self.gateway.engine.release_later(release);
        }
    }
}

// === impl DetachedReleases ===

impl DetachedReleases {
    /// Room for releases without callers: the part of the `reserved` places for releases that
    /// `DETACHED_RELEASE_DIVISOR` allows.
    pub(super) fn new(reserved: usize, metrics: Metrics, lifecycle: &Lifecycle) -> Self {
        Self(Arc::new(DetachedInner {
            working: Arc::new(Semaphore::new((reserved / DETACHED_RELEASE_DIVISOR).max(1))),
            waiting: Arc::new(Semaphore::new(MOST_WAITING)),
            metrics,
            lifecycle: lifecycle.clone(),
        }))
    }

    /// Carries out a release in a task of its own, if there is room.
    ///
    /// A release that has begun is dropped if there is no room, because it may hold permits that other
    /// requests need. A command that was already sent to the store completes anyway.
    fn run_detached<F>(&self, release: F, has_begun: bool, connection_has_room: bool)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let room = &self.0;
        let take = |room: &Arc<Semaphore>, is_allowed: bool| {
            let permit = is_allowed.then(|| Arc::clone(room).try_acquire_owned());
            permit.and_then(Result::ok)
        };
        let permit = take(&room.working, connection_has_room);
        let may_wait = connection_has_room && permit.is_none() && !has_begun;
        let place = take(&room.waiting, may_wait);
        let has_room = permit.is_some() || place.is_some();
        room.metrics.release_abandoned(has_room);
        if !has_room {
            debug!("the caller has hung up, and there is no room to carry out the release");
            return;
        }
        debug!("the caller has hung up; the release is carried out all the same");
        let (working, release) = (Arc::clone(&room.working), without_caller(release));
        room.lifecycle.spawn(async move {
            let _permit = match permit {
                Some(permit) => Ok(permit),
                None => working.acquire_owned().await,
            };
            drop(place);
            release.await;
        });
    }
}

// === impl Detachable ===

impl<F: Future + Send + 'static> Detachable<F> {
    pub(super) fn new(
        answer: F,
        unheard: fn(F::Output),
        room: &DetachedReleases,
        connection: &Arc<ConnectionState>,
    ) -> Self {
        Self {
            answer: Some(Box::pin(answer)),
            has_begun: false,
            unheard,
            room: room.clone(),
            connection: Arc::clone(connection),
        }
    }
}

impl<F, T> Future for Detachable<F>
where
    F: Future<Output = Result<T, Infallible>> + Send + 'static,
{
    type Output = Result<T, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.has_begun = true;
        let answer = self.answer.as_mut();
        let answer = answer.expect("not polled after completion");
        let answer = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl<F: Future + Send + 'static> Drop for Detachable<F> {
    fn drop(&mut self) {
        // A release whose future panicked is not carried on in a task.
        if let Some(answer) = self.answer.take()
            && !thread::panicking()
        {
            let of_connection = self.connection.detach_release(MOST_OF_CONNECTION);
            let has_room = of_connection.is_some();
            let unheard = self.unheard;
            let release = async move {
                unheard(answer.await);
                drop(of_connection);
            };
            self.room.run_detached(release, self.has_begun, has_room);
        }
    }
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

    /// Releases that all wait for the store, with the numbers of releases begun and carried out.
    struct Rig {
        room: DetachedReleases,
        store: Arc<Semaphore>,
        in_flight: Arc<AtomicUsize>,
        done: Arc<AtomicUsize>,
    }

    impl Rig {
        fn new(reserved: usize) -> Self {
            Self {
                room: DetachedReleases::new(reserved, Metrics::default(), &Lifecycle::new()),
                store: Arc::new(Semaphore::new(0)),
                in_flight: Arc::default(),
                done: Arc::default(),
            }
        }

        fn release(&self) -> impl Future<Output = ()> + Send + 'static {
            let store = Arc::clone(&self.store);
            let (in_flight, done) = (Arc::clone(&self.in_flight), Arc::clone(&self.done));
            async move {
                in_flight.fetch_add(1, Ordering::Relaxed);
                drop(store.acquire().await);
                done.fetch_add(1, Ordering::Relaxed);
            }
        }

        /// Lets the store answer, waits until all releases have ended, and returns how many were carried out.
        async fn end(&self) -> usize {
            self.store.add_permits(1_000_000);
            let quiet = self.room.0.lifecycle.quiet();
            timeout(Duration::from_secs(5), quiet).await.unwrap();
            self.done.load(Ordering::Relaxed)
        }

        fn counted(&self, outcome: &str) -> usize {
            let text = self.room.0.metrics.text(&Figures::default());
            let sample = format!("latchgate_abandoned_releases_total{{outcome=\"{outcome}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&sample));
            line.unwrap().parse().unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_connection_leaves_room_to_another() {
        let room = DetachedReleases::new(10_000, Metrics::default(), &Lifecycle::new());
        let rig = Rig {
            room,
            ..Rig::new(1)
        };
        let [one, other] = [(); 2].map(|()| ConnectionState::of_test());
        for connection in [vec![&one; 1_000], vec![&other]].concat() {
            let release = rig.release();
            let answer = async move {
                release.await;
                Ok::<_, Infallible>(())
            };
            drop(Detachable::new(answer, drop, &rig.room, connection));
        }
        let most = usize::try_from(MOST_OF_CONNECTION).unwrap();
        assert_eq!(rig.end().await, most + 1);
        assert_eq!(rig.counted("dropped"), 1_000 - most);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_have_not_begun_wait_for_their_turn() {
        let rig = Rig::new(8);
        for _ in 0..4 + MOST_WAITING + 10 {
            rig.room.run_detached(rig.release(), false, true);
        }
        tokio::task::yield_now().await;
        assert_eq!(rig.in_flight.load(Ordering::Relaxed), 4);
        assert_eq!(rig.end().await, 4 + MOST_WAITING);
        assert_eq!(rig.counted("dropped"), 10);
        // All earlier releases have ended, so there is room for another.
        rig.room.run_detached(rig.release(), true, true);
        assert_eq!(rig.end().await, 4 + MOST_WAITING + 1);
    }
}
