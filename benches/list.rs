//! The cost of lists, and their effect on acquires.

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

use super::{
    bars::{self, Verdicts},
    pairs::median,
    rig::{Caller, Gateway, LONG, RedisServer, Settings, Subject},
};

/// How many locks are held.
const HELD: usize = 100_000;
/// How many leases with an idempotency key were released within the last minute.
const REMEMBERED: usize = 100_000;
/// How long a store remembers released leases.
const MEMORY: Duration = Duration::from_mins(1);
/// How many connections acquire these locks.
const TAKERS: usize = 64;
/// How many connections acquire and release during the lists.
const CALLERS: usize = 16;

/// A gateway whose lists are measured, and its Redis server.
struct Bench<'a> {
    subject: &'a Subject,
    store: &'static str,
    gateway: Gateway,
    redis: Option<RedisServer>,
}

/// The figures of a store.
struct Listed {
    first_page: f64,
    slower: f64,
    /// The processor time of a walk over all pages beside memories, in seconds.
    walk: f64,
}

/// Lists that were read one after the other.
struct Read {
    first: Vec<Duration>,
    walk: Duration,
    walk_cpu: Duration,
}

/// Measures, and judges this build.
pub(crate) async fn measure(settings: &Settings, verdicts: &mut Verdicts) {
    println!("{HELD} locks are held");
    for store in ["Redis", "embedded"] {
        let mut walks = Vec::new();
        for subject in &settings.subjects {
            let data = tempfile::tempdir().expect("a temporary directory can be made");
            let embedded = format!("embedded:{}", data.path().display());
            let redis = (store == "Redis").then(RedisServer::start);
            let url = redis.as_ref().map_or(embedded, RedisServer::url);
            let bench = Bench {
                subject,
                store,
                gateway: Gateway::serving(subject, &url),
                redis,
            };
            let listed = bench.list(settings).await;
            if subject.mark.is_empty() {
                verdicts.judge(&bars::FIRST_PAGE, listed.first_page);
                verdicts.judge(&bars::SLOWED, listed.slower);
            }
            walks.push(listed.walk);
        }
        if let [this, other] = walks[..] {
            verdicts.judge(&bars::REMEMBERING, this / other);
        }
    }
}

/// Acquires and releases locks with idempotency keys, so that the store remembers them.
async fn remember(gateway: &Gateway) {
    let mut takers = JoinSet::new();
    for taker in 0..TAKERS {
        let address = gateway.address();
        takers.spawn(async move {
            let mut caller = Caller::connect(address).await;
            for number in (taker..REMEMBERED).step_by(TAKERS) {
                let name = format!("ended:{number}");
                let token = caller.acquire_keyed(&name).await;
                caller.release(&name, &token).await;
            }
        });
    }
    takers.join_all().await;
}

/// Acquires locks, and keeps them for longer than the benchmark runs.
async fn take(gateway: &Gateway) {
    let mut takers = JoinSet::new();
    for taker in 0..TAKERS {
        let address = gateway.address();
        takers.spawn(async move {
            let mut caller = Caller::connect(address).await;
            for number in (taker..HELD).step_by(TAKERS) {
                let name = format!("held:{number}");
                caller.acquire(&name, LONG).await;
            }
        });
    }
    takers.join_all().await;
}

/// The 99th percentile of the times of acquires of free locks, alone or during lists that are read one after the other.
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
                // A page from time to time, as a dashboard or a script asks for it, and not as fast as possible.
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

/// Reads all pages.
async fn walk(lister: &mut Caller) {
    let mut next = lister.list("?limit=1000").await;
    while let Some(cursor) = next {
        next = lister.list(&format!("?limit=1000&cursor={cursor}")).await;
    }
}

// === impl Bench ===

impl Bench<'_> {
    async fn list(&self, settings: &Settings) -> Listed {
        let (gateway, whose) = (
            &self.gateway,
            format!("{}{}", self.store, self.subject.mark),
        );
        take(gateway).await;
        let alone = self.read("with nothing else").await;
        let mut ratios = Vec::new();
        for _ in 0..settings.rounds {
            let alone = p99(gateway, settings.each, None).await;
            let pages = p99(gateway, settings.each, Some("")).await;
            let needle = p99(gateway, settings.each, Some("?prefix=nobody")).await;
            println!(
                "  {whose}: p99 of an acquire {alone:.1?}; with first pages {pages:.1?}, with a \
                 prefix that nothing has {needle:.1?}"
            );
            ratios.push(pages.max(needle).as_secs_f64() / alone.as_secs_f64());
        }
        let began = Instant::now();
        remember(gateway).await;
        let beside = self.read(&format!("beside {REMEMBERED} memories")).await;
        let took = began.elapsed();
        if took > MEMORY {
            println!("  {whose}: too slow a machine: in {took:.0?} some were forgotten");
        }
        let worst = alone.first.iter().chain(&beside.first).max();
        Listed {
            first_page: worst.expect("there are some").as_secs_f64() * 1e3,
            slower: median(ratios.into_iter()),
            walk: beside.walk_cpu.as_secs_f64(),
        }
    }

    /// Reads a hundred first pages, and all pages once.
    async fn read(&self, when: &str) -> Read {
        let mut lister = Caller::connect(self.gateway.address()).await;
        let mut first = Vec::new();
        for _ in 0..100 {
            let asked = Instant::now();
            lister.list("").await;
            first.push(asked.elapsed());
        }
        first.sort();
        let (began, cpu) = (Instant::now(), self.cpu());
        walk(&mut lister).await;
        let read = Read {
            first,
            walk: began.elapsed(),
            walk_cpu: self.cpu().saturating_sub(cpu),
        };
        println!(
            "  {}{} {when}: first page median {:.1?}, worst {:.1?}; a walk through all {:.2?}, {:.2?} of processor",
            self.store, self.subject.mark, read.first[50], read.first[99], read.walk, read.walk_cpu
        );
        read
    }

    /// The processor time of gateway and Redis together.
    fn cpu(&self) -> Duration {
        let redis = self.redis.as_ref().map(|redis| redis.program.cpu());
        self.gateway.program.cpu() + redis.unwrap_or_default()
    }
}
