//! Asks servers of a cluster at once who has which slots.

use std::sync::Arc;

use bb8_redis::redis::{Cmd, Pipeline};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Duration, Instant, timeout_at};

use crate::{
    config::RedisNode,
    store::{
        Unavailability,
        redis::client::failure::{ACL_LINE, hint},
    },
};

use super::{
    super::{connection::Connection, endpoint::Endpoint, failure::Failure, shard::Shard},
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
    let asked = shards.iter().map(|shard| -> BoxFuture<'_, _> {
        Box::pin(async move {
            let node = shard.node().expect("a server of a cluster has an address");
            let connection = shard.pool.connection(limit).await;
            (node, ask(connection, node, limit).await)
        })
    });
    gather(asked.collect(), limit).await
}

/// Asks servers that are not connected to.
pub(super) async fn ask_others(others: &[Endpoint], timeout: Duration) -> ClusterReplies {
    let limit = Instant::now() + timeout;
    let asked = others.iter().map(|endpoint| -> BoxFuture<'_, _> {
        Box::pin(async move {
            let connection = endpoint.connect().await;
            (
                endpoint.node(),
                ask(connection, endpoint.node(), limit).await,
            )
        })
    });
    gather(asked.collect(), limit).await
}

async fn ask(
    connection: Result<Connection, Unavailability>,
    node: &RedisNode,
    limit: Instant,
) -> Result<ClusterView, Unavailability> {
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(of_cluster("INFO"));
    commands.add_command(of_cluster("SLOTS"));
    let replies = connection?.send_all(&commands, limit).await;
    ClusterView::read(&replies.map_err(Failure::reason)?, node)
}

fn of_cluster(what: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg(what);
    command
}

async fn gather(
    mut asked: FuturesUnordered<BoxFuture<'_, (&RedisNode, Result<ClusterView, Unavailability>)>>,
    limit: Instant,
) -> ClusterReplies {
    let most = asked.len() / 2 + 1;
    let mut answers = ClusterReplies::default();
    let mut until = limit;
    while let Ok(Some((node, answer))) = timeout_at(until, asked.next()).await {
        match answer {
            Ok(view) => answers.views.push(view),
            Err(why) => answers.last_error = Some(of(node, why)),
        }
        if answers.views.len() >= most {
            until = until.min(Instant::now() + GRACE);
        }
    }
    answers
}

/// Says which server it is.
fn of(node: &RedisNode, why: Unavailability) -> Unavailability {
    let of = |what: &str| format!("{node}: {what}");
    match why {
        Unavailability::Connect(what) => Unavailability::Connect(of(&what)),
        Unavailability::Refused(what) => Unavailability::Refused(of(&what)),
        Unavailability::Misconfigured(what) => {
            Unavailability::Misconfigured(of(&hint(what, ACL_LINE)))
        }
        other => other,
    }
}
