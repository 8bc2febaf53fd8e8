//! Acquire and release pairs per second on distinct names, over 64 connections, as ratios.
//!
//! One run measures five systems in turn, several rounds, and prints the median of the ratios of each
//! round, so that the drift of a shared machine falls out of the result. `benches/README.md` says what
//! each number means.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its figures"
)]

mod http_load;
mod null_gateway;
mod report;
mod resp_load;
mod servers;

use std::{process::ExitCode, time::Duration};

use report::{Round, Rounds};
use servers::{Gateway, RedisServer};

/// Connections that are busy at the same time, each with one request under way.
const CONNECTIONS: usize = 64;

fn main() -> ExitCode {
    if null_gateway::asked_for() {
        return null_gateway::run();
    }
    let seconds = setting("LG_BENCH_SECONDS", 3);
    let rounds = setting("LG_BENCH_ROUNDS", 5);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime
        .block_on(measure(Duration::from_secs(seconds), rounds))
        .print();
    ExitCode::SUCCESS
}

async fn measure(each: Duration, rounds: u64) -> Rounds {
    let redis = RedisServer::start();
    let data = tempfile::tempdir().expect("a temporary directory can be made");
    let native = resp_load::Client::new(redis.port());
    let null = Gateway::null();
    let over_redis = Gateway::serving(&format!("redis://127.0.0.1:{}", redis.port()));
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
    results
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark takes its settings from the environment"
)]
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
