//! Random programs of commands on the embedded store and on Redis, whose clocks stand still unless a program moves
//! them: both stores must answer alike.
//!
//! The programs leave out what only one store promises: the end of a lease to the millisecond (no moment of a program
//! is the end of anything), the lengths of queues in answers other than inspections, and a grant that its waiter has
//! not heard of. Each new waiter would wait for an hour, and leaves before the end of its reservation.

use std::fmt::Write as _;

use latchgate::{
    clock::Clock as _,
    lock::{Order, OrderNumber, Reservation},
    store::{
        contract::{FenceCheck, OrderChange, OrderSetting, Superseding},
        embedded::EmbeddedStore,
    },
};
use tempfile::TempDir;

use crate::{conformance::prelude::*, support::Ask as _};

/// Seeds of programs that have found differences.
const SEEDS: [u64; 6] = [
    4_690_280_884_625_287_600,
    17_068_232_621_483_686_892,
    10_342_265_281_032_487_973,
    2_003_900_872_766_788_350,
    10_999_997_914_491_533_698,
    3_379_984_520_129_493_598,
];
/// How many commands a program has.
const COMMANDS: usize = 60;
/// The locks of a program.
const LOCKS: usize = 2;
/// How many idempotency keys a program uses at once.
const KEYS: usize = 3;
/// How many of the last attempts the commands are about.
const RECENT: usize = 8;

/// How much time passes in a program at most: for a minute both stores remember how attempts and leases ended.
/// Afterwards each forgets them at a time of its own.
const MEMORY: Duration = Duration::from_secs(59);

/// How long new programs are run.
fn budget() -> Duration {
    Duration::from_secs(if full() { 180 } else { 15 })
}

/// A store that is compared with another.
struct Twin {
    store: AnyStore,
    /// The fencing tokens that the store has told of each lock, in the order in which they were seen.
    fences: HashMap<LockName, Vec<FencingToken>>,
}

/// An attempt, and its wait at both stores.
struct Player {
    attempt: Attempt,
    places: Option<[Parked; 2]>,
    /// Whether it has left a position that is kept. Its gateway gives nothing back then, and the stores differ in
    /// whether the idempotency key is used up.
    has_left: bool,
}

/// The two stores and their clocks.
struct Rig {
    twins: [Twin; 2],
    clock: Arc<ManualClock>,
    redis_clock: Clock,
    _server: RedisServer,
    _directory: TempDir,
}

/// A program while it runs.
struct Program<'rig> {
    rig: &'rig mut Rig,
    random: Random,
    locks: Vec<LockName>,
    /// What is asked for under each idempotency key.
    keys: Vec<Attempt>,
    players: Vec<Player>,
    /// Until when the position of each idempotency key is kept. A key whose position is over is not used again: on
    /// Redis a timer of the gateway removes such a position, and the timers do not follow the clock of a program.
    kept: [Duration; KEYS],
    /// When the first of these timers runs, by the clock of the machine.
    timer: Option<Instant>,
    /// The locks of which a holder was asked to release its lease. If the TTL of such a lease is over first, Redis says
    /// later that the lease was broken.
    requested: HashSet<LockName>,
    /// How much time has passed since the program began.
    passed: Duration,
    /// The lock of the last command.
    lock: LockName,
    history: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_programs_are_answered_alike_by_the_embedded_store_and_redis() {
    let mut rig = Rig::start().await;
    for seed in SEEDS {
        Program::run(&mut rig, Random::with_seed(seed)).await;
    }
    let (mut random, began) = (Random::seeded(), Instant::now());
    while began.elapsed() < budget() {
        let mut next = random.fork();
        Program::run(&mut rig, random).await;
        random = Random::with_seed(next.next());
    }
}

// === impl Rig ===

