//! The handle to the embedded store, through which callers send commands to its writer.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use parking_lot::RwLock;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
    task::spawn_blocking,
    time::Instant,
};
use tracing::warn;

use crate::{
    clock::Clock,
    config::OrderLimits,
    lock::{BreakTarget, HeldLease, LockName, RecipientId, ReleaseRequest, TokenHash},
    store::{
        Store, StoreError, Unavailability, Uncertainty,
        contract::{
            Acquisition, Attempt, BreakFeed, Breaking, BrokenLease, Check, Confirmation,
            FenceCheck, FenceQuery, GiveBack, Health, Inspection, Leaving, ListQuery, OrderChange,
            OrderSetting, Page, Release, Releaser, Renewal, RenewalTtl, Renewer, Requesting,
            StoreBackup,
        },
        history::{HistoryBatch, StoredHistory},
        parking::Parking,
    },
    telemetry::{
        metrics::{ServerFigures, StoreFigures},
        trace::SpanKind,
    },
};

use super::{
    OpenError,
    command::{Command, Outcome, ReplySender},
    health::DiskHealth,
    history::HistoryFile,
    log::{Contents, Directory, Log, LogEnd, RESERVE, Volume},
    records::Meta,
    state::{ListProgress, Moment, PageBuilder, State, WallClock},
    writer::Writer,
};

/// How long a command waits for the disk before it fails. A disk that takes longer is stuck, not slow.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The writer thread has panicked, which is a bug. Only a restart helps, so every answer and check must say so.
const WRITER_LOST: &str = "the thread that writes has ended; start the gateway again";

/// A store that keeps its leases in a log of this process. A change is durable before it is answered.
pub struct EmbeddedStore {
    pub(super) directory: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) state: Arc<RwLock<State>>,
    pub(super) health: Arc<DiskHealth>,
    pub(super) commands: SyncSender<(Command, Handle)>,
    /// Permits that limit how many acquires are among the commands that wait.
    pub(super) acquires: Arc<Semaphore>,
    /// The permit for a backup in memory, of which only one exists at a time.
    pub(super) backups: Arc<Semaphore>,
    /// Bounds the callers that read the history, each of which occupies a thread.
    histories: Arc<Semaphore>,
    pub(super) parking: Parking,
    pub(super) breaks: BreakFeed,
    pub(super) history: Arc<HistoryFile>,
    /// Whether the store is being closed. Set before the writer stops answering.
    pub(super) closed: Arc<AtomicBool>,
    pub(super) writer: JoinHandle<()>,
}

// === impl EmbeddedStore ===

