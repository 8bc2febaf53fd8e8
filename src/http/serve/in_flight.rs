//! Counts the requests that are under way, so that shutdown ends as soon as none is left.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// How long a stopping gateway must have had no request under way before it assumes that none will come: a
/// client that still sends requests here has not noticed yet that the gateway drains.
const QUIET: Duration = Duration::from_secs(1);
/// How often a stopping gateway polls the counter of requests. Requests do not notify the gateway of their
/// end, because all requests would then share a lock.
const LOOK_PERIOD: Duration = Duration::from_millis(5);

/// Counter of the requests under way on all connections, except requests that only read. A request counts
/// from its head to the head of its answer. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InFlightRequests(Arc<InFlightInner>);

#[derive(Debug)]
struct InFlightInner {
    begun: AtomicU64,
    ended: AtomicU64,
    started: Instant,
    /// When the last request ended, in milliseconds after `started` and plus one; 0 if no request has ended.
    ended_at: AtomicU64,
}

/// Guard that counts a request until it is dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest(Arc<InFlightInner>);

// === impl InFlightRequests ===

impl InFlightRequests {
    /// Completes when no request is under way and the last one ended at least a second ago. If there was no
    /// request within the last second, it completes at once.
    pub async fn quiet(&self) {
        while !self.0.is_quiet() {
            sleep(LOOK_PERIOD).await;
        }
    }

    /// Completes when a request has begun or ended since this call.
    pub fn changed(&self) -> impl Future<Output = ()> + use<'_> {
        let before = self.0.changes();
        async move {
            while self.0.changes() == before {
                sleep(LOOK_PERIOD).await;
            }
        }
    }

    /// Counts one more request.
    pub(super) fn begin(&self) -> InFlightRequest {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        InFlightRequest(Arc::clone(&self.0))
    }
}

impl Default for InFlightRequests {
    /// A counter with no request under way.
    fn default() -> Self {
        Self(Arc::new(InFlightInner {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            started: Instant::now(),
            ended_at: AtomicU64::new(0),
        }))
    }
}

// === impl InFlightInner ===

impl InFlightInner {
    fn count(&self) -> u64 {
        // `ended` is read first, so that a request that ends between both reads is still counted.
        let ended = self.ended.load(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst) - ended
    }

    fn changes(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (load(&self.begun), load(&self.ended))
    }

    fn is_quiet(&self) -> bool {
        self.count() == 0
            && match self.ended_at.load(Ordering::SeqCst) {
                0 => true,
                at => (self.started + Duration::from_millis(at - 1)).elapsed() >= QUIET,
            }
    }
}

// === impl InFlightRequest ===

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let ms = self.0.started.elapsed().as_millis();
        let ended_at = u64::try_from(ms).unwrap_or(u64::MAX).saturating_add(1);
        self.0.ended_at.store(ended_at, Ordering::SeqCst);
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_a_while_after_the_last_request() {
        let in_flight = InFlightRequests::default();
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
        assert!(took.abs_diff(expected) <= LOOK_PERIOD, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_at_once_if_nobody_asked_lately() {
        let in_flight = InFlightRequests::default();
        let begin = Instant::now();
        in_flight.quiet().await;
        drop(in_flight.begin());
        sleep(QUIET).await;
        in_flight.quiet().await;
        assert_eq!(begin.elapsed(), QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_from_the_call_on_and_not_before() {
        let in_flight = InFlightRequests::default();
        let one = in_flight.begin();
        assert!(timeout(QUIET, in_flight.changed()).await.is_err());
        let changed = in_flight.changed();
        drop(one);
        timeout(QUIET, changed).await.unwrap();
        assert_eq!(in_flight.0.count(), 0);
    }
}