impl Rig {
    async fn start() -> Self {
        let now = SystemClock.wall().duration_since(std::time::UNIX_EPOCH);
        let now = Duration::from_secs(now.unwrap().as_secs());
        let clock = Arc::new(ManualClock::at(std::time::UNIX_EPOCH + now));
        let redis_clock = Clock::ahead(0);
        redis_clock.stop_at(micros(now));
        let server = RedisServer::start_on(redis_clock.clone(), &[]).await;
        let config = RedisConfig {
            command_timeout_ms: Millis(5_000),
            deadline_ms: Millis(20_000),
            ..RedisConfig::default()
        };
        let redis = RedisStore::open(
            &server.url(),
            &config,
            clock.clone(),
            &Lifecycle::new(),
            latchgate::config::OrderLimits::default(),
        );
        let directory = TempDir::new().unwrap();
        let embedded = EmbeddedStore::open(
            directory.path(),
            clock.clone(),
            latchgate::config::OrderLimits::default(),
        )
        .unwrap();
        let twin = |store| Twin {
            store,
            fences: HashMap::new(),
        };
        Self {
            twins: [
                twin(Arc::new(embedded).into()),
                twin(Arc::new(redis).into()),
            ],
            clock,
            redis_clock,
            _server: server,
            _directory: directory,
        }
    }

    fn now(&self) -> Duration {
        let now = self.clock.wall().duration_since(std::time::UNIX_EPOCH);
        now.unwrap()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.redis_clock.stop_at(micros(self.now()));
    }
}

fn micros(time: Duration) -> i64 {
    time.as_micros().try_into().unwrap()
}

// === impl Program ===

impl<'rig> Program<'rig> {
    async fn run(rig: &'rig mut Rig, random: Random) {
        // All durations are whole seconds, and each step of the clock is a millisecond longer. So nothing ends at a
        // moment at which a command is carried out.
        let past = Duration::from_nanos(u64::from(rig.now().subsec_nanos()));
        rig.advance(Duration::from_secs(1).saturating_sub(past));
        for twin in &mut rig.twins {
            twin.fences.clear();
        }
        let number = token();
        let locks = (0..LOCKS).map(|lock| name(&format!("{lock}:{number}")));
        let locks: Vec<_> = locks.collect();
        let mut program = Self {
            lock: locks[0].clone(),
            locks,
            rig,
            random,
            keys: Vec::new(),
            players: Vec::new(),
            kept: [Duration::MAX; KEYS],
            timer: None,
            requested: HashSet::new(),
            passed: Duration::ZERO,
            history: String::new(),
        };
        for _ in 0..KEYS {
            let asked = program.new_request();
            program.keys.push(asked);
        }
        for _ in 0..COMMANDS {
            program.one_command().await;
            // On a busy machine, the rest of the program would depend on when a timer of the gateway runs.
            if program.timer.is_some_and(|timer| timer <= Instant::now()) {
                return;
            }
            program.look().await;
        }
    }

    async fn one_command(&mut self) {
        let recent = self.players.len().min(RECENT);
        let one = self.players.len() - recent + self.random.below(recent.max(1));
        if let Some(player) = self.players.get(one) {
            self.lock = player.attempt.name.clone();
        }
        match self.random.below(21) {
            _ if recent == 0 => self.acquire().await,
            0..6 => self.acquire().await,
            6..9 => self.time().await,
            9 | 10 => self.renew(one).await,
            11..13 => self.release(one).await,
            13..16 => self.leave(one).await,
            16 => self.give_back(one).await,
            17 => self.break_lock().await,
            18 => self.request_release().await,
            19 => self.set_order().await,
            _ => self.check().await,
        }
    }

