//! Pairs of acquire and release per second on distinct names, over 64 connections, and the processor time of each pair.
//!
//! The systems are measured in turn, in several rounds. The printed figure is the median of the ratios of each round,
//! so that the drift of a shared machine does not affect it.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::{
    bars::{self, Verdicts},
    rig::{
        Caller, Gateway, Plain, Program, RedisServer, Settings, WAIT, Webdis, WebdisCaller,
        WebdisScripts,
    },
};

/// Open connections, each with one request at a time.
const CONNECTIONS: usize = 64;
/// Webdis, with the text of the script in every call.
const WEBDIS_TEXT: &str = "Webdis, EVAL";
/// Webdis, with scripts that were loaded before.
const WEBDIS_LOADED: &str = "Webdis, EVALSHA";

static NAMES: AtomicU64 = AtomicU64::new(0);

/// How the clients of a system connect.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Native(u16),
    Webdis(SocketAddr, u16, WebdisScripts),
    Http(SocketAddr),
}

/// A client of a system.
pub(crate) enum Client {
    Native(Plain),
    Webdis(WebdisCaller),
    Http(Caller),
}

/// A system under measurement, with its name.
struct System<'a> {
    name: String,
    way: Way,
    server: Option<&'a Program>,
    redis: Option<&'a RedisServer>,
    rounds: Vec<Measured>,
}

/// The figures of a system in one round. Processor times are in microseconds for each pair.
#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    server: f64,
    redis: f64,
    clients: f64,
}

/// Measures, and judges this build.
pub(crate) async fn measure(settings: &Settings, verdicts: &mut Verdicts) {
    let redis = RedisServer::start();
    let webdis = Webdis::start(&redis);
    let (bare, null) = (Gateway::bare(), Gateway::null());
    let mut gateways = Vec::new();
    for subject in &settings.subjects {
        // Each build has its own Redis server, because another build may have another layout.
        let redis = RedisServer::start();
        let over_redis = Gateway::serving(subject, &redis.url());
        let data = tempfile::tempdir().expect("a temporary directory can be made");
        let embedded = Gateway::serving(subject, &format!("embedded:{}", data.path().display()));
        gateways.push((subject.mark, over_redis, redis, embedded, data));
    }
    same_answers(&bare, &null).await;
    let mut systems = vec![System::new(
        "native client",
        Way::Native(redis.port()),
        None,
        Some(&redis),
    )];
    if let Ok(webdis) = &webdis {
        for (name, scripts) in [
            (WEBDIS_TEXT, WebdisScripts::Text),
            (WEBDIS_LOADED, WebdisScripts::Loaded),
        ] {
            let way = Way::Webdis(webdis.address(), redis.port(), scripts);
            let server = Some(&webdis.program);
            systems.push(System::new(name, way, server, Some(&redis)));
        }
    }
    systems.push(System::serving("bare route", "", &bare, None));
    systems.push(System::serving("null store", "", &null, None));
    for (mark, over_redis, redis, embedded, _data) in &gateways {
        systems.push(System::serving("Redis", mark, over_redis, Some(redis)));
        systems.push(System::serving("embedded", mark, embedded, None));
    }
    // The first round fills caches and connections, and does not count.
    for round in 0..=settings.rounds {
        for system in &mut systems {
            let measured = system.round(settings.each).await;
            if round > 0 {
                system.rounds.push(measured);
            }
        }
    }
    print(&systems, settings);
    judge(&systems, webdis.as_ref().err(), verdicts);
    for (mark, over_redis, _, embedded, _data) in &gateways {
        for (store, gateway) in [("Redis", over_redis), ("embedded", embedded)] {
            let ready = gateway.ready_after().as_secs_f64() * 1e3;
            let kib = gateway.program.resident_kib();
            println!("  {store}{mark}: start to ready {ready:.0} ms, {kib} KiB after the load");
        }
    }
}

/// Runs pairs on this many connections for this time. Answers the number of pairs.
pub(crate) async fn load(way: Way, connections: usize, each: Duration) -> u64 {
    let mut clients = JoinSet::new();
    let started = Instant::now();
    for _ in 0..connections {
        clients.spawn(async move {
            let number = NAMES.fetch_add(1, Ordering::Relaxed);
            let mut client = Client::connect(way).await;
            let mut pairs = 0;
            while started.elapsed() < each {
                client.pair(&format!("bench:{number}:{pairs}")).await;
                pairs += 1;
            }
            pairs
        });
    }
    clients.join_all().await.into_iter().sum()
}

/// Checks that the bare route sends answers as long as the gateway's: otherwise it would be no fair ceiling.
async fn same_answers(bare: &Gateway, null: &Gateway) {
    let mut lengths = Vec::new();
    for gateway in [bare, null] {
        let mut caller = Caller::connect(gateway.address()).await;
        let token = caller.acquire("same", WAIT).await;
        let granted = caller.answered_bytes();
        caller.release("same", &token).await;
        lengths.push((granted, caller.answered_bytes()));
    }
    println!(
        "bytes of the answers to an acquire and a release: bare route {:?}, gateway {:?}",
        lengths[0], lengths[1]
    );
}

