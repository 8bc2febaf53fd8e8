//! Counts the requests that are under way, so that shutdown ends when nothing is left to do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::Notified},
    time::{Instant, timeout_at},
};

/// How long no request may have been under way before the gateway assumes that none will come: a
/// client that still sends requests here has not noticed yet that the gateway drains.
const QUIET: Duration = Duration::from_secs(1);

/// The requests under way on all connections that do more than look: from their heads to the heads of their
/// answers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InFlightRequests(Arc<InFlightInner>);

#[derive(Debug)]
struct InFlightInner {
    count: AtomicUsize,
    started: Instant,
    /// When the last request ended, in milliseconds after `started` and plus one; 0 if there was none.
    ended: AtomicU64,
    /// How many wait for a change. Requests notify nobody while nobody waits.
    watchers: AtomicUsize,
    changed: Notify,
}

/// A request that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest(Arc<InFlightInner>);

/// Has requests notify of their beginnings and ends while it lives.
struct ChangeWatcher<'a>(&'a InFlightInner);

// === impl InFlightRequests ===

impl InFlightRequests {
    /// Nothing is under way.
    pub fn new() -> Self {
        Self(Arc::new(InFlightInner {
            count: AtomicUsize::new(0),
            started: Instant::now(),
            ended: AtomicU64::new(0),
            watchers: AtomicUsize::new(0),
            changed: Notify::new(),
        }))
    }

    /// Ends when nothing is under way and nothing has been for a second: at once if there was no request
    /// within the last second.
    pub async fn quiet(&self) {
        let inner = &*self.0;
        let _watcher = ChangeWatcher::of(inner);
        loop {
            let changed = inner.changed();
            if inner.count.load(Ordering::SeqCst) > 0 {
                changed.await;
                continue;
            }
            let Some(ended) = inner.ended() else {
                return;
            };
            if timeout_at(ended + QUIET, changed).await.is_err() {
                return;
            }
        }
    }

    /// Ends when, from this call on, a request has come or one that is under way has ended.
    pub fn changed(&self) -> impl Future<Output = ()> + use<'_> {
        let (watcher, changed) = (ChangeWatcher::of(&self.0), self.0.changed());
        async move {
            changed.await;
            drop(watcher);
        }
    }

    /// Counts one more.
    pub(super) fn begin(&self) -> InFlightRequest {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        self.0.notify();
        InFlightRequest(Arc::clone(&self.0))
    }
}

impl Default for InFlightRequests {
    fn default() -> Self {
        Self::new()
    }
}

// === impl InFlightInner ===

impl InFlightInner {
    fn ended(&self) -> Option<Instant> {
        let ms = self.ended.load(Ordering::SeqCst).checked_sub(1)?;
        Some(self.started + Duration::from_millis(ms))
    }

    /// A future that is notified of every change from now on.
    fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn notify(&self) {
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.changed.notify_waiters();
        }
    }
}

// === impl InFlightRequest ===

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let ms = self.0.started.elapsed().as_millis();
        let ended = u64::try_from(ms).unwrap_or(u64::MAX).saturating_add(1);
        self.0.ended.store(ended, Ordering::SeqCst);
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.notify();
    }
}

// === impl ChangeWatcher ===

impl<'a> ChangeWatcher<'a> {
    fn of(inner: &'a InFlightInner) -> Self {
        inner.watchers.fetch_add(1, Ordering::SeqCst);
        Self(inner)
    }
}

impl Drop for ChangeWatcher<'_> {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, task::Poll};

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_a_while_after_the_last_request() {
        let in_flight = InFlightRequests::new();
        let long = in_flight.begin();
        let begin = Instant::now();
        let requests = async {
            sleep(Duration::from_secs(3)).await;
            drop(long);
            sleep(QUIET / 2).await;
            drop(in_flight.begin());
        };
        tokio::join!(requests, in_flight.quiet());
        let took = begin.elapsed();
        let expected = Duration::from_secs(3) + QUIET / 2 + QUIET;
        assert!(
            took.abs_diff(expected) < Duration::from_millis(5),
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_at_once_if_nobody_asked_lately() {
        let in_flight = InFlightRequests::new();
        let begin = Instant::now();
        in_flight.quiet().await;
        drop(in_flight.begin());
        sleep(QUIET).await;
        in_flight.quiet().await;
        assert_eq!(begin.elapsed(), QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_from_the_call_on_and_not_before() {
        let in_flight = InFlightRequests::new();
        let one = in_flight.begin();
        assert!(timeout(QUIET, in_flight.changed()).await.is_err());
        let changed = in_flight.changed();
        drop(one);
        timeout(QUIET, changed).await.unwrap();
        assert_eq!(in_flight.0.count.load(Ordering::Relaxed), 0);
        assert_eq!(in_flight.0.watchers.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_is_under_way_no_more() {
        let in_flight = InFlightRequests::new();
        let one = in_flight.begin();
        let mut request = Box::pin(async move {
            let _one = one;
            pending::<()>().await;
        });
        assert_eq!(futures_util::poll!(&mut request), Poll::Pending);
        assert_eq!(in_flight.0.count.load(Ordering::Relaxed), 1);
        drop(request);
        assert_eq!(in_flight.0.count.load(Ordering::Relaxed), 0);
    }
}