    /// A request with random terms.
    fn new_request(&mut self) -> Attempt {
        let random = &mut self.random;
        let lock = self.locks[random.below(LOCKS)].as_str();
        let seconds = [2, 5, 30, 60][random.below(4)];
        let mut asked = attempt(lock, seconds * 1_000);
        if random.below(4) == 0 {
            let limit = seconds * 1_000 * [1, 3][random.below(2)];
            asked
                .terms
                .set_hold_limit(HoldLimit::from_millis(limit, asked.terms.ttl()).unwrap());
        }
        if random.below(3) == 0 {
            let least = seconds * 1_000 / [1, 2][random.below(2)] / 1_000 * 1_000;
            asked.terms.min_hold = Some(MinHold::from_millis(least, asked.terms.ttl()).unwrap());
        }
        if random.below(4) == 0 {
            asked.terms.supersedes = Some(SupersedeKey::new("newest").unwrap().into());
        }
        asked.terms.sharing = match random.below(6) {
            0 => Some(share(None)),
            1 => Some(share(Some(2))),
            _ => None,
        };
        if asked.terms.sharing.is_none() && random.below(2) == 0 {
            asked.terms.said.order = Some(Box::new(Order {
                number: a_number(random),
                by: (random.below(2) == 0).then(|| "ci".into()),
                rollback: (random.below(8) == 0).then(|| Reason::new("random").unwrap()),
            }));
        }
        if random.below(2) == 0 {
            asked = owned(&format!("owner {}", random.below(9)), asked);
        }
        if asked.terms.sharing.is_none()
            && asked.terms.hold_limit().is_none()
            && random.below(8) == 0
        {
            asked.terms.said.order = None;
            let until = self.rig.now() + Duration::from_secs([4, 20, 100][random.below(3)]);
            let until = u64::try_from(until.as_millis()).unwrap() / 1_000 * 1_000;
            asked.terms.ends = Ends::At(Box::new(Reservation {
                until_ms: until,
                reason: Reason::new("random").unwrap(),
                by: None,
            }));
        }
        asked
    }

    async fn acquire(&mut self) {
        let key = self.random.below(2 * KEYS);
        let mut asked = match self.keys.get(key) {
            Some(asked) => asked.clone(),
            None => self.new_request(),
        };
        asked.token = token();
        self.lock = asked.name.clone();
        if key < KEYS {
            let hash = hash_of(&self.keys[key]);
            self.kept[key] = Duration::MAX;
            if self.random.below(16) == 0 {
                asked.terms.set_ttl(ttl(7_000));
            }
            asked = under(hash, asked);
        }
        let until = asked.terms.reservation().map(Reservation::until);
        let is_over = until.is_some_and(|until| until <= self.rig.clock.wall());
        if self.random.below(4) > 0 && !is_over {
            asked.wait = Some(Waiting {
                max_wait: Duration::from_hours(1),
                longest_queue: 5,
                supersedes: asked.terms.supersedes.is_some().then(|| Superseding {
                    hash: SupersedeHash::from_bytes([7; 16]),
                    waited_before: Duration::from_secs([0, 0, 4, 30][self.random.below(4)]),
                }),
            });
        }
        let (number, asked_for) = (self.players.len(), describe(&asked, key));
        self.tell(&format!("{number} acquires {asked_for}"));
        let stores = [0, 1].map(|twin| self.rig.twins[twin].store.clone());
        let places = stores.clone().map(|store| store.park(&asked));
        let answers = [
            stores[0].acquire(&asked).await,
            stores[1].acquire(&asked).await,
        ];
        let waits = matches!(answers[0], Ok(Acquisition::Queued(_)));
        self.players.push(Player {
            attempt: asked,
            places: waits.then_some(places),
            has_left: false,
        });
        self.same(|program, twin| program.acquisition(twin, &answers[twin]));
        let is_used = matches!(answers[0], Ok(Acquisition::IdempotencyExpired));
        if key < KEYS && (is_used || self.random.below(8) == 0) {
            self.new_key(key);
        }
    }

    fn new_key(&mut self, key: usize) {
        self.keys[key] = self.new_request();
        self.kept[key] = Duration::MAX;
    }

