//! The cost of waits, of holds, and of hang-ups.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    bars::{self, Verdicts},
    pairs::{self, Client, Way, median},
    rig::{Caller, Gateway, LONG, RedisServer, Settings, Subject},
};

const WAITERS: u64 = 10_000;
const HOLDS: u64 = 1_000;
/// How often the clients hang up: a single time says little about milliseconds.
const HANG_UPS: u32 = 3;
/// How long the gateway is idle: several of its periods.
const IDLE: Duration = Duration::from_secs(8);
/// The time within which all waiters hang up.
const HANG_UP: Duration = Duration::from_secs(1);
const PATIENT: &str = r#"{"wait_ms":55000}"#;

static NAMES: AtomicU64 = AtomicU64::new(0);

/// Clients that take turns at one lock.
pub(crate) struct Crowd {
    callers: JoinSet<(u64, u64)>,
    over: Arc<AtomicBool>,
    all: Arc<AtomicU64>,
    started: Instant,
}

/// The turns of a crowd.
pub(crate) struct Cycled {
    hand_offs: u64,
    took: Duration,
    least: u64,
    most: u64,
    /// Requests that were refused: the store may be too slow for a crowd.
    refused: u64,
}

/// The figures of many hang-ups.
#[derive(Clone, Copy)]
struct HungUp {
    /// The time from the release until the next waiter was granted the lock.
    granted: Duration,
    /// The Redis commands from the first hang-up until the queue was empty.
    commands: u64,
}

/// A build under measurement, with its figures.
struct Bench<'a> {
    subject: &'a Subject,
    redis: RedisServer,
    gateway: Gateway,
    rates: Vec<f64>,
    of_native: Vec<f64>,
}

/// Measures, and judges this build.
pub(crate) async fn measure(settings: &Settings, verdicts: &mut Verdicts) {
    let mut benches: Vec<Bench<'_>> = settings.subjects.iter().map(Bench::start).collect();
    println!("{WAITERS} on one name that hang up within {HANG_UP:?}");
    let mut hung_up = vec![Vec::new(); benches.len()];
    for _ in 0..HANG_UPS {
        for (bench, of_bench) in benches.iter().zip(&mut hung_up) {
            of_bench.push(bench.hang_up().await);
        }
    }
    let granted = |of: &[HungUp]| median(of.iter().map(|one| one.granted.as_secs_f64() * 1e3));
    let commands = |of: &[HungUp]| median(of.iter().map(|one| one.commands as f64));
    verdicts.judge(&bars::HUNG_UP, granted(&hung_up[0]));
    if let [this, other] = &hung_up[..] {
        verdicts.judge(&bars::HANG_UP_COMMANDS, commands(this) / commands(other));
    }
    println!("{WAITERS} that wait, and nothing happens");
    for bench in &benches {
        let sizes = [bench.on_one_name().await, bench.on_a_name_each().await];
        if bench.is_judged() {
            verdicts.judge(&bars::WAITER_KIB, sizes[0].max(sizes[1]));
        }
    }
    println!("{HOLDS} locks held by a connection each");
    for bench in &benches {
        bench.held().await;
    }
    hand_offs(&mut benches, settings, verdicts).await;
}

