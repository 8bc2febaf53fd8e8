//! Knows how many requests are under way, so that shutdown ends when there is nothing left to do.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tower::{Layer, Service};

/// How long no request may have been under way before the gateway takes it that none will come.
/// Whoever still sends requests here has not heard yet that it drains.
const QUIET: Duration = Duration::from_secs(1);

/// Counts requests. Cheap to clone. As a layer it counts those of a service; a caller that hangs up
/// drops the future, and the count with it.
#[derive(Debug, Clone)]
pub(super) struct UnderWay(Arc<watch::Sender<Traffic>>);

#[derive(Debug, Clone, Copy, Default)]
struct Traffic {
    count: usize,
    /// When the last one ended; `None` if there has been none.
    ended: Option<Instant>,
}

/// A service whose requests are counted.
#[derive(Debug, Clone)]
pub(super) struct CountedService<S> {
    under_way: UnderWay,
    inner: S,
}

/// A request that is counted until it has been answered.
pub(super) struct CountedRequest<F> {
    answer: Pin<Box<F>>,
    counted: Option<Counted>,
}

struct Counted(UnderWay);

// === impl UnderWay ===

impl UnderWay {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Traffic::default())))
    }

    /// Ends when nothing is under way and nothing has been for [`QUIET`]: at once if nobody asked
    /// for anything lately.
    pub(super) async fn quiet(&self) {
        let mut traffic = self.0.subscribe();
        loop {
            let now = *traffic.borrow_and_update();
            let changed = match (now.count, now.ended) {
                (0, None) => return,
                (0, Some(ended)) => timeout_at(ended + QUIET, traffic.changed()).await,
                _ => Ok(traffic.changed().await),
            };
            // Nothing changes any more when nobody is there to count.
            let Ok(Ok(())) = changed else { return };
        }
    }

    /// Ends when, from this call on, a request has come or one that is under way has ended.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + use<> {
        let mut traffic = self.0.subscribe();
        async move {
            // An error: nobody is there to count any more.
            let _ = traffic.changed().await;
        }
    }

    fn one(&self) -> Counted {
        self.0.send_modify(|traffic| traffic.count += 1);
        Counted(self.clone())
    }
}

impl<S> Layer<S> for UnderWay {
    type Service = CountedService<S>;

    fn layer(&self, inner: S) -> CountedService<S> {
        let under_way = self.clone();
        CountedService { under_way, inner }
    }
}

// === impl CountedService ===

impl<S: Service<R>, R> Service<R> for CountedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = CountedRequest<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        CountedRequest {
            counted: Some(self.under_way.one()),
            answer: Box::pin(self.inner.call(request)),
        }
    }
}

// === impl CountedRequest ===

impl<F: Future> Future for CountedRequest<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        // Whoever asked may keep the future for longer than that.
        self.counted = None;
        Poll::Ready(answer)
    }
}

// === impl Counted ===

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|traffic| {
            traffic.count -= 1;
            traffic.ended = Some(Instant::now());
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use tokio::time::sleep;
    use tower::service_fn;

    use super::*;

    fn under_way_now(under_way: &UnderWay) -> usize {
        under_way.0.borrow().count
    }

    #[tokio::test]
    async fn a_request_is_under_way_from_when_it_is_asked_until_it_is_answered() {
        let under_way = UnderWay::new();
        let echo = service_fn(async |request: u8| Ok::<_, Infallible>(request));
        let mut service = under_way.layer(echo);
        let mut request = std::pin::pin!(service.call(7));
        assert_eq!(under_way_now(&under_way), 1);
        assert_eq!(request.as_mut().await, Ok(7));
        assert_eq!(under_way_now(&under_way), 0);
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_is_under_way_no_more() {
        let under_way = UnderWay::new();
        let silent = service_fn(async |()| pending::<Result<(), Infallible>>().await);
        let mut service = under_way.layer(silent);
        let requests = [service.call(()), service.call(())];
        assert_eq!(under_way_now(&under_way), 2);
        drop(requests);
        assert_eq!(under_way_now(&under_way), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_a_while_after_the_last_request() {
        let under_way = UnderWay::new();
        let long = under_way.one();
        let begin = Instant::now();
        let requests = async {
            sleep(Duration::from_secs(3)).await;
            drop(long);
            sleep(QUIET / 2).await;
            drop(under_way.one());
        };
        tokio::join!(requests, under_way.quiet());
        assert_eq!(begin.elapsed(), Duration::from_secs(3) + QUIET / 2 + QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_at_once_if_nobody_asked_lately() {
        let under_way = UnderWay::new();
        let begin = Instant::now();
        under_way.quiet().await;
        drop(under_way.one());
        sleep(QUIET).await;
        under_way.quiet().await;
        assert_eq!(begin.elapsed(), QUIET);
    }
}
