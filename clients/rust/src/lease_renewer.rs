//! Keeps a lease for as long as it is wanted, says at once when it is lost, and does work while it is kept.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    AcquireRequest, Acquiring, Client, ClientError, Lease, LockName, Problem, ReleaseRequest,
    acquire::OnDrop,
    http::{Retry, pause},
    lock::{
        self, GroupNames,
        renewal::{self, random_fraction},
    },
};

/// A lease that is kept by a task of its own.
///
/// It is renewed when a third of it has passed, through whichever address of the client answers. What
/// fails is tried again until the lease is over. That is decided on this machine's monotonic clock,
/// from when the last successful renewal was *sent*: so it is told here before anybody else can be
/// granted the lock. A gateway that says that the lease has ended is believed at once.
///
/// A process that was suspended goes on where it was, and nothing tells it. Before a step that must not be done twice,
/// [`LeaseRenewer::check`] tells: it looks at the clock. What happens between the check and the step, only the fencing token
/// tells, and on some systems the clock stands still while the machine sleeps.
///
/// Every caller with the token can end the lease. The renewal task is not notified of that: the next renewal finds the
/// lease lost, and until then it is believed to last. A renewal asks for the TTL that the lease had when it began
/// to be kept, whatever TTL others with the token have set.
///
/// Somebody may ask for the lock ([`LeaseRenewer::requests`]). The lease is renewed until the time for its release is
/// over, and is lost then.
///
/// Dropped, it renews no more, and the lease ends with its TTL; [`LeaseRenewer::release`] ends it at once.
#[derive(Debug)]
pub struct LeaseRenewer {
    client: Client,
    lease: Lease,
    board: Board,
    renewals: AbortHandle,
    /// Until when the lease lasted when its release began.
    given_up: OnceLock<Option<Instant>>,
    released: AtomicBool,
    /// Ends with this.
    _task: JoinSet<()>,
}

/// How the lease stands, for all who ask.
#[derive(Debug, Clone)]
struct Board {
    state: watch::Sender<LeaseState>,
    requests: watch::Sender<Option<ReleaseRequest>>,
}

/// What the task knows.
struct RenewTask {
    client: Client,
    lease: Lease,
    board: Board,
    /// Until when the lease is to be released, if somebody has asked for that.
    release_by: Option<Instant>,
    /// What is asked for, whatever others with the token have made of it; `None`: what the lease has, if
    /// as much is not allowed any more.
    asked: Option<Duration>,
    ttl: Duration,
    until: Instant,
    renew_at: Instant,
    /// Whether the lease ends with its hold limit, beyond which no renewal goes.
    at_limit: bool,
}

/// A lease has come soon if it took no more than this part of itself.
const SOON: u32 = 10;

/// A lease is not renewed before this part of what was left of it has passed, whatever the gateway says: one that says 0
/// would be asked without end.
const LEAST_PART: u32 = 20;

/// Longer than any lease lasts.
const A_LONG_TIME: Duration = Duration::from_hours(24);

// === impl LeaseRenewer ===

impl LeaseRenewer {
    /// Begins to keep a lease, on the runtime of the caller.
    ///
    /// A lease that took long to come is renewed first: most likely it was waited for, but nobody
    /// knows how long ago it was granted. It may have been on its way for longer than it lasts.
    ///
    /// If that fails, or this is dropped half-way, the lease is given back in the background
    /// ([`Client::finish_releases`]).
    pub async fn start(client: &Client, lease: Lease) -> Result<Self, ClientError> {
        let lease = if lease.took() > lease.ttl / SOON {
            let held = OnDrop::new(client, lease.clone());
            let renewed = renew_first(client, lease).await;
            // A lost one needs no release.
            if matches!(renewed, Ok(_) | Err(ClientError::Lost(_))) {
                held.disarm();
            }
            renewed?
        } else {
            lease
        };
        let until = certain_until(&lease);
        let board = Board {
            state: watch::Sender::new(LeaseState::Kept { until }),
            requests: watch::Sender::new(None),
        };
        let mut renewer = RenewTask {
            client: client.clone(),
            lease: lease.clone(),
            board: board.clone(),
            release_by: None,
            asked: Some(lease.ttl),
            ttl: lease.ttl,
            until,
            renew_at: until,
            at_limit: false,
        };
        renewer.renewed(&lease);
        board.publish(renewer.current_state());
        let mut task = JoinSet::new();
        let renewals = task.spawn(renewer.keep());
        Ok(Self {
            client: client.clone(),
            lease,
            board,
            renewals,
            given_up: OnceLock::new(),
            released: AtomicBool::new(false),
            _task: task,
        })
    }

