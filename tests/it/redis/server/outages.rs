//! The log of an outage: one line when a store goes away, and one when it is back. No requests are sent meanwhile,
//! except where a test does so.

use crate::redis::prelude::*;
use crate::{api::fixture::Lines, redlock};

const AWAY: &str = "the store's server is unavailable";
const BACK: &str = "the store's server is available again";

/// The log lines with all of these words.
fn logged(lines: &Lines, words: &[&str]) -> Vec<String> {
    let all = lines.read();
    let has = |line: &&str| words.iter().all(|word| line.contains(word));
    all.lines().filter(has).map(str::to_owned).collect()
}

/// Waits until this number of servers was examined and found to be well.
async fn found_well(lines: &Lines, servers: usize) {
    until("the servers were examined", async || {
        let well = logged(
            lines,
            &["check=\"connection\"", "a check of the store passes"],
        );
        well.len() == servers
    })
    .await;
}

/// Waits for a log line with these words, and asserts that it is the only one.
async fn logs_once(lines: &Lines, words: &[&str]) {
    eventually(words[0], async || {
        (!logged(lines, words).is_empty()).then_some(())
    })
    .await;
    assert_eq!(logged(lines, words).len(), 1, "{}", lines.read());
}

/// Kills a server and starts it again. Each must be one log line, which names the server.
async fn goes_and_comes_back(lines: &Lines, server: &mut RedisServer) {
    let node = format!("node=\"127.0.0.1:{}\"", server.port());
    server.kill();
    logs_once(lines, &[AWAY, "WARN", &node, "reason="]).await;
    server.start_again().await;
    logs_once(lines, &[BACK, "INFO", &node]).await;
    logs_once(lines, &[AWAY, &node]).await;
}

#[tokio::test]
async fn a_redis_that_goes_away_is_one_line_however_many_callers_are_refused() {
    let lines = Lines::default();
    let _collecting = lines.collect();
    let mut server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let store = open(&server.url_as("default", "s3cret"));
    found_well(&lines, 1).await;
    goes_and_comes_back(&lines, &mut server).await;

    server.kill();
    // The refusals take longer than the pause between two examinations.
    for _ in 0..3 {
        store.acquire(&attempt("refused")).await.unwrap_err();
    }
    server.start_again().await;
    until("it is back", async || logged(&lines, &[BACK]).len() == 2).await;
    assert_eq!(logged(&lines, &["WARN"]).len(), 2, "{}", lines.read());
    assert!(!lines.read().contains("s3cret"));
}

#[tokio::test]
async fn a_redis_that_hangs_is_one_line_on_an_idle_gateway() {
    let lines = Lines::default();
    let _collecting = lines.collect();
    let server = RedisServer::start().await;
    let _store = open(&server.url());
    found_well(&lines, 1).await;
    server.freeze();
    logs_once(&lines, &[AWAY]).await;
    server.thaw();
    logs_once(&lines, &[BACK]).await;
}

#[tokio::test]
async fn a_master_of_sentinels_that_goes_away_is_one_line() {
    let lines = Lines::default();
    let _collecting = lines.collect();
    let mut watched = Watched::start_small().await;
    let _store = open(&watched.url());
    found_well(&lines, 1).await;
    goes_and_comes_back(&lines, &mut watched.servers[0]).await;
}

#[tokio::test]
async fn a_master_of_a_cluster_that_goes_away_is_one_line() {
    let lines = Lines::default();
    let _collecting = lines.collect();
    let mut cluster = Cluster::start(3, false, NEVER).await;
    let _store = open(&cluster.url());
    found_well(&lines, 3).await;
    goes_and_comes_back(&lines, &mut cluster.servers[0]).await;
}

#[tokio::test]
async fn a_node_of_a_quorum_that_goes_away_is_one_line_and_so_is_the_loss_of_the_majority() {
    let lines = Lines::default();
    let _collecting = lines.collect();
    let mut nodes = redlock::nodes::Nodes::start(3).await;
    let _store = nodes.open(&Lifecycle::new());
    found_well(&lines, 3).await;
    goes_and_comes_back(&lines, &mut nodes.servers[0]).await;
    let majority = "majority of its nodes";
    assert_eq!(logged(&lines, &[majority]), [""; 0]);

    for server in &mut nodes.servers[1..] {
        server.kill();
    }
    logs_once(
        &lines,
        &[
            "the store is unavailable",
            "WARN",
            majority,
            "reached=1 of=3",
        ],
    )
    .await;
    nodes.servers[1].start_again().await;
    logs_once(&lines, &["the store is available again", "INFO", majority]).await;
}
