//! Knows how many requests are under way, so that shutdown ends when there is nothing left to do.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use tokio::{sync::watch, time::timeout};

/// How long no request may have been under way before the gateway takes it that none will come.
/// A client that renews in a loop is back sooner or has another gateway.
const QUIET: Duration = Duration::from_secs(1);

/// Counts requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct UnderWay(Arc<watch::Sender<usize>>);

struct Counted(UnderWay);

// === impl UnderWay ===

impl UnderWay {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// The middleware that counts. A caller that hangs up drops the future, and the count with it.
    pub(super) async fn count(State(this): State<Self>, request: Request, next: Next) -> Response {
        let _counted = this.one();
        next.run(request).await
    }

    /// Ends when for [`QUIET`] nothing has been under way.
    pub(super) async fn quiet(&self) {
        let mut count = self.0.subscribe();
        loop {
            let idle = *count.borrow_and_update() == 0;
            if idle {
                match timeout(QUIET, count.changed()).await {
                    Ok(_) => {}
                    Err(_elapsed) => return,
                }
            } else if count.changed().await.is_err() {
                return;
            }
        }
    }

    fn one(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }
}

// === impl Counted ===

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

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
}