async fn hand_offs(benches: &mut [Bench<'_>], settings: &Settings, verdicts: &mut Verdicts) {
    println!("clients that take ONE lock in turns, at one gateway");
    for round in 0..=settings.rounds {
        for bench in &mut *benches {
            let native = Way::Native(bench.redis.port());
            let native = pairs::load(native, 64, settings.each).await as f64;
            let native = native / settings.each.as_secs_f64();
            let used = || bench.gateway.program.cpu() + bench.redis.program.cpu();
            let before = used();
            let cycled = cycle(bench.gateway.address(), 100, settings.each).await;
            let used = used().saturating_sub(before);
            let each = used.as_secs_f64() * 1e6 / cycled.hand_offs as f64;
            println!(
                "  {round}: 100 clients{} {cycled}, {each:.0} µs of processors each; native {native:.0} pairs/s",
                bench.subject.mark
            );
            // The first round fills caches and connections, and does not count.
            if round > 0 {
                bench.rates.push(cycled.per_second());
                bench.of_native.push(cycled.per_second() / native);
                if bench.is_judged() && round == settings.rounds {
                    verdicts.judge(&bars::FAIRNESS, cycled.spread() as f64);
                }
            }
        }
    }
    for bench in &*benches {
        let mut costs = Vec::new();
        for clients in [10, 1_000, 10_000] {
            let before = bench.redis.commands().await;
            let cycled = cycle(bench.gateway.address(), clients, settings.each).await;
            let commands = bench.redis.commands().await.since(&before).all();
            let cost = commands as f64 / cycled.hand_offs as f64;
            println!(
                "  {clients:>6} clients{} {cycled}, {cost:.1} Redis commands each",
                bench.subject.mark
            );
            costs.push(cost);
        }
        let rate = median(bench.rates.iter().copied());
        let of_native = median(bench.of_native.iter().copied());
        println!(
            "  100 clients{}: median {rate:.0}, {of_native:.3} of native pairs",
            bench.subject.mark
        );
        if bench.is_judged() {
            verdicts.judge(&bars::HAND_OFFS, rate);
            verdicts.judge(&bars::HAND_OFFS_OF_NATIVE, of_native);
            verdicts.judge(&bars::CROWD_COMMANDS, costs[2] / costs[0]);
        }
    }
    for subject in &settings.subjects {
        let data = tempfile::tempdir().expect("a temporary directory can be made");
        let store = format!("embedded:{}", data.path().display());
        let embedded = Gateway::serving_a_crowd(subject, &store);
        for clients in [10, 100, 1_000] {
            let cycled = cycle(embedded.address(), clients, settings.each).await;
            println!("  embedded{} {clients} clients {cycled}", subject.mark);
        }
    }
}

/// Lets clients of a gateway take turns at one lock, until the time is over and each client has had a turn.
async fn cycle(address: SocketAddr, clients: usize, each: Duration) -> Cycled {
    let crowd = Crowd::start(address, clients).await;
    sleep(each).await;
    crowd.stop().await
}

/// The longest pair of a client that does one from time to time, on names of its own.
async fn longest(way: Way, over: Arc<AtomicBool>) -> Duration {
    let mut client = Client::connect(way).await;
    let mut longest = Duration::ZERO;
    for number in 0_u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let asked = Instant::now();
        client.pair(&format!("unrelated:{number}")).await;
        longest = longest.max(asked.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
    longest
}

// === impl Crowd ===

impl Crowd {
    pub(crate) async fn start(address: SocketAddr, clients: usize) -> Self {
        let name: Arc<str> = format!("one:{}", NAMES.fetch_add(1, Ordering::Relaxed)).into();
        let ready = Arc::new(Barrier::new(clients + 1));
        let (over, all) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut callers = JoinSet::new();
        for _ in 0..clients {
            let (name, ready) = (Arc::clone(&name), Arc::clone(&ready));
            let (over, all) = (Arc::clone(&over), Arc::clone(&all));
            callers.spawn(async move {
                let mut caller = Caller::connect(address).await;
                ready.wait().await;
                let (mut turns, mut refused) = (0, 0);
                while !over.load(Ordering::Relaxed) {
                    let Some(token) = caller.try_acquire(&name, PATIENT).await else {
                        refused += 1;
                        continue;
                    };
                    turns += 1;
                    all.fetch_add(1, Ordering::Relaxed);
                    while !caller.try_release(&name, &token).await {
                        refused += 1;
                    }
                }
                (turns, refused)
            });
        }
        ready.wait().await;
        let started = Instant::now();
        Self {
            callers,
            over,
            all,
            started,
        }
    }

    /// Waits for at least this many more hand-offs. Answers their number.
    pub(crate) async fn more(&self, turns: u64) -> u64 {
        let before = self.all.load(Ordering::Relaxed);
        loop {
            sleep(Duration::from_millis(5)).await;
            let more = self.all.load(Ordering::Relaxed) - before;
            if more >= turns {
                return more;
            }
        }
    }

    pub(crate) async fn stop(self) -> Cycled {
        self.over.store(true, Ordering::Relaxed);
        let turns = self.callers.join_all().await;
        let (turns, refused): (Vec<u64>, Vec<u64>) = turns.into_iter().unzip();
        Cycled {
            hand_offs: turns.iter().sum(),
            took: self.started.elapsed(),
            least: turns.iter().copied().min().unwrap_or_default(),
            most: turns.iter().copied().max().unwrap_or_default(),
            refused: refused.iter().sum(),
        }
    }
}

// === impl Bench ===

impl<'a> Bench<'a> {
    fn start(subject: &'a Subject) -> Self {
        let redis = RedisServer::start();
        let gateway = Gateway::serving_a_crowd(subject, &redis.url());
        Self {
            subject,
            redis,
            gateway,
            rates: Vec::new(),
            of_native: Vec::new(),
        }
    }

    fn is_judged(&self) -> bool {
        self.subject.mark.is_empty()
    }

    /// Ten thousand clients wait behind a holder, and one more behind them. The ten thousand hang up, and the holder
    /// releases. Measures how long the last client then waits for its grant.
    async fn hang_up(&self) -> HungUp {
        let gateway = Gateway::serving_a_crowd(self.subject, &self.redis.url());
        let address = gateway.address();
        let mut holder = Caller::connect(address).await;
        let token = holder.acquire("hung-up", LONG).await;
        let mut waiters = Vec::new();
        for _ in 0..=WAITERS {
            let mut waiter = Caller::connect(address).await;
            waiter.start_acquire("hung-up", PATIENT).await;
            waiters.push(waiter);
        }
        let mut looking = Caller::connect(address).await;
        while looking.waiters("hung-up").await <= WAITERS {
            sleep(Duration::from_millis(50)).await;
        }
        let mut next = waiters.pop().expect("one more than hang up");
        let over = Arc::new(AtomicBool::new(false));
        let ways = [Way::Http(address), Way::Native(self.redis.port())];
        let [through_gateway, native] = ways.map(|way| longest(way, Arc::clone(&over)));
        let mut unrelated = JoinSet::new();
        unrelated.spawn(async { ("the gateway", through_gateway.await) });
        unrelated.spawn(async { ("Redis alone", native.await) });
        let before = self.redis.commands().await;
        let cpu = || [self.redis.program.cpu(), gateway.program.cpu()];
        let (cpu_before, started) = (cpu(), Instant::now());
        let pause = HANG_UP / u32::try_from(WAITERS).expect("ten thousand is a small number");
        for number in 0.. {
            if waiters.pop().is_none() {
                break;
            }
            sleep_until(started + pause * number).await;
        }
        let hung_up = started.elapsed();
        let released = Instant::now();
        holder.release("hung-up", &token).await;
        let token = next.granted().await;
        let granted = released.elapsed();
        while looking.waiters("hung-up").await > 0 {
            sleep(Duration::from_millis(50)).await;
        }
        let settled = started.elapsed();
        next.release("hung-up", &token).await;
        over.store(true, Ordering::Relaxed);
        let longest = unrelated.join_all().await;
        let commands = self.redis.commands().await.since(&before);
        let used = cpu();
        println!(
            "  Redis{}: hung up in {hung_up:.2?}; the next granted after {granted:.2?}; queue empty after {settled:.2?}; \
             Redis: {} commands ({}), {:.2?} of processor; gateway {:.2?}; longest pair of others through {longest:.1?}",
            self.subject.mark,
            commands.all(),
            commands.for_each_of(WAITERS),
            used[0].saturating_sub(cpu_before[0]),
            used[1].saturating_sub(cpu_before[1]),
        );
        HungUp {
            granted,
            commands: commands.all(),
        }
    }

    /// All clients wait for the same lock.
    async fn on_one_name(&self) -> f64 {
        let gateway = Gateway::serving_a_crowd(self.subject, &self.redis.url());
        let mut holder = Caller::connect(gateway.address()).await;
        let token = holder.acquire("parked", LONG).await;
        let names = (0..WAITERS).map(|_| "parked".to_owned());
        let kib = self.idle(&gateway, "on one name", names).await;
        holder.release("parked", &token).await;
        kib
    }

    /// Each client waits for its own lock.
    async fn on_a_name_each(&self) -> f64 {
        let gateway = Gateway::serving_a_crowd(self.subject, &self.redis.url());
        let mut holder = Caller::connect(gateway.address()).await;
        for number in 0..WAITERS {
            holder.acquire(&format!("parked:{number}"), LONG).await;
        }
        let names = (0..WAITERS).map(|number| format!("parked:{number}"));
        self.idle(&gateway, "on a name each", names).await
    }

    async fn idle(&self, gateway: &Gateway, how: &str, names: impl Iterator<Item = String>) -> f64 {
        let before = gateway.program.resident_kib();
        let mut waiters = Vec::new();
        for name in names {
            let mut waiter = Caller::connect(gateway.address()).await;
            waiter.start_acquire(&name, PATIENT).await;
            waiters.push(waiter);
        }
        sleep(Duration::from_secs(2)).await;
        let kib = (gateway.program.resident_kib() - before) as f64 / WAITERS as f64;
        self.at_rest(gateway, &format!("{how}: {kib:.1} KiB each"), IDLE)
            .await;
        kib
    }

    /// Locks that are each held by a stream.
    async fn held(&self) {
        let gateway = Gateway::serving_a_crowd(self.subject, &self.redis.url());
        let before = gateway.program.resident_kib();
        let mut holds = Vec::new();
        for number in 0..HOLDS {
            let mut hold = Caller::connect(gateway.address()).await;
            hold.hold(&format!("held:{number}")).await;
            holds.push(hold);
        }
        let kib = (gateway.program.resident_kib() - before) as f64 / HOLDS as f64;
        // A third of the TTL: each lease is renewed once.
        let third = Duration::from_secs(10);
        self.at_rest(&gateway, &format!("{kib:.1} KiB each"), third)
            .await;
    }

    async fn at_rest(&self, gateway: &Gateway, what: &str, rest: Duration) {
        let (commands, cpu) = (self.redis.commands().await, gateway.program.cpu());
        sleep(rest).await;
        let commands = self.redis.commands().await.since(&commands).all();
        let commands = commands as f64 / rest.as_secs_f64();
        let cpu = gateway.program.cpu().saturating_sub(cpu).as_secs_f64() / rest.as_secs_f64();
        println!(
            "  {what}{}, {commands:.0} Redis commands/s, {:.1} % of a processor",
            self.subject.mark,
            100.0 * cpu
        );
    }
}

// === impl Cycled ===

impl Cycled {
    fn per_second(&self) -> f64 {
        self.hand_offs as f64 / self.took.as_secs_f64()
    }

    /// The difference between the most and the fewest turns of a client.
    fn spread(&self) -> u64 {
        self.most - self.least
    }
}

impl fmt::Display for Cycled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most, .. } = self;
        let rate = self.per_second();
        write!(f, "{rate:>6.0} hand-offs/s, turns {least} to {most}")?;
        match self.refused {
            0 => Ok(()),
            refused => write!(f, ", {refused} requests refused"),
        }
    }
}