    /// Lets time pass. Waiters whose reservation ends meanwhile leave before.
    async fn time(&mut self) {
        let seconds = [0, 1, 1, 2, 3, 7, 20, 40][self.random.below(8)];
        let step = Duration::from_secs(seconds) + Duration::from_millis(1);
        self.passed += step;
        if self.passed > MEMORY {
            return;
        }
        let then = std::time::UNIX_EPOCH + self.rig.now() + step;
        for one in 0..self.players.len() {
            let player = &self.players[one];
            let reservation = player.attempt.terms.reservation();
            if player.places.is_some() && reservation.is_some_and(|it| it.until() <= then) {
                self.leave(one).await;
                self.look().await;
            }
        }
        self.rig.advance(step);
        self.tell(&format!("{step:?} pass"));
        for key in 0..KEYS {
            if self.kept[key] < self.rig.now() {
                self.new_key(key);
            }
        }
        for lock in self.locks.clone() {
            self.clear_away(&lock).await;
        }
    }

    async fn renew(&mut self, one: usize) {
        let asked = [None, Some(ttl(3_000)), Some(ttl(40_000))][self.random.below(3)];
        self.tell(&format!("{one} renews, {asked:?}"));
        let Attempt { name, token, .. } = self.players[one].attempt.clone();
        let mut answers = Vec::new();
        for twin in &self.rig.twins {
            answers.push(twin.store.renew(&name, &token, asked).await.unwrap());
        }
        self.same(|program, twin| match &answers[twin] {
            Renewal::Renewed(held, margin) => format!("{} {margin:?}", program.lease(twin, held)),
            Renewal::Lost(loss) => program.lost(*loss),
            Renewal::Adopted => "adopted".to_owned(),
        });
    }

    async fn release(&mut self, one: usize) {
        let releaser = match self.random.below(6) {
            0 => Releaser::Unused,
            1 => Releaser::Recipient(RecipientId::of_attempt(&self.players[one].attempt.token)),
            _ => Releaser::Bearer,
        };
        self.tell(&format!("{one} releases as {releaser:?}"));
        let Attempt { name, token, .. } = self.players[one].attempt.clone();
        let mut answers = Vec::new();
        for twin in &self.rig.twins {
            let release = twin.store.release_as(releaser, &name, &token, true);
            answers.push(release.await.unwrap());
        }
        self.same(|program, twin| match &answers[twin] {
            Release::Released(_) => "released".to_owned(),
            Release::Lost(loss) => program.lost(*loss),
            adopted @ Release::Adopted(_) => format!("{adopted:?}"),
        });
    }

    /// A waiter hangs up, or its wait is over.
    async fn leave(&mut self, one: usize) {
        if self.players[one].places.take().is_none() {
            return;
        }
        let keep_for = [None, Some(1), Some(4), Some(20)][self.random.below(4)];
        let keep_for = keep_for.map(Duration::from_secs);
        self.players[one].has_left = keep_for.is_some();
        self.tell(&format!("{one} leaves, keeping for {keep_for:?}"));
        let Attempt {
            name,
            token,
            idempotency,
            ..
        } = self.players[one].attempt.clone();
        self.lock = name.clone();
        let hash = idempotency.map(|it| it.hash);
        let is_of = |asked: &Attempt| hash == Some(hash_of(asked));
        if let (Some(key), Some(keep_for)) = (self.keys.iter().position(is_of), keep_for) {
            self.kept[key] = self.rig.now() + keep_for;
            // The comparison of the answers takes a part of the time.
            let timer = Instant::now() + keep_for / 2;
            self.timer = Some(self.timer.map_or(timer, |first| first.min(timer)));
        }
        let mut answers = Vec::new();
        for twin in &self.rig.twins {
            answers.push(twin.store.leave(&name, &token, keep_for).await.unwrap());
        }
        self.same(|program, twin| match &answers[twin] {
            Leaving::Left(contention) => program.holder(twin, contention.holder.as_ref()),
            Leaving::Granted(held) => program.lease(twin, held),
            other => format!("{other:?}"),
        });
    }

    async fn give_back(&mut self, one: usize) {
        let player = &mut self.players[one];
        if player.has_left {
            return;
        }
        player.places = None;
        let Attempt { name, token, .. } = player.attempt.clone();
        self.tell(&format!("{one} is given back"));
        let mut answers = Vec::new();
        for twin in &self.rig.twins {
            answers.push(twin.store.give_back(&name, &token, None).await.unwrap());
        }
        self.same(|_, twin| format!("{:?}", answers[twin]));
    }

