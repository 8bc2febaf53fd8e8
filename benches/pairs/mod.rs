//! Acquire and release pairs per second on distinct names, over 64 connections.
//!
//! The systems are measured in turn, several rounds, and the median of the ratios of each round is
//! printed, so that the drift of a shared machine falls out of the result.

mod http_load;
mod report;
mod resp_load;

use std::time::Duration;

use super::rig::{Gateway, RedisServer, setting};
use report::{Round, Rounds};

/// Connections that are busy at the same time, each with one request under way.
const CONNECTIONS: usize = 64;

/// Prints the figures; false if a bar was not met.
pub(crate) async fn measure() -> bool {
    let each = Duration::from_secs(setting("LG_BENCH_SECONDS", 3));
    let rounds = setting("LG_BENCH_ROUNDS", 5);
    let redis = RedisServer::start();
    let data = tempfile::tempdir().expect("a temporary directory can be made");
    let native = resp_load::Client::new(redis.port());
    let null = Gateway::null();
    let over_redis = Gateway::serving(&redis.url());
    let embedded = Gateway::serving(&format!("embedded:{}", data.path().display()));
    let mut results = Rounds::default();
    for round in 0..=rounds {
        let measured = Round {
            native: native.pairs_per_second(CONNECTIONS, each).await,
            redis: http_load::pairs_per_second(over_redis.address(), CONNECTIONS, each).await,
            null: http_load::pairs_per_second(null.address(), CONNECTIONS, each).await,
            embedded: http_load::pairs_per_second(embedded.address(), CONNECTIONS, each).await,
        };
        eprintln!("{round}: {measured:.0?}");
        // The first round warms up caches and connections.
        if round > 0 {
            results.push(measured);
        }
    }
    results.footprint(&over_redis, &embedded);
    results.print()
}
