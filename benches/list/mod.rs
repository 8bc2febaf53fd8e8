//! What it costs to list, and what a list costs those who acquire meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::rig::{Caller, Gateway, RedisServer, setting};

/// How many locks are held.
const HELD: usize = 100_000;
/// How many connections take them.
const TAKERS: usize = 64;
/// How many connections acquire and release while there is a list.
const CALLERS: usize = 16;
/// The bars: the first page, and what the p99 of an acquire may become.
const FIRST_PAGE: Duration = Duration::from_millis(50);
const SLOWER: f64 = 2.0;

/// Prints the figures; false if a bar was not met.
pub(crate) async fn measure() -> bool {
    let redis = RedisServer::start();
    let data = tempfile::tempdir().expect("a temporary directory can be made");
    println!("{HELD} locks are held");
    let embedded = format!("embedded:{}", data.path().display());
    let mut met = true;
    for (name, store) in [("embedded", embedded), ("Redis", redis.url())] {
        met &= on(name, &Gateway::serving(&store)).await;
    }
    met
}

async fn on(store: &str, gateway: &Gateway) -> bool {
    take(gateway).await;
    let rounds = setting("LG_BENCH_ROUNDS", 5);
    let each = Duration::from_secs(setting("LG_BENCH_SECONDS", 3));
    let mut lister = Caller::connect(gateway.address()).await;
    let mut first = Vec::new();
    for _ in 0..20 * rounds {
        let asked = Instant::now();
        lister.list("").await;
        first.push(asked.elapsed());
    }
    first.sort();
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let alone = p99(gateway, each, None).await;
        let pages = p99(gateway, each, Some("")).await;
        let needle = p99(gateway, each, Some("?prefix=nobody")).await;
        println!(
            "  {store:<9} p99 of an acquire: {alone:.1?}; with first pages {pages:.1?}, with a \
             prefix that nothing has {needle:.1?}"
        );
        let slower = pages.max(needle).as_secs_f64() / alone.as_secs_f64();
        ratios.push(slower);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    let (median, worst) = (first[first.len() / 2], first[first.len() - 1]);
    let walked = walk(&mut lister).await;
    println!(
        "  {store:<9} first page: median {median:.1?}, worst {worst:.1?} (bar {FIRST_PAGE:.0?}); \
         acquires {ratio:.2} times as slow (bar {SLOWER}); a walk through all: {walked:.1?}"
    );
    worst <= FIRST_PAGE && ratio <= SLOWER
}

/// Takes locks and keeps them for longer than this runs.
async fn take(gateway: &Gateway) {
    let mut takers = JoinSet::new();
    for taker in 0..TAKERS {
        let address = gateway.address();
        takers.spawn(async move {
            let mut caller = Caller::connect(address).await;
            for number in (taker..HELD).step_by(TAKERS) {
                let name = format!("held:{number}");
                caller.acquire(&name, r#"{"ttl_ms":3600000}"#).await;
            }
        });
    }
    takers.join_all().await;
}

/// How long an acquire of a free lock takes, of a hundred the second longest: alone, or while
/// somebody asks for one list after the other.
async fn p99(gateway: &Gateway, each: Duration, list: Option<&'static str>) -> Duration {
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let (over, address) = (Arc::clone(&over), gateway.address());
        callers.spawn(async move {
            let mut caller = Caller::connect(address).await;
            let mut took = Vec::new();
            for turn in 0_u64.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("free:{number}:{turn}");
                let asked = Instant::now();
                let token = caller.acquire(&name, "").await;
                took.push(asked.elapsed());
                caller.release(&name, &token).await;
            }
            took
        });
    }
    if let Some(query) = list {
        let (over, address) = (Arc::clone(&over), gateway.address());
        callers.spawn(async move {
            let mut caller = Caller::connect(address).await;
            while !over.load(Ordering::Relaxed) {
                caller.list(query).await;
                // A page now and then, as a dashboard or a script asks, and not a load of its own.
                sleep(Duration::from_millis(50)).await;
            }
            Vec::new()
        });
    }
    sleep(each).await;
    over.store(true, Ordering::Relaxed);
    let mut took: Vec<Duration> = callers.join_all().await.into_iter().flatten().collect();
    took.sort();
    took[took.len() * 99 / 100]
}

/// Walks through all pages.
async fn walk(lister: &mut Caller) -> Duration {
    let started = Instant::now();
    let mut next = lister.list("?limit=1000").await;
    while let Some(cursor) = next {
        next = lister.list(&format!("?limit=1000&cursor={cursor}")).await;
    }
    started.elapsed()
}
