//! A rolling restart: no client loses its lock, and none sees more than requests that it may repeat.

use tokio::task::spawn_blocking;

use super::{
    client::Load,
    gateways::Gateways,
    observer::{left, observe},
    plain,
    runs::Running,
    streams,
};
use crate::support::Tally;
use crate::support::prelude::*;

/// The number of clients of each kind: a hundred in all.
const ACQUIRERS: usize = 40;
const STREAMS: usize = 20;
const STREAMS_IN_TURN: usize = 10;
const RENEWERS: usize = 20;
const RUNS: usize = 10;
/// The order of the restarts: one gateway after the other, and both once again.
const RESTARTS: [usize; 4] = [0, 1, 0, 1];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_costs_nobody_a_lock_and_no_client_more_than_a_clean_retry() {
    let mut gateways = Gateways::start().await;
    let load = Arc::new(Load::new(gateways.addresses));
    let mut clients = JoinSet::new();
    for number in 0..STREAMS {
        clients.spawn(streams::hold(Arc::clone(&load), number));
    }
    for number in 0..STREAMS_IN_TURN {
        clients.spawn(streams::take_turns(Arc::clone(&load), number));
    }
    for number in 0..RENEWERS {
        clients.spawn(plain::renew(Arc::clone(&load), number));
    }
    for number in 0..ACQUIRERS {
        clients.spawn(plain::take_turns(Arc::clone(&load), number));
    }
    let urls = gateways.urls();
    let runs = spawn_blocking(move || {
        let run = |number| Running::start(&urls, number);
        (0..RUNS).map(run).collect::<Vec<_>>()
    });
    let runs = runs.await.unwrap();

    let kept = [("held", STREAMS), ("renewed", RENEWERS), ("run", RUNS)];
    let kept: Vec<_> = kept
        .into_iter()
        .flat_map(|(kind, count)| (0..count).map(move |number| format!("{kind}:{number}")))
        .collect();
    eventually("everybody has a lock of their own", async || {
        let held = left(&gateways.redis).await;
        let is_held = |name: &String| held.contains(&format!("lg:{{{name}}}:lock"));
        kept.iter().all(is_held).then_some(())
    })
    .await;
    let in_turn = (0..4).map(|number| format!("turns:{number}"));
    let in_turn = in_turn.chain((0..2).map(|number| format!("streams:{number}")));
    let mut observer = JoinSet::new();
    let redis = gateways.redis.connection().await;
    observer.spawn(observe(Arc::clone(&load), redis, kept, in_turn.collect()));

    goes_on(&load.tally).await;
    let began = Instant::now();
    for number in RESTARTS {
        gateways.restart(number, &load.tally).await;
        goes_on(&load.tally).await;
    }
    let took = began.elapsed();
    load.end();
    clients.join_all().await;
    let least = observer.join_all().await[0];
    let runs = spawn_blocking(move || runs.into_iter().map(Running::end).sum::<usize>());
    let renewed_again = runs.await.unwrap();

    println!("{} restarts in {took:.1?}\n{}", RESTARTS.len(), load.tally);
    println!("{renewed_again:>8}  renewals by run that were tried again");
    println!(
        "{:>6}ms  left of a lease of 7.5 s, the least",
        least.as_millis()
    );
    // No lease was near its end.
    assert!(least >= Duration::from_millis(7_500) / 3, "{least:?}");
    assert!(left(&gateways.redis).await.is_empty());
    // With fewer adoptions, there was no load or no restart.
    let all = u64::try_from(STREAMS).unwrap();
    let adoptions = load.tally.total("adoptions by streams");
    assert!(adoptions >= 7 * all / 2, "{adoptions} adoptions");
    let logs = gateways.logs();
    assert!(!logs.contains(" ERROR "), "{logs}");
}

/// Waits until clients of each kind have made progress.
async fn goes_on(tally: &Tally) {
    const PROGRESS: [(&str, u64); 4] = [
        ("grants to acquirers", 2 * ACQUIRERS as u64),
        ("grants to streams in turn", 2 * STREAMS_IN_TURN as u64),
        ("renewals", RENEWERS as u64),
        ("renewals by streams", STREAMS as u64 / 2),
    ];
    let before = PROGRESS.map(|(what, _)| tally.total(what));
    eventually("all go on", async || {
        let is_there =
            |(before, (what, more)): (u64, (&str, u64))| tally.total(what) >= before + more;
        let all = before.into_iter().zip(PROGRESS).all(is_there);
        all.then_some(())
    })
    .await;
}
