//! Asks several servers of a cluster at once, and repeatedly, which server has which slots.

use std::{collections::HashSet, sync::Arc};

use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{config::RedisNode, lifecycle::Lifecycle, store::Unavailability};

use super::{
    super::{
        ask_many::{ask_most, majority},
        connection::Connection,
        failure::{ACL_LINE, Failure, hint},
        script::Command,
    },
    layout::ClusterView,
    members::Cluster,
};

/// How often the servers are asked for the layout while nothing seems to be wrong. A server that has given a slot away
/// redirects the commands for it, and a command that fails causes a question at once.
const RECHECK: Duration = Duration::from_secs(1);
/// How often the servers are asked for the layout while one of them does not answer, or a slot has no server.
const RECHECK_WHILE_FAILING: Duration = Duration::from_millis(100);
/// Minimum pause between two refreshes of the layout, so that many commands without a reply do not cause a refresh
/// each.
const SOONEST: Duration = Duration::from_millis(25);
/// How long the gateway waits for the servers' answers about the layout: no longer than it takes to ask other servers.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// Maximum number of masters that are asked for the layout at once: enough that one of them knows of a change.
const ASKED: usize = 16;
/// How long no master must have answered before the gateway accepts a layout with an older epoch from the servers in
/// the URL: the cluster was then created again. The time is longer than a server that is cut off needs to notice it
/// (`cluster-node-timeout`, 15 seconds by default).
const MUST_PERSIST: Duration = Duration::from_secs(30);

// === impl Cluster ===

impl Cluster {
    /// Starts the task that follows the layout of the cluster, until the program stops or the store is closed.
    pub(crate) fn start(self: Arc<Self>, lifecycle: &Lifecycle, closing: &CancellationToken) {
        lifecycle.spawn_until(closing, async move { self.watch().await });
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

    /// Asks the servers for the layout, and applies the latest answer of a node of the cluster. Returns whether all
    /// servers answered and every slot has a server.
    async fn refresh(&self) -> bool {
        let layout = self.layout();
        let mut asked = layout.shards.clone();
        if asked.len() > ASKED {
            // The masters to ask are chosen from a random start, so that each master is asked now and then.
            let from = usize::try_from(getrandom::u32().unwrap_or_default()).unwrap_or_default();
            let count = asked.len();
            asked.rotate_left(from % count);
            asked.truncate(ASKED);
        }
        let limit = Instant::now() + ANSWER_WITHIN;
        let questions = asked.iter().map(async |shard| {
            let node = shard.node().expect("a server of a cluster has an address");
            ask(shard.pool.connection(limit), node, limit).await
        });
        let (views, mut errors) = ask_most(questions, limit).await;
        let (mut views, mut strangers) = self.split_off_strangers(views, &mut errors);
        for shard in &asked {
            if strangers.iter().any(|view| shard.node() == Some(&view.by)) {
                shard.pool.route.doubt();
            }
        }
        // Whether more than half of the asked masters have answered. Only masters count: the other servers may all
        // have missed the same change.
        let most = views.len() > asked.len() / 2;
        let silent = views.is_empty();
        if silent {
            let (found, more) = self.ask_any_known().await;
            errors.extend(more);
            (views, strangers) = self.split_off_strangers(found, &mut errors);
        }
        let all = errors.is_empty();
        let is_first = layout.shards.is_empty();
        let latest = views.iter().max_by_key(|view| (rank(view), view.slots()));
        let latest = match latest {
            Some(_) if is_first => self.most_reported(&views),
            None => self.most_reported(&strangers),
            latest => Ok(latest),
        };
        let (latest, error) = match latest {
            Ok(latest) => (latest, errors.pop().filter(|_| views.is_empty())),
            Err(why) => (None, Some(why)),
        };
        *self.last_error.lock() = error;
        let Some(view) = latest else {
            self.epoch_regression.clear();
            return false;
        };
        // A server that returns from a partition must not revert the topology to an older epoch, and a server at the
        // address of another must not lead to another cluster.
        if views.is_empty() || view.epoch < layout.epoch && !most {
            // Most of all servers in the URL must report this view. If only the servers that answered were counted, a
            // single server could decide.
            let same = |it: &&ClusterView| {
                rank(it) == rank(view) && it.roster.is_of_same_cluster(&view.roster)
            };
            let named = self.count_seeds(views.iter().chain(&strangers).filter(same));
            if !(silent && view.sound && named >= majority(self.seeds.len())) {
                self.epoch_regression.clear();
                return false;
            }
            if !(self.epoch_regression).has_persisted(&view.epoch, MUST_PERSIST) {
                return false;
            }
        }
        self.epoch_regression.clear();
        self.apply_view(view);
        all && view.sound && self.layout().unassigned().0 == 0
    }

    /// Separates the views of servers that are no nodes of the cluster, and adds an error for each.
    fn split_off_strangers(
        &self,
        views: Vec<ClusterView>,
        errors: &mut Vec<Unavailability>,
    ) -> (Vec<ClusterView>, Vec<ClusterView>) {
        let roster = self.roster.get();
        views.into_iter().partition(|view| {
            let admitted = roster.admit(&view.roster, &view.by);
            let is_admitted = admitted.is_ok();
            errors.extend(admitted.err().map(|why| why.at(&view.by)));
            is_admitted
        })
    }

    /// How many of the servers in the URL report one of these views.
    fn count_seeds<'a>(&self, views: impl Iterator<Item = &'a ClusterView>) -> usize {
        let by: HashSet<_> = views.map(|view| &view.by).collect();
        self.seeds.iter().filter(|seed| by.contains(seed)).count()
    }

