//! The cost of shared locks, and of groups.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    bars::{self, Verdicts},
    pairs::median,
    rig::{Caller, Gateway, RedisServer, Settings},
};

const READERS: usize = 999;
const SHARED: &str = r#"{"mode":"shared"}"#;
const SHARED_LONG: &str = r#"{"mode":"shared","ttl_ms":3600000}"#;
/// How many pairs of one kind run before the other kind has its turn.
const BATCH: u32 = 200;

const CLIENTS: usize = 100;
const PLACES: u64 = 10;
const ALONE_WAIT: &str = r#"{"wait_ms":55000}"#;
const PLACE_WAIT: &str = r#"{"mode":"shared","limit":10,"wait_ms":55000}"#;
/// How long a lock is held where the holders limit the rate, and not the processors.
const WORK: Duration = Duration::from_millis(5);

const GROUP_CLIENTS: usize = 50;
const GROUP_NAMES: usize = 12;
const GROUP: usize = 4;

/// The figures of clients that take turns for some time.
struct Turns {
    per_second: f64,
    /// The average number of leases that held the lock at once.
    at_once: f64,
    least: u64,
    most: u64,
}

/// Measures this build only: other builds may not know shared locks.
pub(crate) async fn measure(settings: &Settings, verdicts: &mut Verdicts) {
    let redis = RedisServer::start();
    let over_redis = Gateway::serving_a_crowd(&settings.subjects[0], &redis.url());
    let data = tempfile::tempdir().expect("a temporary directory can be made");
    let store = format!("embedded:{}", data.path().display());
    let embedded = Gateway::serving_a_crowd(&settings.subjects[0], &store);
    for (store, gateway) in [("Redis", &over_redis), ("embedded", &embedded)] {
        println!("{store}");
        let address = gateway.address();
        let judged = store == "Redis";
        let one_more = one_more_reader(address, settings).await;
        let semaphore = semaphore(address, settings).await;
        let served = groups(address, settings).await;
        if judged {
            verdicts.judge(&bars::ONE_MORE_READER, one_more);
            verdicts.judge(&bars::SEMAPHORE, semaphore);
            verdicts.judge(&bars::GROUPS_SERVED, served);
        }
    }
}

/// The time of a pair of one further lease on a lock with many shared leases, as a ratio to the time of an exclusive
/// pair.
async fn one_more_reader(address: SocketAddr, settings: &Settings) -> f64 {
    let mut caller = Caller::connect(address).await;
    for _ in 0..READERS {
        caller.acquire("read", SHARED_LONG).await;
    }
    let mut ratios = Vec::new();
    for round in 0..=settings.rounds {
        let mut took = [Duration::ZERO; 2];
        let started = Instant::now();
        while started.elapsed() < settings.each {
            for (took, (name, body)) in took.iter_mut().zip([("alone", ""), ("read", SHARED)]) {
                let started = Instant::now();
                for _ in 0..BATCH {
                    let token = caller.acquire(name, body).await;
                    caller.release(name, &token).await;
                }
                *took += started.elapsed();
            }
        }
        if round > 0 {
            ratios.push(took[1].as_secs_f64() / took[0].as_secs_f64());
        }
    }
    let ratio = median(ratios.iter().copied());
    println!(
        "  one more beside {READERS} readers, one connection: {ratio:.2} of an exclusive pair {ratios:.2?}"
    );
    ratio
}

