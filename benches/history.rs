//! The price of the history of locks: pairs of acquire and release with the history, and without it, in the same rounds.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::{
    bars::{self, Verdicts},
    pairs::median,
    rig::{Caller, Gateway, Program, RedisServer, Settings, WAIT},
};

/// Open connections, each with one request at a time.
const CONNECTIONS: u64 = 64;

/// How long each lease lives, and among how many names. A lock that is leases for two seconds has half a pair in a second,
/// so one name is measured with short leases only.
const SHAPES: [(&str, Duration, u64); 3] = [
    ("short leases, 1 name", Duration::ZERO, 1),
    ("short leases, 100,000 names", Duration::ZERO, 100_000),
    (
        "leases of 2 s, 100,000 names",
        Duration::from_secs(2),
        100_000,
    ),
];

/// What one gateway did in one round.
struct Measured {
    rate: f64,
    /// Pairs for each microsecond of processor time of gateway, Redis and clients.
    per_processor: f64,
}

/// Measures both gateways over each store, and judges the worse ratio of each shape.
pub(crate) async fn measure(settings: &Settings, verdicts: &mut Verdicts) {
    let subject = &settings.subjects[0];
    let servers = [RedisServer::start(), RedisServer::start()];
    let data = [tempfile::tempdir(), tempfile::tempdir()]
        .map(|it| it.expect("a temporary directory can be made"));
    let redis = [0, 1].map(|at| {
        let gateway = Gateway::serving_with_history(subject, &servers[at].url(), at == 0);
        (gateway, Some(&servers[at].program))
    });
    let embedded = [0, 1].map(|at| {
        let url = format!("embedded:{}", data[at].path().display());
        (Gateway::serving_with_history(subject, &url, at == 0), None)
    });
    for (shape, hold, names) in SHAPES {
        for (store, gateways) in [("Redis", &redis), ("embedded", &embedded)] {
            let mut rounds = Vec::new();
            // The first round fills caches and connections, and does not count.
            for round in 0..=settings.rounds {
                let mut measured = [const { None }; 2];
                // In turns, each of the two is measured first.
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                for at in order {
                    let (gateway, redis) = &gateways[at];
                    let programs = [Some(&gateway.program), *redis];
                    let round = one_round(gateway, programs, hold, names, settings.each).await;
                    measured[at] = Some(round);
                }
                if round > 0 {
                    rounds.push(measured.map(|it| it.expect("both are measured")));
                }
            }
            let ratio = |figure: fn(&Measured) -> f64| {
                median(rounds.iter().map(|[on, off]| figure(on) / figure(off)))
            };
            let (rate, cpu) = (ratio(|it| it.rate), ratio(|it| it.per_processor));
            let on = median(rounds.iter().map(|[on, _]| on.rate));
            println!(
                "  {store}, {shape}: {on:.0} pairs/s; with history / without {rate:.3}, by processor time {cpu:.3}"
            );
            verdicts.judge(&bars::WITH_HISTORY, rate.max(cpu));
        }
    }
}

async fn one_round(
    gateway: &Gateway,
    programs: [Option<&Program>; 2],
    hold: Duration,
    names: u64,
    each: Duration,
) -> Measured {
    let cpu = || {
        let used = programs.iter().flatten().map(|program| program.cpu());
        used.sum::<Duration>() + Program::own_cpu()
    };
    let (before, started) = (cpu(), Instant::now());
    let pairs = load(gateway, hold, names, each).await as f64;
    Measured {
        rate: pairs / started.elapsed().as_secs_f64(),
        per_processor: pairs / cpu().saturating_sub(before).as_secs_f64() / 1e6,
    }
}

/// Runs pairs for this time, after a first `hold`. Answers their number.
async fn load(gateway: &Gateway, hold: Duration, names: u64, each: Duration) -> u64 {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let mut clients = JoinSet::new();
    let (address, end) = (gateway.address(), Instant::now() + hold + each);
    for _ in 0..CONNECTIONS {
        clients.spawn(async move {
            let mut caller = Caller::connect(address).await;
            let (mut leases, mut pairs) = (VecDeque::new(), 0);
            while Instant::now() < end {
                let name = NAMES.fetch_add(1, Ordering::Relaxed) % names;
                let name = format!("bench:{name}");
                let token = caller.acquire(&name, WAIT).await;
                leases.push_back((Instant::now() + hold, name, token));
                while leases
                    .front()
                    .is_some_and(|(until, ..)| *until <= Instant::now())
                {
                    let (_, name, token) = leases.pop_front().expect("it was seen");
                    caller.release(&name, &token).await;
                    pairs += 1;
                }
            }
            for (_, name, token) in leases {
                caller.release(&name, &token).await;
                pairs += 1;
            }
            pairs
        });
    }
    clients.join_all().await.into_iter().sum()
}