    /// Of views that may be of several clusters, the latest view of the cluster that most servers in the URL report.
    /// Fails if as many of these servers report another cluster.
    fn most_reported<'a>(
        &self,
        views: &'a [ClusterView],
    ) -> Result<Option<&'a ClusterView>, Unavailability> {
        let reporters = |view: &ClusterView| {
            let same = |it: &&ClusterView| it.roster.is_of_same_cluster(&view.roster);
            self.count_seeds(views.iter().filter(same))
        };
        let order = |view: &&ClusterView| {
            let is_of_cluster = !view.roster.is_empty();
            (is_of_cluster, reporters(view), rank(view), view.slots())
        };
        let Some(most) = views.iter().max_by_key(order) else {
            return Ok(None);
        };
        let is_other = |view: &&ClusterView| {
            !view.roster.is_empty() && !view.roster.is_of_same_cluster(&most.roster)
        };
        let mut others = views.iter().filter(is_other);
        match others.find(|view| reporters(view) >= reporters(most)) {
            None => Ok(Some(most)),
            Some(other) => Err(Unavailability::Misconfigured(format!(
                "{} and {} are servers of different clusters; the store's URL must name servers of \
                 one cluster",
                most.by, other.by
            ))),
        }
    }

    /// Asks the servers in the URL, and all replicas of the last known layout, for the layout.
    async fn ask_any_known(&self) -> (Vec<ClusterView>, Vec<Unavailability>) {
        let layout = self.layout();
        let mut nodes = self.seeds.clone();
        nodes.extend(layout.replicas.iter().cloned());
        nodes.sort_by_key(ToString::to_string);
        nodes.dedup();
        let others: Vec<_> = nodes.iter().map(|node| self.endpoint(node)).collect();
        let limit = Instant::now() + self.config.connect_timeout_ms.duration() + ANSWER_WITHIN;
        let questions = others.iter();
        let questions = questions.map(|it| ask(it.connect(), it.node(), limit));
        let answers = ask_most(questions, limit).await;
        for endpoint in others {
            endpoint.close().await;
        }
        answers
    }
}

/// Rank of a view of the cluster; the view with the highest rank counts. A view of a server that sees enough of the
/// cluster ranks first, then the latest epoch.
fn rank(view: &ClusterView) -> (bool, bool, u64) {
    (!view.ranges.is_empty(), view.sound, view.epoch)
}

