//! The cost of requests in counts that are the same on any machine: heap allocations, Redis commands, system calls.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    bars::{self, Bar, Verdicts},
    pairs::{self, Way, median},
    rig::{Caller, Commands, Gateway, Program, RedisServer, Settings, Subject, WAIT},
    waiting::Crowd,
};

/// The body of an acquire without a wait.
const AT_ONCE: &str = r#"{"ttl_ms":30000}"#;
/// How many operations of a kind are counted.
const OPERATIONS: u64 = 300;
/// Allocations are counted in batches, and the median batch counts: background work of the gateway affects only few of
/// them.
const BATCHES: usize = 9;
const BATCH: u64 = 100;
/// Hand-offs are counted in short windows for the same reason, whatever the machine's speed.
const WINDOWS: usize = 5;
/// How long a gateway may take to finish its work after an answer.
const SETTLE: Duration = Duration::from_millis(5);
/// How long the loads of many clients last.
const LOAD: Duration = Duration::from_secs(1);

/// A library that counts the allocations of the programs into which it is preloaded.
struct Allocations {
    files: TempDir,
}

/// Heap allocations for each request of a kind.
struct Allocated {
    acquire: f64,
    waiting: f64,
    release: f64,
}

/// The commands that Redis had run when the counting began.
struct Counted<'a> {
    redis: &'a RedisServer,
    before: Commands,
}

/// Redis commands for each operation.
struct Each {
    all: f64,
    inside: f64,
    which: String,
}

/// The verdicts on one build. Only this build is held to the bars.
struct Judge<'a> {
    subject: &'a Subject,
    verdicts: &'a mut Verdicts,
}

/// Counts, and judges this build.
pub(crate) async fn measure(settings: &Settings, verdicts: &mut Verdicts) {
    if cfg!(debug_assertions) {
        println!("a dev build: allocations that an optimized build leaves out are counted");
    }
    let allocations = Allocations::prepare();
    if let Ok(allocations) = &allocations {
        let gateway = Gateway::null_counted(&allocations.library(), &allocations.count());
        match allocations.measure(&gateway).await {
            Ok(allocated) => println!("allocations over the null store: {allocated}"),
            Err(why) => println!("allocations over the null store: not measured: {why}"),
        }
    }
    for subject in &settings.subjects {
        let mut judge = Judge {
            subject,
            verdicts: &mut *verdicts,
        };
        heap(&allocations, &mut judge).await;
        commands(&mut judge).await;
        syscalls(&mut judge).await;
    }
}

async fn heap(allocations: &Result<Allocations, String>, judge: &mut Judge<'_>) {
    let redis = RedisServer::start();
    let allocated = match allocations {
        Ok(allocations) => {
            let (library, count) = (allocations.library(), allocations.count());
            let gateway = Gateway::counted(judge.subject, &redis.url(), &library, &count);
            allocations.measure(&gateway).await
        }
        Err(why) => Err(why.clone()),
    };
    match allocated {
        Ok(allocated) => {
            println!("allocations over Redis{}: {allocated}", judge.subject.mark);
            judge.figure(&bars::ACQUIRE_ALLOCATIONS, Ok(allocated.acquire));
        }
        Err(why) => judge.figure(&bars::ACQUIRE_ALLOCATIONS, Err(&why)),
    }
}

