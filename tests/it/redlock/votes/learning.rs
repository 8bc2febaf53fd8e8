//! A node that lost its data has no vote until it has caught up with the other nodes.

use super::delayed::{a_lease_outlasts, forgetful};
use crate::redlock::prelude::*;

/// The key of what a node has learned.
pub(crate) const NODE: &str = "lg:{}:node";
const HOUR: u64 = 3_600_000_000;

async fn ahead(config: &RedlockConfig, nodes: Nodes) -> (Rig, u64) {
    let rig = Rig::on(nodes, config);
    rig.all_vote().await;
    let last = run_ahead(&rig).await;
    (rig, last)
}

/// A lock whose fencing tokens are an hour ahead of every clock, as the first two of three nodes have accepted.
pub(crate) async fn run_ahead(rig: &Rig) -> u64 {
    let last = rig.turn("lock").await;
    rig.server(2).freeze();
    let counter = (last + HOUR).to_string();
    rig.server(0)
        .run(&["SET", &fence_key("lock"), &counter])
        .await;
    let last = rig.turn("lock").await;
    assert!(last > HOUR);
    rig.server(2).thaw();
    last
}

/// Asserts that the other nodes grant the lock with a greater fencing token than before.
pub(crate) async fn rises_without_the_first(rig: &Rig, last: u64) {
    rig.all_vote().await;
    rig.server(0).freeze();
    let next = rig.store.until_granted(&attempt("lock")).await.fence;
    assert!(next.get() > last, "{next} after {last}");
    rig.server(0).thaw();
}

#[tokio::test]
async fn a_node_that_was_flushed_goes_on_from_a_counter_that_was_ahead() {
    let (rig, last) = ahead(&quick(), Nodes::start(3).await).await;
    rig.server(1).run(&["FLUSHALL"]).await;
    rises_without_the_first(&rig, last).await;
}

#[tokio::test]
async fn so_does_one_that_was_started_again_without_its_data() {
    let config = with(forgetful(60_000), |it| it.vote_at_once = true);
    let (mut rig, last) = ahead(&config, Nodes::forgetful(3).await).await;
    rig.server_mut(1).kill();
    rig.server_mut(1).start_again().await;
    rises_without_the_first(&rig, last).await;
}

#[tokio::test]
async fn a_node_that_was_started_again_with_what_it_had_once_learns_what_it_has_forgotten() {
    let config = with(forgetful(60_000), |it| it.vote_at_once = true);
    let nodes = Nodes::start(3).await;
    let mut rig = Rig::on(nodes, &config);
    rig.all_vote().await;
    let run = ["HGET", NODE, "run"];
    let before = rig.server(1).text(&run).await;
    assert_eq!(before.len(), 40, "{before}");
    rig.server_mut(1).kill();
    rig.server_mut(1).start_again().await;
    rig.all_vote().await;
    assert_ne!(rig.server(1).text(&run).await, before);
}

#[tokio::test]
async fn nodes_that_are_all_started_again_go_on_from_what_any_of_them_has_kept() {
    let config = with(forgetful(60_000), |it| it.vote_at_once = true);
    let (mut rig, last) = ahead(&config, Nodes::start(3).await).await;
    // The third node was away, and the last writes of the second node did not reach its disk.
    rig.server(1).run(&["DEL", &fence_key("lock")]).await;
    rig.server(1).run(&["HSET", NODE, "top", "0"]).await;
    let run = ["HGET", NODE, "run"];
    let before = rig.server(1).text(&run).await;
    for node in 0..3 {
        rig.server_mut(node).kill();
    }
    for node in 0..3 {
        rig.server_mut(node).start_again().await;
    }
    rises_without_the_first(&rig, last).await;
    assert_ne!(rig.server(1).text(&run).await, before);
}

#[tokio::test]
async fn a_new_quorum_says_which_node_is_missing_and_begins_when_it_is_there() {
    let mut nodes = Nodes::start(3).await;
    nodes.servers[2].kill();
    let port = nodes.servers[2].port().to_string();
    let mut rig = Rig::on(nodes, &quick());
    eventually("it is said", async || match rig.health("votes").await {
        Health::Outage(why) => {
            let said = format!(
                "2 of 3 nodes have lost their data, or are new; 127.0.0.1:{port} must answer"
            );
            why.contains(&said).then_some(())
        }
        _ => None,
    })
    .await;
    assert_unavailable(rig.store.acquire(&attempt("lock")).await);
    rig.server_mut(2).start_again().await;
    rig.all_vote().await;
    rig.turn("lock").await;
    // From here on any majority is enough.
    rig.server_mut(2).kill();
    let other = rig.nodes.open(&rig.lifecycle);
    until("another gateway grants", async || {
        let asked = attempt("other");
        matches!(other.acquire(&asked).await, Ok(Acquisition::Granted(_)))
    })
    .await;
}

