//! A part of the corpus over Redis: the edge is the same, what lies behind it is not.

use crate::support::{RedisServer, gateway::Setup};

use super::{bench::Bench, case::Case, json, metadata, names};

#[tokio::test]
async fn nothing_is_written_for_what_is_refused() {
    let server = RedisServer::start().await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let setup = Setup::default().with("LATCHGATE_STORE", &url);
    let bench = Bench::start_with(setup, "").await;
    let cases: Vec<Case> = [names::cases(), json::cases(), metadata::cases()]
        .into_iter()
        .flatten()
        .collect();
    bench.run(cases).await;
    let keys = server.keys().await;
    // Of the locks that were granted and released, nothing but counters.
    let others = keys
        .iter()
        .filter(|key| !key.ends_with(":fence") && !key.contains("{witness}"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}