async fn commands(judge: &mut Judge<'_>) {
    let redis = RedisServer::start();
    let gateways = [0, 1].map(|_| Gateway::serving(judge.subject, &redis.url()));
    let [here, there] = gateways.each_ref().map(Gateway::address);
    let mut caller = Caller::connect(here).await;
    // The first pairs send HELLO, load scripts, and so on.
    for address in [here, there] {
        pairs::load(Way::Http(address), 4, LOAD / 10).await;
    }
    println!("Redis commands, EVALSHA included{}", judge.subject.mark);
    let mut tokens = Vec::new();
    let counted = Counted::from(&redis).await;
    for number in 0..OPERATIONS {
        tokens.push(caller.acquire(&format!("at-once:{number}"), AT_ONCE).await);
    }
    let acquire = counted.each(OPERATIONS).await;
    acquire.print("acquire");
    judge.figure(&bars::ACQUIRE_COMMANDS, Ok(acquire.inside));
    let counted = Counted::from(&redis).await;
    for (number, token) in tokens.iter().enumerate() {
        caller.release(&format!("at-once:{number}"), token).await;
    }
    let release = counted.each(OPERATIONS).await;
    release.print("release");
    judge.figure(&bars::RELEASE_COMMANDS, Ok(release.inside));
    let counted = Counted::from(&redis).await;
    for number in 0..OPERATIONS {
        caller.acquire(&format!("patient:{number}"), WAIT).await;
    }
    counted
        .each(OPERATIONS)
        .await
        .print("acquire that may wait");
    let counted = Counted::from(&redis).await;
    for number in 0..OPERATIONS {
        let name = format!("keyed:{number}");
        let token = caller.acquire_keyed(&name).await;
        caller.release(&name, &token).await;
    }
    let keyed = counted.each(OPERATIONS).await;
    keyed.print("keyed pair");
    judge.figure(&bars::KEYED_COMMANDS, Ok(keyed.all));
    let token = caller.acquire("renewed", AT_ONCE).await;
    let counted = Counted::from(&redis).await;
    for _ in 0..OPERATIONS {
        caller.renew("renewed", &token).await;
    }
    counted.each(OPERATIONS).await.print("renew");
    let crowd = Crowd::start(here, 100).await;
    // A new crowd asks once more when the gateway has subscribed to the lock.
    crowd.more(OPERATIONS).await;
    let mut hand_off = Vec::new();
    for _ in 0..WINDOWS {
        let counted = Counted::from_now(&redis).await;
        let hand_offs = crowd.more(OPERATIONS).await;
        hand_off.push(counted.each_until_now(hand_offs).await);
    }
    crowd.stop().await;
    hand_off.sort_by(|one, other| one.all.total_cmp(&other.all));
    let hand_off = hand_off.swap_remove(WINDOWS / 2);
    judge.figure(&bars::HAND_OFF_COMMANDS, Ok(hand_off.all));
    hand_off.print("hand-off among 100 waiters");
    let counted = Counted::from(&redis).await;
    across(here, there).await;
    counted
        .each(OPERATIONS)
        .await
        .print("hand-off to another gateway");
}

/// Hands one lock back and forth between two gateways.
async fn across(here: SocketAddr, there: SocketAddr) {
    let mut holder = Caller::connect(here).await;
    let mut waiter = Caller::connect(there).await;
    let mut token = holder.acquire("across", WAIT).await;
    for _ in 0..OPERATIONS {
        waiter.start_acquire("across", WAIT).await;
        // A pause until the waiter is in the queue. An inspection would cost commands.
        sleep(SETTLE).await;
        holder.release("across", &token).await;
        token = waiter.granted().await;
        std::mem::swap(&mut holder, &mut waiter);
    }
}

async fn syscalls(judge: &mut Judge<'_>) {
    let redis = RedisServer::start();
    let gateway = Gateway::serving(judge.subject, &redis.url());
    let way = Way::Http(gateway.address());
    pairs::load(way, 64, LOAD / 4).await;
    let process = gateway.program.id().to_string();
    let mut why = Vec::new();
    for tool in [perf, strace] {
        let (mut command, read) = tool(&process);
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let Ok(counting) = Program::start(&mut command) else {
            why.push(format!("there is no {name}"));
            continue;
        };
        // A pause until the tool is attached.
        sleep(LOAD / 4).await;
        let pairs = pairs::load(way, 64, LOAD).await as f64;
        let written = counting.interrupted();
        let calls: Vec<(String, f64)> = written.lines().filter_map(read).collect();
        let Some(all) = calls.iter().find(|(call, _)| call == "all") else {
            let message = written.lines().find(|line| !line.is_empty());
            why.push(format!("{name}: {}", message.unwrap_or("it said nothing")));
            continue;
        };
        let parts = calls.iter().filter(|(call, _)| call != "all");
        let parts = parts.map(|(call, calls)| format!("{call} {:.2}", calls / pairs));
        let parts: Vec<String> = parts.collect();
        println!(
            "syscalls in a pair over Redis{}, by {name}: {:.2} ({})",
            judge.subject.mark,
            all.1 / pairs,
            parts.join(", ")
        );
        judge.figure(&bars::PAIR_SYSCALLS, Ok(all.1 / pairs));
        return;
    }
    judge.figure(&bars::PAIR_SYSCALLS, Err(&why.join("; ")));
}

/// The command of a tool, and the parser of a line of its output.
type Tool = (Command, fn(&str) -> Option<(String, f64)>);

fn perf(process: &str) -> Tool {
    let mut events = "raw_syscalls:sys_enter".to_owned();
    for call in [
        "read",
        "recvfrom",
        "write",
        "writev",
        "sendto",
        "futex",
        "getrandom",
    ] {
        events.push_str(",syscalls:sys_enter_");
        events.push_str(call);
    }
    let wait = if cfg!(target_arch = "x86_64") {
        ",syscalls:sys_enter_epoll_wait"
    } else {
        ",syscalls:sys_enter_epoll_pwait"
    };
    events.push_str(wait);
    let mut command = Command::new("perf");
    command.args(["stat", "-x,", "-e", &events, "-p", process]);
    (command, |line| {
        let mut fields = line.split(',');
        let calls = fields.next()?.parse().ok()?;
        let call = fields.nth(1)?.rsplit_once("sys_enter")?.1;
        let call = call.strip_prefix('_').unwrap_or("all");
        Some((call.to_owned(), calls))
    })
}