fn print(systems: &[System<'_>], settings: &Settings) {
    println!(
        "acquire and release of distinct names, {CONNECTIONS} connections, medians of {} rounds of {:?}",
        settings.rounds, settings.each
    );
    println!(
        "  {:<18} {:>8}   µs of processors for each pair: server, Redis, clients",
        "", "pairs/s"
    );
    for system in systems {
        let median = |figure: fn(&Measured) -> f64| median(system.rounds.iter().map(figure));
        println!(
            "  {:<18} {:>8.0} {:>8.1} {:>8.1} {:>8.1}",
            system.name,
            median(Measured::rate),
            median(|round| round.server),
            median(|round| round.redis),
            median(|round| round.clients),
        );
    }
}

fn judge(systems: &[System<'_>], no_webdis: Option<&String>, verdicts: &mut Verdicts) {
    let ratio = |of: &str, to: &str, figure: fn(&Measured) -> f64| {
        let find = |name: &str| systems.iter().find(|system| system.name == name);
        let (of, to) = (find(of)?, find(to)?);
        let rounds = of.rounds.iter().zip(&to.rounds);
        Some(median(rounds.map(|(of, to)| figure(of) / figure(to))))
    };
    for (bar, of, to) in [
        (Some(bars::OF_NATIVE), "Redis", "native client"),
        (Some(bars::OF_WEBDIS), "Redis", WEBDIS_TEXT),
        // The bar was set with EVAL. The ratio to EVALSHA has no bar, and is only printed.
        (None, "Redis", WEBDIS_LOADED),
        (Some(bars::EMBEDDED), "embedded", "bare route"),
        (Some(bars::EDGE), "null store", "bare route"),
    ] {
        if let Some(bar) = bar {
            match (ratio(of, to, Measured::rate), no_webdis) {
                (Some(figure), _) => verdicts.judge(&bar, figure),
                (None, why) => verdicts.not_measured(&bar, why.map_or("", String::as_str)),
            }
        }
        let other = format!("{of} (other)");
        for (of, to) in [(of, to), (&other, to), (of, &other)] {
            if let (Some(rate), Some(cpu)) = (
                ratio(of, to, Measured::rate),
                ratio(of, to, Measured::per_processor),
            ) {
                println!("  {of} / {to}: {rate:.2}, by processor time {cpu:.2}");
            }
        }
    }
}

/// The median of some figures.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

// === impl Client ===

impl Client {
    pub(crate) async fn connect(way: Way) -> Self {
        match way {
            Way::Native(port) => Self::Native(Plain::connect(port).await),
            Way::Webdis(address, redis, scripts) => {
                Self::Webdis(WebdisCaller::connect(address, redis, scripts).await)
            }
            Way::Http(address) => Self::Http(Caller::connect(address).await),
        }
    }

    /// Acquires and releases a lock that no other client uses.
    pub(crate) async fn pair(&mut self, name: &str) {
        match self {
            Self::Native(plain) => plain.pair(name).await,
            Self::Webdis(caller) => caller.pair(name).await,
            Self::Http(caller) => {
                let token = caller.acquire(name, WAIT).await;
                caller.release(name, &token).await;
            }
        }
    }
}

// === impl Measured ===

impl Measured {
    fn rate(&self) -> f64 {
        self.rate
    }

    /// Pairs for each microsecond of processor time of all processes: the rate if no other program ran and no processor
    /// waited.
    fn per_processor(&self) -> f64 {
        1.0 / (self.server + self.redis + self.clients)
    }
}

// === impl System ===

impl<'a> System<'a> {
    fn new(
        name: &str,
        way: Way,
        server: Option<&'a Program>,
        redis: Option<&'a RedisServer>,
    ) -> Self {
        let name = name.to_owned();
        Self {
            name,
            way,
            server,
            redis,
            rounds: Vec::new(),
        }
    }

    fn serving(
        name: &str,
        mark: &str,
        gateway: &'a Gateway,
        redis: Option<&'a RedisServer>,
    ) -> Self {
        let way = Way::Http(gateway.address());
        Self::new(&format!("{name}{mark}"), way, Some(&gateway.program), redis)
    }

    async fn round(&self, each: Duration) -> Measured {
        let cpu = || {
            let server = self.server.map(Program::cpu);
            let redis = self.redis.map(|redis| redis.program.cpu());
            [server, redis, Some(Program::own_cpu())].map(Option::unwrap_or_default)
        };
        let (before, started) = (cpu(), Instant::now());
        let pairs = load(self.way, CONNECTIONS, each).await as f64;
        let (rate, after) = (pairs / started.elapsed().as_secs_f64(), cpu());
        let micros =
            |part: usize| after[part].saturating_sub(before[part]).as_secs_f64() * 1e6 / pairs;
        Measured {
            rate,
            server: micros(0),
            redis: micros(1),
            clients: micros(2),
        }
    }
}