    async fn break_lock(&mut self) {
        let (name, targets) = (self.lock.clone(), self.a_target());
        self.tell(&format!("{name} is broken, {:?}", targets[0]));
        let mut answers = Vec::new();
        for (twin, target) in self.rig.twins.iter().zip(targets) {
            answers.push(twin.store.break_lock(&name, target).await.unwrap());
        }
        self.same(|program, twin| match &answers[twin] {
            Breaking::Broken(holder) | Breaking::HolderChanged(holder) => {
                program.holder(twin, Some(holder))
            }
            Breaking::Ambiguous(_) => "ambiguous".to_owned(),
            Breaking::NotHeld => "not held".to_owned(),
        });
    }

    async fn request_release(&mut self) {
        let (name, targets) = (self.lock.clone(), self.a_target());
        let request = ReleaseRequest {
            by: None,
            reason: Reason::new("random").unwrap(),
            within: Duration::from_secs([1, 5, 15][self.random.below(3)]),
        };
        let within = request.within;
        self.requested.insert(name.clone());
        self.tell(&format!("{name} is requested, {:?} {within:?}", targets[0]));
        let mut answers = Vec::new();
        for (twin, target) in self.rig.twins.iter().zip(targets) {
            let asked = twin.store.request_release(&name, target, &request);
            answers.push(asked.await.unwrap());
        }
        self.same(|program, twin| match &answers[twin] {
            Requesting::Requested(holder) | Requesting::HolderChanged(holder) => {
                program.holder(twin, Some(holder))
            }
            Requesting::Foreign(_) => "foreign".to_owned(),
            Requesting::Ambiguous(_) => "ambiguous".to_owned(),
            Requesting::NotHeld => "not held".to_owned(),
        });
    }

    async fn set_order(&mut self) {
        let name = self.lock.clone();
        let [seen, new] = [(); 2].map(|()| {
            let random = &mut self.random;
            (random.below(4) > 0).then(|| a_number(random))
        });
        let shown = self.rig.twins[0].store.inspect(&name).await.unwrap();
        let is_right = self.random.below(3) > 0;
        let now = shown.granted_order.map(|it| it.number);
        let change = OrderChange {
            seen: if is_right { now } else { seen },
            new,
        };
        self.tell(&format!("the order of {name}: {change:?}"));
        let mut answers = Vec::new();
        for twin in &self.rig.twins {
            answers.push(twin.store.set_order(&name, change).await.unwrap());
        }
        self.same(|_, twin| match &answers[twin] {
            OrderSetting::Set => "set".to_owned(),
            OrderSetting::Changed(order) => format!("changed {order:?}"),
        });
        self.clear_away(&name).await;
    }

    /// A stranger leaves: each store clears away what is over, and passes the lock on.
    async fn clear_away(&self, lock: &LockName) {
        let stranger = token();
        for twin in &self.rig.twins {
            twin.store.leave(lock, &stranger, None).await.unwrap();
        }
    }

    /// One of the last leases of the lock, all leases, or no target, for each store.
    fn a_target(&mut self) -> [Option<BreakTarget>; 2] {
        let (choice, back) = (self.random.below(4), self.random.below(4));
        [0, 1].map(|twin| {
            let fences = self.rig.twins[twin].fences.get(&self.lock);
            let fence = fences.and_then(|fences| fences.iter().rev().nth(back));
            match choice {
                0 => None,
                1 => Some(BreakTarget::All),
                _ => fence.copied().map(BreakTarget::Lease),
            }
        })
    }

