//! Waiting for something that must come, instead of sleeping for luck.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long anything may take on a machine that does other things as well.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Asks again and again until there is an answer. Panics with `what` if there is none in time.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Asks again and again until it is so. Panics with `what` if it is not in time.
pub(crate) async fn until<F>(what: &str, mut is_so: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    eventually(what, || {
        let is_so = is_so();
        async { is_so.await.then_some(()) }
    })
    .await;
}
