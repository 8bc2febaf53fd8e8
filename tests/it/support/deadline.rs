//! Waits for a condition with a deadline, instead of sleeping for a fixed time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest time that any awaited event may take, also on a machine that does other work.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Repeats a question until it has an answer. Panics with `what` if there is none in time.
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

/// Repeats a check until it is true. Panics with `what` if it is not true in time.
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