    /// Checks each fencing token of the lock that was seen.
    async fn check(&mut self) {
        let lock = self.lock.clone();
        self.tell(&format!("all numbers are checked at {lock}"));
        let seen = self.rig.twins[0].fences.get(&lock).map_or(0, Vec::len);
        for at in 0..seen {
            let mut answers = Vec::new();
            for twin in &self.rig.twins {
                let query = fence_query(lock.as_str(), twin.fences[&lock][at]);
                let check = twin.store.check_fence(&query).await.unwrap();
                answers.push(match check {
                    FenceCheck::Held { left, .. } => format!("#{at} {left:?}"),
                    FenceCheck::Stale { is_outrun } => format!("#{at} stale, {is_outrun}"),
                    other => panic!("no token was asked about: {other:?}"),
                });
            }
            self.same(|_, twin| answers[twin].clone());
        }
    }

    /// Compares what waiters hear and what an inspection shows.
    async fn look(&mut self) {
        for one in 0..self.players.len() {
            self.hear(one).await;
        }
        for lock in self.locks.clone() {
            self.lock = lock.clone();
            let mut shown = Vec::new();
            for twin in &self.rig.twins {
                shown.push(twin.store.inspect(&lock).await.unwrap());
            }
            self.same(|program, twin| {
                let holder = program.holder(twin, shown[twin].holder.as_ref());
                let Inspection {
                    queue,
                    waiters,
                    granted_order,
                    ..
                } = &shown[twin];
                format!("{holder} {queue:?} {waiters} {granted_order:?}")
            });
        }
    }

    /// Compares the news of a player, if it waits. A grant is confirmed at once, as if the waiter was told of it.
    async fn hear(&mut self, one: usize) {
        let Some(mut places) = self.players[one].places.take() else {
            return;
        };
        let attempt = self.players[one].attempt.clone();
        self.lock = attempt.name.clone();
        let mut heard = [None, None];
        for (twin, place) in places.iter_mut().enumerate() {
            let news = place.try_news();
            heard[twin] = self.heard(twin, &attempt, place, news).await;
        }
        if heard == [None, None] {
            self.players[one].places = Some(places);
            return;
        }
        for (twin, place) in places.iter_mut().enumerate() {
            let is_outdated = heard[1 - twin].as_ref();
            let is_outdated = is_outdated.is_some_and(|it| it.starts_with("OutdatedOrder"));
            if heard[twin].is_none() && is_outdated {
                // Redis may forget a waiter, whose order is compared when it asks again: here it asks again as well.
                let news = Some(News::Forgotten);
                heard[twin] = self.heard(twin, &attempt, place, news).await;
            } else if heard[twin].is_none() {
                let news = timeout(Duration::from_secs(8), place.news()).await.ok();
                heard[twin] = self.heard(twin, &attempt, place, news).await;
            }
        }
        self.tell(&format!("{one} hears"));
        self.same(|_, twin| format!("{:?}", heard[twin]));
    }

    /// The news of an attempt as text; `None` if it is still queued. A store may forget an attempt, which then asks
    /// again.
    async fn heard(
        &mut self,
        twin: usize,
        attempt: &Attempt,
        place: &mut Parked,
        news: Option<News>,
    ) -> Option<String> {
        let store = self.rig.twins[twin].store.clone();
        let news = match news? {
            News::Forgotten => {
                place.rearm();
                match store.acquire(attempt).await.unwrap() {
                    Acquisition::Queued(_) => return None,
                    Acquisition::Granted(_) => News::GrantedProvisionally,
                    other => return Some(format!("{other:?}")),
                }
            }
            news => news,
        };
        Some(match news {
            News::Granted(_) | News::GrantedProvisionally => {
                match store.confirm(&attempt.name, &attempt.token).await.unwrap() {
                    Confirmation::Confirmed(held) => self.lease(twin, &held),
                    other => format!("{other:?}"),
                }
            }
            other => format!("{other:?}"),
        })
    }