    /// How the lease stands, now and whenever that changes.
    pub fn watch(&self) -> watch::Receiver<LeaseState> {
        self.board.state.subscribe()
    }

    /// What was asked of the holder, as soon as a renewal tells it; changes if less time is left than was said before.
    pub fn requests(&self) -> watch::Receiver<Option<ReleaseRequest>> {
        self.board.requests.subscribe()
    }

    /// Until when the lease certainly lasts, which is not over yet; `None` once it is lost.
    pub fn until(&self) -> Option<Instant> {
        self.board.look().until()
    }

    /// An error if the lease is lost by now, even if this process was suspended and nothing else of it has gone on since.
    pub fn check(&self) -> Result<(), Loss> {
        match self.board.look() {
            LeaseState::Lost(loss) => Err(loss),
            _ => Ok(()),
        }
    }

    /// Ends when the lease is lost, and says how.
    pub async fn lost(&self) -> Loss {
        let mut state = self.board.state.subscribe();
        loop {
            let until = match self.board.look() {
                LeaseState::Lost(loss) => return loss,
                LeaseState::Kept { until }
                | LeaseState::AtLimit { until }
                | LeaseState::AtRisk { until, .. } => until,
            };
            tokio::select! {
                // The sender cannot be gone, because `self.board` has it.
                _ = state.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Ends the lease, trying for so long, but not longer than it lasts.
    ///
    /// From the beginning of this on it is not renewed, and is [`Loss::Released`] for everybody here. If it fails it can be
    /// repeated; once it has succeeded, a repetition does nothing.
    pub async fn release(&self, within: Duration) -> Result<(), ClientError> {
        let lasted_until = *self.given_up.get_or_init(|| self.until());
        // A renewal that is under way may arrive after the release: it resurrects nothing.
        self.renewals.abort();
        self.board.publish(LeaseState::Lost(Loss::Released));
        if self.released.load(Ordering::Acquire) {
            return Ok(());
        }
        let now = Instant::now();
        let deadline = now.checked_add(within).unwrap_or(now + A_LONG_TIME);
        let end = lasted_until.filter(|until| *until > now);
        let deadline = end.map_or(deadline, |end| deadline.min(end));
        let mut retry = Retry::until(&self.client, deadline);
        retry.persist_until(deadline);
        self.client.release_lease_with(&self.lease, retry).await?;
        self.released.store(true, Ordering::Release);
        Ok(())
    }
}

// === impl Board ===

impl Board {
    /// Publishes how it stands, unless it is lost: that is for good. Whether it was published.
    fn publish(&self, state: LeaseState) -> bool {
        self.state.send_if_modified(|known| {
            let open = !known.is_lost();
            if open {
                *known = state;
            }
            open
        })
    }

    /// How it stands by now. Whoever looks first after its end publishes the loss: the task may not have run since.
    fn look(&self) -> LeaseState {
        let was_asked = self.requests.borrow().is_some();
        let now = Instant::now();
        let known = self.state.borrow().clone();
        if known.loss_at(now, was_asked).is_none() {
            return known;
        }
        self.state.send_if_modified(|known| {
            let loss = known.loss_at(now, was_asked);
            let is_new = loss.is_some();
            if let Some(loss) = loss {
                *known = LeaseState::Lost(loss);
            }
            is_new
        });
        self.state.borrow().clone()
    }
}

async fn renew_first(client: &Client, lease: Lease) -> Result<Lease, ClientError> {
    let time_out = copy_time_out(client, lease.ttl);
    // No lease can last longer than this.
    let mut retry = Retry::until(client, Instant::now() + lease.expires_in);
    loop {
        let renewal = client.renew_lease_once(&lease, None, time_out);
        match renewal.await {
            Ok(renewed) => return Ok(renewed),
            Err(failure) => retry.after_error(failure.error).await?,
        }
    }
}

// === impl RenewTask ===

impl RenewTask {
    async fn keep(mut self) {
        let mut failed = 0;
        loop {
            sleep_until(self.renew_at.min(self.until)).await;
            if self.board.look().is_lost() {
                return;
            }
            let time_out = copy_time_out(&self.client, self.ttl);
            let (client, lease) = (&self.client, &self.lease);
            let renewal = client.renew_lease_once(lease, self.asked, time_out);
            let state = match timeout_at(self.until, renewal).await {
                Ok(Ok(lease)) => {
                    failed = 0;
                    self.renewed(&lease);
                    self.current_state()
                }
                Ok(Err(failure)) => match failure.error {
                    ClientError::Lost(problem) => LeaseState::Lost(Loss::Ended(problem)),
                    // The key may not ask for this TTL any more. The lease is renewed with its own TTL instead.
                    ClientError::Refused(_) if self.asked.is_some() => {
                        self.asked = None;
                        continue;
                    }
                    // Any other failure may pass before the lease is over.
                    error => {
                        failed += 1;
                        let requested = failure.requested_pause.unwrap_or_default();
                        // A longer pause could use up the time that is left of the lease.
                        let requested = requested.min(self.ttl / 10);
                        let spread = requested.mul_f64(1.0 + random_fraction() / 2.0);
                        let pause = pause(failed).max(spread).min(self.ttl / 10);
                        self.renew_at = Instant::now() + pause;
                        LeaseState::AtRisk {
                            until: self.until,
                            reason: error.to_string(),
                        }
                    }
                },
                Err(_elapsed) => continue,
            };
            let ends = state.is_lost();
            if !self.board.publish(state) || ends {
                return;
            }
        }
    }

    fn renewed(&mut self, lease: &Lease) {
        self.ttl = lease.ttl;
        self.hear(lease);
        self.until = certain_until(lease);
        self.at_limit = lease
            .hold_expires_in
            .is_some_and(|left| left <= lease.expires_in);
        self.renew_at = if self.at_limit {
            self.until
        } else {
            // Late enough to ask again and again, early enough to ask again.
            let left = lease.good_for();
            let after = lease.renew_after.max(left / LEAST_PART).min(left / 2);
            lease.sent_at + renewal::spread(after)
        };
    }

    /// Tells of a request to release it.
    fn hear(&mut self, lease: &Lease) {
        let Some(request) = &lease.release_requested else {
            return;
        };
        let by = lease.sent_at + request.within();
        if self
            .release_by
            .is_none_or(|known| by + lock::ReleaseRequest::SAME_WITHIN < known)
        {
            self.release_by = Some(by);
            self.board.requests.send_replace(Some(request.clone()));
        }
    }

    fn current_state(&self) -> LeaseState {
        let until = self.until;
        if self.at_limit {
            LeaseState::AtLimit { until }
        } else {
            LeaseState::Kept { until }
        }
    }
}

fn certain_until(lease: &Lease) -> Instant {
    renewal::certain_until(lease.sent_at, lease.good_for())
}

/// How long one renewal may take: so that in the second third of the lease a few addresses that do
/// not answer can be passed over.
fn copy_time_out(client: &Client, ttl: Duration) -> Duration {
    let enough = (ttl / 9).max(Duration::from_millis(50));
    enough.min(client.options.request_timeout)
}

// === Lease state ===
//
// How a lease that is being kept stands.

/// How a lease that is being kept stands.
#[derive(Debug, Clone)]
pub enum LeaseState {
    /// It was renewed in time.
    Kept {
        /// Until when it certainly lasts.
        until: Instant,
    },
    /// It was renewed as far as its hold limit allows, and will not be renewed again.
    AtLimit {
        /// Until when it certainly lasts.
        until: Instant,
    },
    /// A renewal failed. It is retried, but work that needs time to stop should watch the deadline.
    AtRisk {
        /// Until when it certainly lasts.
        until: Instant,
        /// Why the renewal failed.
        reason: String,
    },
    /// It is lost, for good.
    Lost(Loss),
}

/// How a lease was lost.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Loss {
    /// It could not be renewed for as long as it lasted.
    #[error("it could not be renewed in time: {reason}")]
    Expired {
        /// Why the last renewal failed.
        reason: String,
    },
    /// It was given back here.
    #[error("it was released")]
    Released,
    /// It was kept for as long as its hold limit allows.
    #[error("its hold limit is reached")]
    HoldLimit,
    /// Somebody had asked for the lock, and the time in which it was to be released is over.
    #[error("somebody asked for the lock, and it was not released in time")]
    NotReleased,
    /// The gateway says that its token does not hold the lock any more. Somebody else may hold it
    /// already.
    #[error("the gateway says that it has ended: {0}")]
    Ended(Box<Problem>),
}

// === impl LeaseState ===

impl LeaseState {
    /// Until when the lease certainly lasts; `None` once it is lost.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Self::Kept { until } | Self::AtLimit { until } | Self::AtRisk { until, .. } => {
                Some(*until)
            }
            Self::Lost(_) => None,
        }
    }
    fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// How it is lost by then, if it is and nobody has said so yet; `was_asked`: somebody has asked for the lock.
    fn loss_at(&self, now: Instant, was_asked: bool) -> Option<Loss> {
        if self.until().is_none_or(|until| now < until) {
            return None;
        }
        Some(match self {
            _ if was_asked => Loss::NotReleased,
            Self::AtLimit { .. } => Loss::HoldLimit,
            Self::AtRisk { reason, .. } => Loss::Expired {
                reason: reason.clone(),
            },
            Self::Kept { .. } | Self::Lost(_) => Loss::Expired {
                reason: "no answer in time".to_owned(),
            },
        })
    }
}

