//! Keeps asking who has which slots.

use std::sync::{Arc, PoisonError};

use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::Lifecycle;

use super::{
    members::Cluster,
    question::{ClusterReplies, ask_others, ask_shards},
    view::ClusterView,
};

/// How often the servers are asked although nothing seems to be wrong: who has given a slot away says
/// so to whoever asks for it, and for those of a server that is gone somebody asks at once.
const RECHECK: Duration = Duration::from_secs(1);
/// How often while somebody does not answer, or nobody has a slot.
const RECHECK_WHILE_FAILING: Duration = Duration::from_millis(100);
/// They must not be asked for each of many who get no answer.
const SOONEST: Duration = Duration::from_millis(25);
/// How long their answer is waited for: no longer than it takes to ask others.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// How many are asked: enough that one of them knows what has changed.
const ASKED: usize = 16;

// === impl Cluster ===

impl Cluster {
    /// Keeps an eye on who has which slots, until the program stops or the store is closed.
    pub(crate) fn start(self: Arc<Self>, lifecycle: &Lifecycle, closing: &CancellationToken) {
        let (stopped, closed) = (lifecycle.stopped(), closing.clone());
        lifecycle.spawn_background(async move {
            tokio::select! {
                () = self.watch() => {}
                () = stopped => {}
                () = closed.cancelled() => {}
            }
        });
    }

    async fn watch(&self) {
        loop {
            let pause = if self.refresh().await {
                RECHECK
            } else {
                RECHECK_WHILE_FAILING
            };
            sleep(SOONEST).await;
            tokio::select! {
                () = self.refresh_requested.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Asks who has which slots, and goes by it. Whether all is well.
    async fn refresh(&self) -> bool {
        let layout = self.layout();
        let mut asked = layout.shards.clone();
        if asked.len() > ASKED {
            // Others each time.
            let from = usize::try_from(getrandom::u32().unwrap_or_default()).unwrap_or_default();
            let count = asked.len();
            asked.rotate_left(from % count);
            asked.truncate(ASKED);
        }
        let mut answers = ask_shards(&asked, ANSWER_WITHIN).await;
        if answers.views.is_empty() {
            answers = self.ask_any_known(answers).await;
        }
        let all = answers.last_error.is_none();
        let most = answers.views.len() > asked.len() / 2;
        let latest = answers.views.iter().max_by_key(|view| rank(view));
        *self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = match latest {
            Some(_) => None,
            None => answers.last_error,
        };
        let Some(view) = latest else {
            return false;
        };
        // A server that was cut off for a while leads nobody back.
        if view.epoch < layout.epoch && !most {
            return false;
        }
        self.apply_view(view);
        all && view.sound && self.layout().unassigned().0 == 0
    }

    /// Asks those that are named in the URL, and all that were a part of the cluster when it was last
    /// asked.
    async fn ask_any_known(&self, asked: ClusterReplies) -> ClusterReplies {
        let layout = self.layout();
        let mut nodes = self.seeds.clone();
        nodes.extend(layout.replicas.iter().cloned());
        nodes.sort_by_key(ToString::to_string);
        nodes.dedup();
        let others: Vec<_> = nodes.iter().map(|node| self.endpoint(node)).collect();
        let timeout = self.config.connect_timeout_ms.duration() + ANSWER_WITHIN;
        let mut answers = ask_others(&others, timeout).await;
        for endpoint in others {
            endpoint.close().await;
        }
        answers.last_error = answers.last_error.or(asked.last_error);
        answers
    }
}

/// Whose word counts: of those that see enough of the cluster, the latest.
fn rank(view: &ClusterView) -> (bool, bool, u64) {
    (!view.ranges.is_empty(), view.sound, view.epoch)
}
