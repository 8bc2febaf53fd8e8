//! The handle to the embedded store.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, TrySendError},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::{Semaphore, oneshot};

use crate::{
    clock::Clock,
    lock::{BreakTarget, KeeperId, LockName, TokenHash, Ttl},
    store::{
        Store, StoreError, Unavailability, Uncertainty,
        breaks::{BreakFeed, Breaking, BrokenLease},
        contract::{
            Acquisition, Attempt, Check, Confirmation, GiveBack, Health, Inspection, Leaving,
            Release, Renewal, Renewer,
        },
        page::{ListQuery, Page},
        parking::Parking,
    },
};

use super::{
    command::{Command, ReplySender},
    health::DiskHealth,
    list::{ListProgress, PageBuilder},
    moment::Moment,
    state::State,
};

/// How long a command waits for the disk. A disk that takes longer is not slow but stuck.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A bug; nothing but a new start helps, so it must be seen in every answer and check.
const WRITER_LOST: &str = "the thread that writes has ended; start the gateway again";

/// Leases in a file of this process, durable before the answer.
pub struct EmbeddedStore {
    pub(super) directory: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) state: Arc<RwLock<State>>,
    pub(super) health: Arc<DiskHealth>,
    pub(super) commands: SyncSender<Command>,
    /// Room for acquires among the commands that wait.
    pub(super) acquires: Arc<Semaphore>,
    pub(super) parking: Parking,
    pub(super) breaks: BreakFeed,
    /// Set before the writer stops answering.
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
        let (answer, outcome) = oneshot::channel();
        self.commands
            .try_send(command(answer))
            .map_err(|error| match error {
                TrySendError::Full(_) => Unavailability::Overloaded,
                TrySendError::Disconnected(_) if self.closed.load(Ordering::Acquire) => {
                    Unavailability::Closing
                }
                TrySendError::Disconnected(_) => Unavailability::Disk(WRITER_LOST.to_owned()),
            })?;
        match tokio::time::timeout(ANSWER_WITHIN, outcome).await {
            Ok(Ok(answer)) => answer,
            // A writer that closes answers all it has taken up; this command came too late.
            Ok(Err(_unanswered)) if self.closed.load(Ordering::Acquire) => {
                Err(Unavailability::Closing.into())
            }
            Ok(Err(_unanswered)) => Err(Uncertainty::Disk(WRITER_LOST.to_owned()).into()),
            Err(_elapsed) => Err(Uncertainty::TimedOut.into()),
        }
    }

    /// Looks at what is durable, without the writer.
    fn read<T>(&self, read_state: impl FnOnce(&State, Moment) -> T) -> Result<T, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Unavailability::Closing.into());
        }
        let now = Moment::now(&*self.clock);
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        Ok(read_state(&state, now))
    }
}

impl Store for EmbeddedStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let room = Arc::clone(&self.acquires).try_acquire_owned();
        let room = room.map_err(|_full| Unavailability::Overloaded)?;
        let attempt = Box::new(attempt.clone());
        self.ask(|answer| Command::Acquire(attempt, answer, room))
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
        self.ask(|answer| Command::Leave(name.clone(), *token, keep_for, answer))
            .await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        self.ask(|answer| Command::Renew(renewer, name.clone(), *token, ttl, answer))
            .await
    }

    async fn release_as(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        self.ask(|answer| Command::Release(keeper, name.clone(), *token, answer))
            .await
    }

    async fn give_back(&self, name: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        self.ask(|answer| Command::GiveBack(name.clone(), *token, answer))
            .await
    }

    /// Answers from memory, what is durable: also while the disk fails or is slow.
    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        self.read(|state, now| state.inspect(name, now))
    }

    /// Answers from memory, what is durable, a part at a time: the writer does not wait for it.
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
        let ask = self.ask(|answer| Command::Break(name.clone(), target, answer));
        let (breaking, token) = ask.await?;
        if let Some(token) = token {
            let name = name.clone();
            self.breaks.publish(BrokenLease { name, token });
        }
        Ok(breaking)
    }

    fn breaks(&self) -> &BreakFeed {
        &self.breaks
    }

    fn parking(&self) -> &Parking {
        &self.parking
    }

    async fn check(&self) -> Vec<Check> {
        let closed = self.closed.load(Ordering::Acquire);
        let health = if self.writer.is_finished() && !closed {
            // No outage, which would end by itself: this instance must go out of service.
            Health::Misconfigured(WRITER_LOST.to_owned())
        } else {
            let failure = self.health.now(&*self.clock);
            match failure {
                None => Health::Passing,
                // As above: it does not end by itself.
                Some(why) if self.health.is_misplaced() => Health::Misconfigured(why),
                Some(why) => Health::Outage(why),
            }
        };
        vec![Check {
            name: "disk",
            health,
            note: None,
        }]
    }

    async fn close(&self) {
        let (closed, done) = oneshot::channel();
        let commands = self.commands.clone();
        // The queue may be full: wait for room where waiting does no harm.
        let sent = tokio::task::spawn_blocking(move || commands.send(Command::Close(closed))).await;
        if let Ok(Ok(())) = sent {
            // Unanswered only if another close came first.
            done.await.ok();
        }
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