/// The command for `strace`. It slows the gateway down, so that the gateway finds more to do in each step.
fn strace(process: &str) -> Tool {
    let mut command = Command::new("strace");
    command.args(["-c", "-f", "-p", process]);
    (command, |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let calls = fields.get(3)?.parse().ok()?;
        let call = fields.last()?.replace("total", "all");
        Some((call, calls))
    })
}

// === impl Judge ===

impl Judge<'_> {
    fn figure(&mut self, bar: &Bar, figure: Result<f64, &str>) {
        match figure {
            Ok(figure) if self.subject.mark.is_empty() => self.verdicts.judge(bar, figure),
            Err(why) if self.subject.mark.is_empty() => self.verdicts.not_measured(bar, why),
            _ => {}
        }
    }
}

// === impl Counted ===

impl<'a> Counted<'a> {
    /// Counts from an instant at which no request is open.
    async fn from(redis: &'a RedisServer) -> Self {
        sleep(SETTLE).await;
        Self::from_now(redis).await
    }

    async fn from_now(redis: &'a RedisServer) -> Self {
        let before = redis.commands().await;
        Self { redis, before }
    }

    async fn each(self, operations: u64) -> Each {
        sleep(SETTLE).await;
        self.each_until_now(operations).await
    }

    async fn each_until_now(self, operations: u64) -> Each {
        let more = self.redis.commands().await.since(&self.before);
        let each = |count: u64| count as f64 / operations as f64;
        Each {
            all: each(more.all()),
            inside: each(more.inside_scripts()),
            which: more.for_each_of(operations),
        }
    }
}

impl Each {
    fn print(&self, what: &str) {
        println!("  {what:<28} {:>5.1}: {}", self.all, self.which);
    }
}

// === impl Allocations ===

impl Allocations {
    /// Builds the library. Answers the reason if this fails.
    fn prepare() -> Result<Self, String> {
        let files = tempfile::tempdir().expect("a temporary directory can be made");
        let allocations = Self { files };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/rig/allocations.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", source, "-o"]);
        let built = compiler.arg(allocations.library()).status();
        let built = built.map_err(|error| format!("cc: {error}"))?;
        if !built.success() {
            return Err(format!("cc does not build {source}: {built}"));
        }
        Ok(allocations)
    }

    fn library(&self) -> PathBuf {
        self.files.path().join("allocations.so")
    }

    /// The file of the count, which is reset to 0.
    fn count(&self) -> PathBuf {
        let file = self.files.path().join("count");
        fs::write(&file, [0; 8]).expect("a temporary file can be written");
        file
    }

    fn so_far(&self) -> u64 {
        let bytes = fs::read(self.files.path().join("count")).expect("the file is there");
        u64::from_ne_bytes(bytes.try_into().expect("the file has one number"))
    }

    /// The allocations of each kind of request of a gateway, in the steady state.
    async fn measure(&self, gateway: &Gateway) -> Result<Allocated, String> {
        if self.so_far() == 0 {
            return Err("the program does not use the allocator of glibc".to_owned());
        }
        let mut caller = Caller::connect(gateway.address()).await;
        let (mut acquire, mut waiting, mut release) = (Vec::new(), Vec::new(), Vec::new());
        for batch in 0..=BATCHES {
            for (body, acquired) in [(AT_ONCE, &mut acquire), (WAIT, &mut waiting)] {
                let mut tokens = Vec::new();
                let before = self.so_far();
                for number in 0..BATCH {
                    tokens.push(caller.acquire(&format!("a:{number}"), body).await);
                }
                sleep(SETTLE).await;
                let between = self.so_far();
                for (number, token) in tokens.iter().enumerate() {
                    caller.release(&format!("a:{number}"), token).await;
                }
                sleep(SETTLE).await;
                // The first batch fills caches and does not count.
                if batch > 0 {
                    let each = |count: u64| count as f64 / BATCH as f64;
                    acquired.push(each(between - before));
                    release.push(each(self.so_far() - between));
                }
            }
        }
        Ok(Allocated {
            acquire: median(acquire.into_iter()),
            waiting: median(waiting.into_iter()),
            release: median(release.into_iter()),
        })
    }
}

impl std::fmt::Display for Allocated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            acquire,
            waiting,
            release,
        } = self;
        write!(
            f,
            "acquire {acquire:.1} ({waiting:.1} if it may wait), release {release:.1}"
        )
    }
}