/// Acquires the lock this many times, whatever happens to nodes. Answers the fencing tokens.
async fn turns(store: Arc<RedlockStore>, turns: usize) -> Vec<u64> {
    let mut fences = Vec::new();
    while fences.len() < turns {
        let asked = attempt("lock");
        if let Ok(Acquisition::Granted(lease)) = store.acquire(&asked).await {
            fences.push(lease.fence.get());
            while store.release(&asked.name, &asked.token).await.is_err() {}
        }
    }
    fences
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_have_one_node_after_the_other_learn_at_once_while_locks_are_granted() {
    let (rig, _) = ahead(&quick(), Nodes::start(3).await).await;
    let stores = [(); 2].map(|()| Arc::new(rig.nodes.open(&rig.lifecycle)));
    let mut clients = JoinSet::new();
    for store in &stores {
        clients.spawn(turns(Arc::clone(store), 40));
    }
    let mut fences = Vec::new();
    let mut node = 0;
    loop {
        // Only a minority of the nodes has no data at any time.
        rig.all_vote().await;
        rig.server(node).run(&["FLUSHALL"]).await;
        node = (node + 1) % 3;
        match timeout(Duration::from_millis(20), clients.join_next()).await {
            Ok(Some(of_one)) => {
                let of_one = of_one.unwrap();
                assert!(of_one.is_sorted_by(|a, b| a < b), "{of_one:?}");
                fences.extend(of_one);
            }
            Ok(None) => break,
            Err(_elapsed) => {}
        }
    }
    let count = fences.len();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), count, "a fence was granted twice");
}

#[tokio::test]
async fn what_a_gateway_began_that_was_killed_another_finishes() {
    let (rig, last) = ahead(&quick(), Nodes::start(3).await).await;
    let lifecycle = Lifecycle::new();
    for other in [0, 2] {
        rig.server(other).freeze();
    }
    rig.server(1).run(&["FLUSHALL"]).await;
    let dead = rig.nodes.open(&lifecycle);
    let life = ["HEXISTS", NODE, "life"];
    until_integer(rig.server(1), &life, 1).await;
    dead.close().await;
    rig.store.close().await;
    let life = rig.server(1).text(&["HGET", NODE, "life"]).await;
    for other in [0, 2] {
        rig.server(other).thaw();
    }
    let rig = Rig {
        store: rig.nodes.open(&rig.lifecycle),
        ..rig
    };
    rig.all_vote().await;
    assert_eq!(rig.server(1).text(&["HGET", NODE, "life"]).await, life);
    rises_without_the_first(&rig, last).await;
}

#[tokio::test]
async fn when_a_majority_was_flushed_all_must_answer_and_then_what_is_left_counts() {
    let (rig, last) = ahead(&quick(), Nodes::start(3).await).await;
    rig.server(0).freeze();
    for node in [1, 2] {
        rig.server(node).run(&["FLUSHALL"]).await;
    }
    let port = rig.server(0).port().to_string();
    until_health(
        &rig.store,
        "votes",
        Health::Outage,
        &format!("127.0.0.1:{port} must answer"),
    )
    .await;
    assert_unavailable(rig.store.acquire(&attempt("lock")).await);
    rig.server(0).thaw();
    rises_without_the_first(&rig, last).await;
}

#[tokio::test]
async fn a_node_that_was_flushed_does_not_grant_what_is_held() {
    let rig = Rig::on(Nodes::start(3).await, &forgetful(3_000));
    rig.all_vote().await;
    a_lease_outlasts(rig, async |rig| {
        for node in [0, 1] {
            rig.server(node).run(&["FLUSHALL"]).await;
        }
        let found = "found without its data";
        until_health(&rig.store, "votes", Health::Outage, found).await;
    })
    .await;
}

#[tokio::test]
async fn what_somebody_else_has_written_there_is_nothing_learnt_and_of_another_type_it_is_named() {
    let rig = Rig::start(3).await;
    rig.all_vote().await;
    let last = rig.turn("lock").await;
    let garbage = [
        ("top", "much"),
        ("top", "nan"),
        ("top", "-5"),
        ("top", "1e300"),
        ("top", "18446744073709551615"),
        ("epoch", "inf"),
        ("found", "-nan"),
    ];
    for (field, text) in garbage {
        let life = rig.server(1).text(&["HGET", NODE, "life"]).await;
        rig.server(1).run(&["HSET", NODE, field, text]).await;
        until("it has learnt anew", async || {
            // A question for the checks also starts the learning.
            rig.health("votes").await;
            let now = rig.server(1).text(&["HGET", NODE, "life"]).await;
            now != life
        })
        .await;
        rig.all_vote().await;
        assert!(rig.turn("lock").await > last, "{field} {text}");
    }
    for node in [0, 1] {
        rig.server(node).run(&["DEL", NODE]).await;
        rig.server(node).run(&["SET", NODE, "theirs"]).await;
    }
    let error = rig.store.acquire(&attempt("lock")).await.unwrap_err();
    assert_eq!(error.label(), "foreign-data", "{error:?}");
    assert!(error.to_string().contains(NODE), "{error}");
    let kept = rig.server(0).text(&["GET", NODE]).await;
    assert_eq!(kept, "theirs");
}
