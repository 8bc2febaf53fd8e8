//! Asks several servers at once without waiting for the slowest, and remembers for how long most of these servers have
//! reported an older epoch than the one that the gateway follows.

use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, timeout_at};

use crate::store::Unavailability;

/// Asks several servers at once, and hands each answer to `take`, until all have come or the time is over.
///
/// `limit`: the latest end; without it, each question must end by itself. When `take` returns a duration, enough
/// answers have come, and the other servers are waited for that long at most. A later answer is dropped and decides
/// nothing, but the server may still carry out what was sent.
pub(crate) async fn ask_many<F: Future>(
    questions: impl IntoIterator<Item = F>,
    limit: Option<Instant>,
    mut take: impl FnMut(F::Output) -> Option<Duration>,
) {
    let mut until = limit;
    let mut asked: FuturesUnordered<F> = questions.into_iter().collect();
    loop {
        let answer = match until {
            // An answer that is already there counts, even if the limit has passed.
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

/// How long the other servers are waited for once more than half have answered: a server that answers late may have
/// just seen a change.
const GRACE: Duration = Duration::from_millis(50);

/// Asks several servers until more than half have answered, and waits a moment longer for the others. Returns the
/// answers, and the errors of servers that gave no answer.
pub(crate) async fn ask_most<T, F>(
    questions: impl ExactSizeIterator<Item = F>,
    limit: Instant,
) -> (Vec<T>, Vec<Unavailability>)
where
    F: Future<Output = Result<T, Unavailability>>,
{
    let most = majority(questions.len());
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    let take = |answer| {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(why) => errors.push(why),
        }
        (answers.len() >= most).then_some(GRACE)
    };
    ask_many(questions, Some(limit), take).await;
    (answers, errors)
}

/// The majority of `of` servers: the smallest number that is more than half of them.
pub(crate) fn majority(of: usize) -> usize {
    of / 2 + 1
}

/// The answer with an older epoch that most servers give, and since when they have given this answer.
pub(super) struct EpochRegression<T>(Mutex<Option<(T, Instant)>>);

// === impl EpochRegression ===

impl<T: Clone + PartialEq> EpochRegression<T> {
    /// Records that most servers give this answer with an older epoch now. Returns whether they have given it for
    /// `must_persist`.
    pub(super) fn has_persisted(&self, said: &T, must_persist: Duration) -> bool {
        let mut since = self.0.lock();
        match &*since {
            Some((before, since)) if before == said => since.elapsed() >= must_persist,
            _ => {
                *since = Some((said.clone(), Instant::now()));
                false
            }
        }
    }

    /// Records that most servers no longer report an older epoch.
    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }
}

impl<T> Default for EpochRegression<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::config::RedisNode;

    /// Asks five servers that need 1, 2, 4, .. seconds. Returns how many answers came, and after how many seconds the
    /// call ended.
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
        for (limit, enough, linger, come) in [
            (None, 3, 3, (3, 7)),
            // A later answer does not extend the wait for the other servers.
            (None, 2, 3, (3, 5)),
            (None, 3, 5, (4, 9)),
            (None, 9, 0, (5, 16)),
            (None, 5, 9, (5, 16)),
            (Some(5), 9, 0, (3, 5)),
            (Some(5), 2, 9, (3, 5)),
            (Some(5), 1, 1, (2, 2)),
        ] {
            assert_eq!(answers(limit, enough, linger).await, come);
        }
    }

    const MUST_PERSIST: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn who_insists_for_long_enough_is_believed() {
        let epoch_regression = EpochRegression::default();
        let (one, other) = (RedisNode::new("h", 1), RedisNode::new("h", 2));
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
        advance(MUST_PERSIST / 2).await;
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
        // The time starts again when most servers give another older answer, and after a newer epoch.
        assert!(!epoch_regression.has_persisted(&other, MUST_PERSIST));
        advance(MUST_PERSIST / 2).await;
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
        advance(MUST_PERSIST).await;
        assert!(epoch_regression.has_persisted(&one, MUST_PERSIST));
        epoch_regression.clear();
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
    }
}
