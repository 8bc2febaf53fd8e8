//! Asks servers of a cluster at once who has which slots.

use std::sync::Arc;

use bb8_redis::redis::Pipeline;
use tokio::time::{Duration, Instant};

use crate::{
    config::RedisNode,
    store::{
        Unavailability,
        redis::client::failure::{ACL_LINE, hint},
    },
};

use super::{
    super::{
        ask_many::{ask_many, majority},
        connection::Connection,
        endpoint::Endpoint,
        failure::Failure,
        shard::Shard,
    },
    view::ClusterView,
};

/// What the servers have answered.
#[derive(Debug, Default)]
pub(super) struct ClusterReplies {
    pub(super) views: Vec<ClusterView>,
    /// Why a server has not said anything, if one has not.
    pub(super) last_error: Option<Unavailability>,
}

/// How long the others are waited for when more than half have answered: one of them may have seen the
/// cluster change a moment ago.
const GRACE: Duration = Duration::from_millis(50);

/// Asks servers that have slots, over the connections that there are.
pub(super) async fn ask_shards(shards: &[Arc<Shard>], timeout: Duration) -> ClusterReplies {
    let limit = Instant::now() + timeout;
    let questions = shards.iter().map(async |shard| {
        let node = shard.node().expect("a server of a cluster has an address");
        ask(shard.pool.connection(limit), node, limit).await
    });
    gather(questions, limit).await
}

/// Asks servers that are not connected to.
pub(super) async fn ask_others(others: &[Endpoint], timeout: Duration) -> ClusterReplies {
    let limit = Instant::now() + timeout;
    let questions = others
        .iter()
        .map(|endpoint| ask(endpoint.connect(), endpoint.node(), limit));
    gather(questions, limit).await
}

async fn ask(
    connecting: impl Future<Output = Result<Connection, Unavailability>>,
    node: &RedisNode,
    limit: Instant,
) -> Result<ClusterView, Unavailability> {
    let mut commands = Pipeline::with_capacity(2);
    commands.cmd("CLUSTER").arg("INFO");
    commands.cmd("CLUSTER").arg("SLOTS");
    let asked = async {
        let replies = connecting.await?.send_all(&commands, limit).await;
        ClusterView::read(&replies.map_err(Failure::reason)?, node)
    };
    asked.await.map_err(|why| hint(why, ACL_LINE).at(node))
}

async fn gather<F>(questions: impl ExactSizeIterator<Item = F>, limit: Instant) -> ClusterReplies
where
    F: Future<Output = Result<ClusterView, Unavailability>>,
{
    let most = majority(questions.len());
    let mut answers = ClusterReplies::default();
    let take = |answer| {
        match answer {
            Ok(view) => answers.views.push(view),
            Err(why) => answers.last_error = Some(why),
        }
        (answers.views.len() >= most).then_some(GRACE)
    };
    ask_many(questions, Some(limit), take).await;
    answers
}