impl EmbeddedStore {
    async fn ask<T>(
        &self,
        command: impl FnOnce(ReplySender<T>) -> Command,
    ) -> Result<T, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Unavailability::Closing.into());
        }
        let (answer, mut outcome) = oneshot::channel();
        self.commands
            .try_send((command(answer), Handle::current()))
            .map_err(|error| match error {
                TrySendError::Full(_) => Unavailability::Overloaded,
                TrySendError::Disconnected(_) if self.closed.load(Ordering::Acquire) => {
                    Unavailability::Closing
                }
                TrySendError::Disconnected(_) => Unavailability::Disk(WRITER_LOST.to_owned()),
            })?;
        match tokio::time::timeout(ANSWER_WITHIN, &mut outcome).await {
            Ok(Ok(answer)) => answer,
            // A closing writer answers all commands that it has received; this command came too late.
            Ok(Err(_unanswered)) if self.closed.load(Ordering::Acquire) => {
                Err(Unavailability::Closing.into())
            }
            Ok(Err(_unanswered)) => Err(Uncertainty::Disk(WRITER_LOST.to_owned()).into()),
            Err(_elapsed) => {
                // If this process was suspended, the answer may have arrived although the timeout has passed; the task
                // that sends the answer needs a chance to run.
                tokio::task::yield_now().await;
                let answer = outcome.try_recv();
                answer.unwrap_or_else(|_unanswered| Err(Uncertainty::TimedOut.into()))
            }
        }
    }

    async fn change<T: Outcome>(
        &self,
        change: impl FnMut(&mut State, Moment) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(|answer| Command::change(answer, change)).await
    }

    /// Reads or writes the file of the history, on a thread where that may take a while.
    async fn in_history<T: Send + 'static>(
        &self,
        run: impl FnOnce(&HistoryFile) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Unavailability::Closing.into());
        }
        let history = Arc::clone(&self.history);
        let done = spawn_blocking(move || run(&history)).await;
        let done = done.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
        done.map_err(|error| Unavailability::Disk(format!("the history: {error}")).into())
    }

    fn publish_breaks(&self, name: &LockName, tokens: Vec<TokenHash>) {
        for token in tokens {
            let name = name.clone();
            self.breaks.publish(BrokenLease { name, token });
        }
    }

    /// Makes a backup of all leases and tombstones that live, in the format of a log file. Every change that was
    /// acknowledged before is in the backup.
    pub async fn backup(&self) -> Result<StoreBackup, StoreError> {
        let room = Arc::clone(&self.backups).try_acquire_owned();
        let room = room.map_err(|_under_way| Unavailability::Overloaded)?;
        let bytes = self.ask(Command::Backup).await?;
        Ok(StoreBackup { bytes, room })
    }

    /// Reads the durable state of the store, without the writer.
    fn read<T>(&self, read_state: impl FnOnce(&State, Moment) -> T) -> Result<T, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Unavailability::Closing.into());
        }
        let mut state = self.state.read();
        if state.wall_if_set(&*self.clock).is_some() {
            drop(state);
            let now = Moment::now(&*self.clock);
            self.state.write().follow_wall(&*self.clock, now);
            state = self.state.read();
        }
        // The clock is read after the lock was waited for, because the remaining times are answered as of now.
        let now = Moment::now(&*self.clock);
        Ok(read_state(&state, now))
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let room = Arc::clone(&self.acquires).try_acquire_owned();
        let room = room.map_err(|_full| Unavailability::Overloaded)?;
        // The permit is released when the writer takes up this command: from then on the acquire is no longer
        // waiting.
        let (attempt, mut room) = (attempt.clone(), Some(room));
        self.change(move |state, now| {
            drop(room.take());
            state.acquire(&attempt, now)
        })
        .await
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        self.read(|state, now| state.confirm(name, token, now))
    }

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let (name, token) = (name.clone(), *token);
        self.change(move |state, now| Ok(state.leave(&name, &token, keep_for, now)))
            .await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let (name, token) = (name.clone(), *token);
        self.change(move |state, now| Ok(state.renew(renewer, &name, &token, ttl, now)))
            .await
    }

    async fn release_as(
        &self,
        releaser: Releaser,
        name: &LockName,
        token: &TokenHash,
        _granted_here: bool,
    ) -> Result<Release, StoreError> {
        let (name, token) = (name.clone(), *token);
        self.change(move |state, now| Ok(state.release(releaser, &name, &token, now)))
            .await
    }

    async fn record_history(&self, batches: &[HistoryBatch]) -> Result<Vec<usize>, StoreError> {
        let batches = batches.to_vec();
        self.in_history(move |history| history.append(&batches))
            .await?;
        Ok(Vec::new())
    }

    async fn history(&self, name: &LockName) -> Result<StoredHistory, StoreError> {
        let room = Arc::clone(&self.histories).try_acquire_owned();
        let room = room.map_err(|_full| Unavailability::Overloaded)?;
        let name = name.clone();
        let read = self.in_history(move |history| history.read(&name)).await;
        drop(room);
        read
    }

    fn found(&self) -> Vec<(LockName, TokenHash, HeldLease)> {
        self.read(State::found).unwrap_or_default()
    }

    async fn give_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        unanswered: Option<RecipientId>,
    ) -> Result<GiveBack, StoreError> {
        let (name, token) = (name.clone(), *token);
        self.change(move |state, now| Ok(state.give_back(&name, &token, unanswered, now)))
            .await
    }

    /// Answers the durable state of a lock from memory, so an inspect works while the disk fails or is slow.
    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        self.read(|state, now| state.inspect(name, now))
    }

    async fn check_fence(&self, query: &FenceQuery) -> Result<FenceCheck, StoreError> {
        self.read(|state, now| state.check_fence(query, now))
    }

    /// Answers a page of the durable state from memory, a part at a time, so that the writer does not have to wait
    /// long.
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let mut listing = PageBuilder::new(query);
        loop {
            match self.read(|state, now| listing.scan(state, now))? {
                ListProgress::More => tokio::task::yield_now().await,
                walk @ (ListProgress::PageFull | ListProgress::Done) => {
                    return Ok(listing.page(walk));
                }
            }
        }
    }

    async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        let lock = name.clone();
        let change = self.change(move |state, now| Ok(state.break_lock(&lock, target, now)));
        let (breaking, tokens) = change.await?;
        self.publish_breaks(name, tokens);
        Ok(breaking)
    }

    async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        let (lock, request) = (name.clone(), request.clone());
        let change =
            self.change(move |state, now| state.request_release(&lock, target, &request, now));
        let (requesting, tokens) = change.await?;
        self.publish_breaks(name, tokens);
        Ok(requesting)
    }

    async fn set_order(
        &self,
        name: &LockName,
        change: OrderChange,
    ) -> Result<OrderSetting, StoreError> {
        let name = name.clone();
        self.change(move |state, now| state.set_order(&name, change, now))
            .await
    }

    fn breaks(&self) -> &BreakFeed {
        &self.breaks
    }

    fn parking(&self) -> &Parking {
        &self.parking
    }

    fn figures(&self) -> StoreFigures {
        StoreFigures {
            servers: vec![ServerFigures {
                node: "the data directory".to_owned(),
                is_up: self.health.now(&*self.clock).is_none(),
                ..ServerFigures::default()
            }],
            ..StoreFigures::default()
        }
    }

    async fn check(&self) -> Vec<Check> {
        let closed = self.closed.load(Ordering::Acquire);
        let health = if self.writer.is_finished() && !closed {
            // The loss of the writer is no outage, which would end without action: this gateway must go out of service
            // until it is restarted.
            Health::Misconfigured(WRITER_LOST.to_owned())
        } else {
            let failure = self.health.now(&*self.clock);
            match failure {
                None => Health::Passing,
                // A misplaced file is no outage either: only an operator can put the file back.
                Some(why) if self.health.is_misplaced() => Health::Misconfigured(why),
                Some(why) => Health::Outage(why),
            }
        };
        vec![Check::new("disk", health)]
    }

    async fn close(&self) {
        let (closed, done) = oneshot::channel();
        let commands = self.commands.clone();
        // The command queue of the writer may be full. A blocking thread waits for room, because it delays no other
        // task.
        let close = (Command::Close(closed), Handle::current());
        let sent = spawn_blocking(move || commands.send(close).is_ok()).await;
        if let Ok(true) = sent {
            // The close is not confirmed only if another close came first.
            done.await.ok();
        }
    }

    async fn backup(&self) -> Option<Result<StoreBackup, StoreError>> {
        Some(self.backup().await)
    }

    fn system(&self) -> (&'static str, SpanKind) {
        ("embedded", SpanKind::Internal)
    }

    fn describe(&self) -> String {
        format!("embedded:{}", self.directory.display())
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

// === Start ===
//
// Opens the data directory and starts the writer thread.

/// How many commands may wait for the writer; more commands are refused as overload. This is many batches, and
/// still less than a second of work.
pub(super) const QUEUE: usize = 16_384;
/// How many of the commands that wait for the writer may be acquires. The other commands are renewals and releases: no
/// holder may lose a lock because other callers send too many acquires.
pub(super) const ACQUIRES: usize = QUEUE - QUEUE / 8;
/// Wall times at which fencing tokens may begin, in microseconds: the years 2025 to 2200. A clock outside of
/// this range is wrong, and would waste fencing tokens for ever.
const PLAUSIBLE: std::ops::Range<u64> = 1_735_689_600_000_000..7_258_118_400_000_000;

// === impl EmbeddedStore ===

impl EmbeddedStore {
    /// Opens the store in a directory, which is created if it does not exist, and locks the directory for this
    /// process.
    ///
    /// Blocks while it reads the log.
    pub fn open(
        directory: &Path,
        clock: Arc<dyn Clock>,
        orders: OrderLimits,
    ) -> Result<Self, OpenError> {
        let directory = Directory::take(directory)?;
        let files = directory
            .files()
            .map_err(|error| OpenError::from_io(directory.path(), error))?;
        Self::start(directory, Box::new(files), clock, orders)
    }

    /// Reads the log, or begins a log if there is none, and starts the writer thread.
    pub(super) fn start(
        directory: Directory,
        volume: Box<dyn Volume>,
        clock: Arc<dyn Clock>,
        orders: OrderLimits,
    ) -> Result<Self, OpenError> {
        let read = Log::read(&*volume).map_err(|error| OpenError::of_log(&directory, error))?;
        let (contents, end) = read.unwrap_or_else(|| (Contents::none(&*clock), LogEnd::default()));
        if end.is_torn {
            warn!(
                "the last transaction in the data directory is incomplete or damaged and is rolled \
                 back; this is normal after a loss of power during the write: no caller had an \
                 answer yet; if the disk has damaged the transaction, the last grants, renewals or \
                 releases are lost"
            );
        }
        let now = Moment::now(&*clock);
        let boot = clock.boot_id();
        let same_boot = contents.meta.boot == boot && contents.meta.written_at <= now;
        let floor = floor(clock.wall());
        if end.is_backup && floor < contents.meta.fence {
            return Err(OpenError::ClockBehindBackup(directory.path().to_owned()));
        }
        let fence = contents.meta.fence.max(floor);
        let mut contents = if same_boot {
            contents
        } else {
            rebased(contents, now)
        };
        let wall = WallClock::default().look(&*clock);
        for (_, lease) in &mut contents.leases {
            lease.follow(wall);
        }
        let parking = Parking::default();
        let (leases, tombstones) = (contents.leases, contents.tombstones);
        let mut state = State::new(leases, tombstones, fence, parking.clone());
        (state.wall, state.orders) = (wall, orders);
        let meta = Meta {
            fence: state.fence(),
            boot: boot.clone(),
            written_at: now,
            rows: state.len(),
        };
        // The reserve is checked before a log file begins: a start that fails at the reserve has changed nothing.
        volume
            .reserved()
            .map_err(|error| OpenError::from_io(&directory.path().join(RESERVE), error))?;
        // The first write of a log file shows at once whether the data directory can be written.
        let mut log = Log::begin(volume, end, &meta, &state)
            .map_err(|failure| OpenError::from_io(directory.path(), failure.error))?;

        let live_bytes = state.live_bytes();
        log.keep_space(live_bytes);

        let (commands, received) = mpsc::sync_channel(QUEUE);
        let state = Arc::new(RwLock::new(state));
        let health = Arc::new(DiskHealth::default());
        let closed = Arc::new(AtomicBool::new(false));
        let open_files = directory
            .open_files(log.generation())
            .map_err(|error| OpenError::from_io(directory.path(), error))?;
        let path = directory.path().to_owned();
        let files = directory.files();
        let files = files.map_err(|error| OpenError::from_io(directory.path(), error))?;
        let history = Arc::new(HistoryFile::new(files));
        let writer = Writer {
            commands: received,
            state: Arc::clone(&state),
            parking: parking.clone(),
            orphans: Vec::new(),
            clock: Arc::clone(&clock),
            health: Arc::clone(&health),
            closed: Arc::clone(&closed),
            boot,
            log,
            writable: true,
            written_at: now,
            sweep_pending: false,
            backup: None,
            live_bytes,
            shortage: None,
            try_after: Instant::now(),
            keeping_space: false,
            open_files,
            files_checked_at: Instant::now(),
            positions_published_at: Instant::now(),
            directory,
        };
        let writer = thread::Builder::new()
            .name("latchgate-store".to_owned())
            .spawn(move || writer.run())
            .map_err(OpenError::Thread)?;
        Ok(Self {
            directory: path,
            clock,
            state,
            health,
            commands,
            acquires: Arc::new(Semaphore::new(ACQUIRES)),
            backups: Arc::new(Semaphore::new(1)),
            histories: Arc::new(Semaphore::new(16)),
            parking,
            breaks: BreakFeed::default(),
            history,
            closed,
            writer,
        })
    }
}

/// Converts all times of the log to the clock of a new boot of the machine.
fn rebased(contents: Contents, now: Moment) -> Contents {
    let last_known = contents.meta.written_at;
    let leases = contents.leases.into_iter();
    let tombstones = contents.tombstones.into_iter();
    Contents {
        leases: leases
            .map(|(name, lease)| (name, lease.rebased(last_known, now)))
            .collect(),
        tombstones: tombstones
            .map(|(tombstone, mut memory)| {
                memory.until = memory.until.rebased(last_known, now);
                (tombstone, memory)
            })
            .collect(),
        meta: contents.meta,
    }
}

/// The number at which fencing tokens begin, taken from the wall clock. Without this, a store restored from a backup
/// would grant fencing tokens again that were granted after the backup was made.
fn floor(wall: SystemTime) -> u64 {
    let micros = wall
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        });
    if PLAUSIBLE.contains(&micros) {
        micros
    } else {
        warn!("the wall clock is wrong; fencing tokens go on from the last one in the file");
        0
    }
}