// === With lock ===
//
// Work that is done while a lock is held, and not for longer.

/// Why work was not done under a lock, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum WithLockError {
    /// The lock was not acquired: the work was not begun.
    #[error(transparent)]
    NotAcquired(#[from] ClientError),
    /// The lease was lost before the work was done, which was dropped.
    #[error("the lease was lost: {0}")]
    Lost(#[source] Loss),
}

// === impl Client ===

impl Client {
    /// Does some work while a lock is held: acquires it, keeps the lease while the work is done, and releases it.
    ///
    /// When the lease is lost the work is dropped where it waits, before anybody else can be granted the lock if it was lost
    /// for want of an answer. What it has sent by then may still be on its way: send the fencing token with it, and let the
    /// resource refuse a smaller one than it has seen. Work that never waits (`spawn_blocking`, a long computation) is not
    /// stopped.
    ///
    /// A release that nobody answers is no error: the lease ends with its TTL.
    ///
    /// If this is dropped half-way, or the work panics, the lock is given back in the background, and so is the place in the
    /// queue. Do not drop it while work goes on that does not wait. [`Client::finish_releases`] waits for the background.
    pub async fn with_lock<T>(
        &self,
        name: &LockName,
        request: &AcquireRequest,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let acquiring = self.acquiring(name.clone(), request.clone());
        self.with_acquired(acquiring, work).await
    }

    /// The same with several locks, all or none.
    pub async fn with_locks<T>(
        &self,
        names: &GroupNames,
        request: &AcquireRequest,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let acquiring = self.acquiring_all(names.clone(), request.clone());
        self.with_acquired(acquiring, work).await
    }

    async fn with_acquired<T>(
        &self,
        acquiring: Acquiring,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let lease = OnDrop::new(self, acquiring).finish().await?;
        let renewer = LeaseRenewer::start(self, lease.clone()).await?;
        // Declared before the work, so that it is dropped after it.
        let held = OnDrop::new(self, lease.clone());
        let done = tokio::select! {
            // What was lost while the work did not wait is lost.
            biased;
            loss = renewer.lost() => {
                held.disarm();
                return Err(WithLockError::Lost(loss));
            }
            done = work(&lease) => done,
        };
        let released = renewer.release(self.options.deadline).await;
        held.disarm();
        match released {
            Err(ClientError::Lost(problem)) => Err(WithLockError::Lost(Loss::Ended(problem))),
            Ok(()) | Err(_) => Ok(done),
        }
    }
}