    /// Asserts that a text is the same for both stores.
    fn same(&mut self, mut text: impl FnMut(&mut Self, usize) -> String) {
        let [embedded, redis] = [text(self, 0), text(self, 1)];
        self.tell(&format!("  {embedded}"));
        assert!(
            embedded == redis,
            "{}, the last answer of Redis is other:\n{}  {redis}",
            self.random.how_to_repeat(),
            self.history
        );
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.history, "{what}").unwrap();
    }

    // --- answers as texts

    fn acquisition(&mut self, twin: usize, answer: &Result<Acquisition, StoreError>) -> String {
        match answer {
            Ok(Acquisition::Granted(held)) => format!("granted {}", self.lease(twin, held)),
            Ok(Acquisition::Replayed(held, salt)) => {
                let lease = self.lease(twin, held);
                format!("replayed {lease} of {:?}", self.of_salt(salt))
            }
            Ok(Acquisition::Collected(held, salt, waited)) => {
                let lease = self.lease(twin, held);
                format!("collected {lease} of {:?}, {waited:?}", self.of_salt(salt))
            }
            Ok(Acquisition::Held(contention)) => {
                format!("held {}", self.holder(twin, contention.holder.as_ref()))
            }
            Ok(Acquisition::Queued(place)) => {
                let holder = self.holder(twin, place.contention.holder.as_ref());
                format!("queued for {:?}, {holder}", place.waited)
            }
            other => format!("{other:?}"),
        }
    }

    fn lost(&self, loss: Loss) -> String {
        let (is_broken, held) = match loss {
            Loss::Broken { held } => (true, held),
            Loss::HeldByAnother => (false, true),
            Loss::Free => (false, false),
        };
        let is_broken = (!self.requested.contains(&self.lock)).then_some(is_broken);
        format!("lost, broken: {is_broken:?}, held: {held}")
    }

    fn of_salt(&self, salt: &Salt) -> Option<usize> {
        let is_it = |player: &Player| {
            let key = player.attempt.idempotency.as_ref();
            key.is_some_and(|key| key.salt == *salt)
        };
        self.players.iter().position(is_it)
    }

    fn holder(&mut self, twin: usize, holder: Option<&Holder>) -> String {
        let Some(holder) = holder else {
            return "free".to_owned();
        };
        let mut leases = holder.leases().to_vec();
        leases.sort_by_key(|lease| lease.fence);
        let leases: Vec<_> = leases.iter().map(|held| self.lease(twin, held)).collect();
        format!("{} {}", holder.count(), leases.join(", "))
    }

    fn lease(&mut self, twin: usize, held: &HeldLease) -> String {
        let fences = &mut self.rig.twins[twin].fences;
        let fences = fences.entry(self.lock.clone()).or_default();
        let known = fences.iter().position(|fence| *fence == held.fence);
        let fence = known.unwrap_or_else(|| {
            fences.push(held.fence);
            fences.len() - 1
        });
        let mut text = format!(
            "[#{fence} {:?} ttl {:?} left {:?} held {:?}",
            held.mode,
            held.ttl.duration(),
            held.expires_in,
            held.held_for
        );
        if held.is_resting {
            text += " rests";
        }
        if let Some(limit) = held.hold_expires_in {
            write!(text, " limit {limit:?}").unwrap();
        }
        if let Some(owner) = &held.said.owner {
            write!(text, " {owner:?}").unwrap();
        }
        if let Some(reservation) = &held.reservation {
            write!(text, " until {}", reservation.until_ms).unwrap();
        }
        if let Some(request) = &held.release_requested {
            write!(text, " requested {:?}", request.within).unwrap();
        }
        text + "]"
    }
}

/// A random order. There are few, so that most are compared with a higher or the same one.
fn a_number(random: &mut Random) -> OrderNumber {
    OrderNumber::new(random.below(6) as u64).unwrap()
}

/// The idempotency key of a request: the bytes of the token with which the request was made.
fn hash_of(asked: &Attempt) -> IdempotencyHash {
    IdempotencyHash::from_bytes(*asked.token.as_bytes())
}

fn describe(asked: &Attempt, key: usize) -> String {
    let Attempt {
        name, terms, wait, ..
    } = asked;
    let lock = &name.as_str()[..1];
    let (wait, supersedes) = (wait.is_some(), wait.and_then(|it| it.supersedes));
    let before = supersedes.map(|it| it.waited_before);
    format!("{lock} under {key}: {terms:?}, waits: {wait}, supersedes: {before:?}")
}
