//! What it costs to wait for a lock, and to hold one by a connection.

mod cycling;
mod parked;

use std::time::Duration;

use super::rig::{Gateway, RedisServer, setting};

/// Prints the figures; false if a bar was not met.
pub(crate) async fn measure() -> bool {
    let each = Duration::from_secs(setting("LG_BENCH_SECONDS", 3));
    let redis = RedisServer::start();
    let data = tempfile::tempdir().expect("a temporary directory can be made");
    let mut met = true;
    println!("clients that take ONE lock in turns, at one gateway");
    {
        let embedded = Gateway::serving_a_crowd(&format!("embedded:{}", data.path().display()));
        for clients in [10, 100, 1_000] {
            let cycled = cycling::measure(&embedded, clients, each).await;
            println!("  embedded {clients:>6} clients  {cycled}");
        }
    }
    let gateway = Gateway::serving_a_crowd(&redis.url());
    let mut costs = Vec::new();
    for clients in [10, 100, 1_000, 10_000] {
        let before = redis.commands().await;
        let cycled = cycling::measure(&gateway, clients, each).await;
        let cost = (redis.commands().await - before) as f64 / cycled.hand_offs as f64;
        println!("  Redis    {clients:>6} clients  {cycled}, {cost:.1} Redis commands each");
        if clients == 100 {
            met &= cycled.per_second() >= 3_500.0 && cycled.spread() <= 2;
        }
        costs.push(cost);
    }
    met &= costs[3] < 1.5 * costs[0];
    println!("10,000 that wait, and nothing happens");
    met &= parked::on_one_name(&redis).await;
    met &= parked::on_a_name_each(&redis).await;
    println!("1,000 locks held by a connection each");
    parked::held(&redis).await;
    met
}