/// Turns at a lock with a limit of ten, as a ratio to turns at an exclusive lock times the number of leases at once.
async fn semaphore(address: SocketAddr, settings: &Settings) -> f64 {
    let mut least = f64::INFINITY;
    for work in [Duration::ZERO, WORK] {
        let mut ratios = Vec::new();
        for round in 0..=settings.rounds {
            let one = turns(address, ALONE_WAIT, work, settings.each).await;
            let ten = turns(address, PLACE_WAIT, work, settings.each).await;
            let at_once = if work.is_zero() { 1.0 } else { ten.at_once };
            let ratio = ten.per_second / (one.per_second * at_once);
            if round > 0 {
                ratios.push(ratio);
            }
            println!(
                "  {round}: {CLIENTS} clients that hold for {work:?}: one lock {:.0}/s, {PLACES} places {:.0}/s with {:.1} \
                 holders at once (turns {} to {}): {ratio:.2}",
                one.per_second, ten.per_second, ten.at_once, ten.least, ten.most
            );
        }
        least = least.min(median(ratios.into_iter()));
    }
    least
}

async fn turns(address: SocketAddr, body: &'static str, work: Duration, each: Duration) -> Turns {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let name = format!("turns:{}", NAMES.fetch_add(1, Ordering::Relaxed));
    let (over, started) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (name, over) = (name.clone(), Arc::clone(&over));
        clients.spawn(async move {
            let mut caller = Caller::connect(address).await;
            let (mut turns, mut held) = (0, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                let Some(token) = caller.try_acquire(&name, body).await else {
                    continue;
                };
                let since = Instant::now();
                if !work.is_zero() {
                    sleep(work).await;
                }
                caller.release(&name, &token).await;
                held += since.elapsed();
                turns += 1;
            }
            (turns, held)
        });
    }
    sleep(each).await;
    over.store(true, Ordering::Relaxed);
    let (turns, held): (Vec<u64>, Vec<Duration>) = clients.join_all().await.into_iter().unzip();
    let took = started.elapsed().as_secs_f64();
    Turns {
        per_second: turns.iter().sum::<u64>() as f64 / took,
        at_once: held.iter().sum::<Duration>().as_secs_f64() / took,
        least: turns.iter().copied().min().unwrap_or_default(),
        most: turns.iter().copied().max().unwrap_or_default(),
    }
}

/// Clients that acquire four of twelve locks as a group. Answers the fewest turns of a client.
async fn groups(address: SocketAddr, settings: &Settings) -> f64 {
    let (over, started) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let mut clients = JoinSet::new();
    for client in 0..GROUP_CLIENTS {
        let over = Arc::clone(&over);
        clients.spawn(async move {
            let mut caller = Caller::connect(address).await;
            let (mut turns, mut refused, mut longest) = (0_u64, 0_u64, Duration::ZERO);
            for turn in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                // Each group overlaps with most other groups, and names its locks in another order than that of the
                // acquire.
                let step = [1, 5, 7, 11][(client + turn) % 4];
                let names: Vec<_> = (0..GROUP)
                    .map(|part| format!("group:{}", (client + part * step) % GROUP_NAMES))
                    .collect();
                let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
                let body = format!(r#"{{"names":[{}],"wait_ms":55000}}"#, quoted.join(","));
                let asked = Instant::now();
                let Some(token) = caller.try_acquire_group(&body).await else {
                    refused += 1;
                    continue;
                };
                longest = longest.max(asked.elapsed());
                caller.release_group(&names.join(","), &token).await;
                turns += 1;
            }
            (turns, refused, longest)
        });
    }
    sleep(settings.each).await;
    over.store(true, Ordering::Relaxed);
    let served = clients.join_all().await;
    let took = started.elapsed().as_secs_f64();
    let turns = || served.iter().map(|(turns, ..)| *turns);
    let least = turns().min().unwrap_or_default();
    println!(
        "  {GROUP_CLIENTS} clients, groups of {GROUP} of {GROUP_NAMES} names: {:.0} groups/s, turns {least} to {}, longest wait {:.1?}, {} refused",
        turns().sum::<u64>() as f64 / took,
        turns().max().unwrap_or_default(),
        served
            .iter()
            .map(|(.., longest)| *longest)
            .max()
            .unwrap_or_default(),
        served.iter().map(|(_, refused, _)| refused).sum::<u64>(),
    );
    least as f64
}