/// Asks one server which servers have which slots, as that server sees the cluster.
async fn ask(
    connecting: impl Future<Output = Result<Connection, Unavailability>>,
    node: &RedisNode,
    limit: Instant,
) -> Result<ClusterView, Unavailability> {
    let asked = async {
        let commands = ["INFO", "SLOTS"].map(|what| Command::new("CLUSTER").with(what));
        let replies = connecting.await?.send_all(&commands, limit).await;
        ClusterView::read(&replies.map_err(Failure::reason)?, node)
    };
    asked.await.map_err(|why| hint(why, ACL_LINE).at(node))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        time::{advance, pause, resume},
    };

    use super::{
        super::layout::tests::{range, view_of},
        *,
    };
    use crate::{
        config::{RedisConfig, RedisNode, StoreUrl},
        lifecycle::Workers,
        store::redis::Slot,
    };

    /// Answers on a connection like the only server of a cluster, which has this id and is at this epoch.
    async fn answer(mut client: TcpStream, port: u16, id: &str, epoch: u64) -> std::io::Result<()> {
        let info = format!("cluster_state:ok\r\ncluster_current_epoch:{epoch}\r\n");
        let node = format!("*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n+{id}\r\n");
        let slots = format!("*1\r\n*3\r\n:0\r\n:16383\r\n{node}");
        let info = format!("${}\r\n{info}\r\n", info.len());
        let mut request = [0; 4_096];
        loop {
            let read = client.read(&mut request).await?;
            let asked = String::from_utf8_lossy(&request[..read]);
            let reply = match () {
                () if read == 0 => return Ok(()),
                () if asked.contains("CLUSTER") => format!("{info}{slots}"),
                () => "+PONG\r\n$10\r\nrun_id:001\r\n".to_owned(),
            };
            client.write_all(reply.as_bytes()).await?;
        }
    }

    /// A cluster that was followed at epoch 6, and whose only master does not answer. The server in the URL answers
    /// at this epoch, and has the id of the master or another. `away`: further servers in the URL, which do not answer;
    /// port `AGAIN` names the server that answers.
    async fn with_silent_master(
        lifecycle: &Lifecycle,
        away: &str,
        (is_same, epoch): (bool, u64),
    ) -> (Cluster, RedisNode) {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let master = RedisNode::new("127.0.0.1", silent.local_addr().unwrap().port());
        drop(silent);
        let id = if is_same {
            master.to_string()
        } else {
            "another".to_owned()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        lifecycle.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                drop(answer(client, port, &id, epoch).await);
            }
        });
        let away = away.replace("AGAIN", &port.to_string());
        let url = format!("redis+cluster://127.0.0.1:{port}{away}");
        let url: StoreUrl = url.parse().unwrap();
        let cluster = Cluster::new(
            url.servers().unwrap(),
            &RedisConfig::default(),
            &Workers::default(),
        );
        let all = range(0, Slot::COUNT - 1, master.clone());
        cluster.apply_view(&view_of(6, vec![all]));
        (cluster, master)
    }

    #[tokio::test]
    async fn a_gateway_that_starts_believes_the_server_that_knows_the_address_of_every_other() {
        let url: StoreUrl = "redis+cluster://h:1,h:2".parse().unwrap();
        let url = url.servers().unwrap();
        let cluster = Cluster::new(url, &RedisConfig::default(), &Workers::default());
        let half = |first, port| range(first, first + 8_191, RedisNode::new("h", port));
        let whole = view_of(6, vec![half(0, 1), half(8_192, 2)]);
        let mut partial = whole.clone();
        partial.by = RedisNode::new("h", 2);
        partial.ranges.pop();
        for views in [[whole.clone(), partial.clone()], [partial, whole.clone()]] {
            assert_eq!(cluster.most_reported(&views), Ok(Some(&whole)));
        }
    }

    #[tokio::test]
    async fn a_cluster_that_was_made_anew_is_followed_when_no_master_has_answered_for_long() {
        let lifecycle = Lifecycle::new();
        // Half of the servers in the URL are not most of them, no matter how often the URL names a server. The epoch of
        // another cluster says nothing.
        for (said, away, believed) in [
            ((true, 3), "", 3),
            ((true, 3), ",127.0.0.1:AGAIN,127.0.0.1:1", 6),
            ((true, 3), ",127.0.0.1:1", 6),
            ((true, 3), ",127.0.0.1:1,127.0.0.1:2", 6),
            ((false, 3), "", 3),
            ((false, 6), "", 6),
            ((false, 9), "", 9),
            ((false, 9), ",127.0.0.1:1", 6),
        ] {
            let (cluster, master) = with_silent_master(&lifecycle, away, said).await;
            for (passes, followed) in [(0, 6), (20, 6), (10, believed)] {
                pause();
                advance(Duration::from_secs(passes)).await;
                resume();
                assert!(!cluster.refresh().await);
                let layout = cluster.layout();
                let owner = layout.owner(Slot::numbered(0).unwrap());
                let is_master = owner.and_then(|it| it.node()) == Some(&master);
                let is_followed = (layout.epoch, is_master) != (6, true);
                assert_eq!(layout.epoch, followed, "{said:?} {away}");
                assert_eq!(
                    is_followed,
                    passes == 10 && away.is_empty(),
                    "{said:?} {away}"
                );
            }
        }
    }
}
