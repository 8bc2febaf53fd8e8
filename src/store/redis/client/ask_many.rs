//! Asks several servers at once, and does not wait for the slowest.

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Duration, Instant, timeout_at};

/// Asks several servers at once, and hands each answer to `take`, until all have come or the time is over.
///
/// `limit`: when the time is over; without a limit each question ends by itself. When `take` says that enough has
/// come, and for how long the other servers are waited for, the time is over at the latest after that. An answer
/// that comes later is dropped with its question and decides nothing, but what was sent may still be carried out.
pub(crate) async fn ask_many<F: Future>(
    questions: impl IntoIterator<Item = F>,
    limit: Option<Instant>,
    mut take: impl FnMut(F::Output) -> Option<Duration>,
) {
    let mut until = limit;
    let mut asked: FuturesUnordered<F> = questions.into_iter().collect();
    loop {
        let answer = match until {
            // An answer that is there counts, although the time is over.
            Some(until) => timeout_at(until, asked.next()).await.unwrap_or_default(),
            None => asked.next().await,
        };
        let Some(answer) = answer else {
            return;
        };
        if let Some(linger) = take(answer) {
            let end = Instant::now() + linger;
            until = Some(until.map_or(end, |until| until.min(end)));
        }
    }
}

/// How many of so many are more than half.
pub(crate) fn majority(of: usize) -> usize {
    of / 2 + 1
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// Whose answers have come within how long, of servers that need 1, 2, 4, .. seconds.
    async fn answers(limit: Option<u64>, enough: usize, linger: u64) -> (usize, u64) {
        let began = Instant::now();
        let seconds = Duration::from_secs;
        let questions = (0..5).map(|n| sleep(seconds(1 << n)));
        let mut come = 0;
        let limit = limit.map(|limit| began + seconds(limit));
        ask_many(questions, limit, |()| {
            come += 1;
            (come >= enough).then(|| seconds(linger))
        })
        .await;
        (come, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_are_waited_for_a_while_when_enough_have_answered() {
        assert_eq!(answers(None, 3, 3).await, (3, 7));
        // Each later answer gives the others no more time.
        assert_eq!(answers(None, 2, 3).await, (3, 5));
        assert_eq!(answers(None, 3, 5).await, (4, 9));
        assert_eq!(answers(None, 9, 0).await, (5, 16));
        assert_eq!(answers(None, 5, 9).await, (5, 16));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_beyond_the_limit() {
        assert_eq!(answers(Some(5), 9, 0).await, (3, 5));
        assert_eq!(answers(Some(5), 2, 9).await, (3, 5));
        assert_eq!(answers(Some(5), 1, 1).await, (2, 2));
    }
}
