//! Keeps a lease renewed, reports at once when the lease is lost, and runs work while a lock is held.

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
    AcquireRequest, Acquiring, Client, ClientError, GroupLocks, Lease, LockName, Problem,
    ReleaseRequest,
    acquire::{OnDrop, UnusedLease},
    http::{Retry, pause},
    lock::{
        self,
        renewal::{self, random_fraction},
    },
};

/// Keeps a lease renewed in a background task, and reports when the lease is lost.
///
/// The lease is renewed when a third of its time has passed, through any address of the client that answers. A
/// failed renewal is repeated until the lease ends. Its end is computed on this machine's monotonic clock from when
/// the last successful renewal was *sent*, so the loss is reported here before the lock can be granted to another
/// caller. If a gateway reports that the lease has ended, it is lost at once.
///
/// A process that was suspended is not told so, and continues where it stopped. Call [`LeaseRenewer::check`] before
/// a step that must not be done twice: it compares the end of the lease with the clock. It cannot protect the time
/// between the check and the step; on some systems the clock also stops while the machine sleeps. Use the fencing
/// token against both.
///
/// Any caller with the token can end the lease. The renewer learns of that at its next renewal; until then it
/// reports the lease as kept. Each renewal requests the TTL that the lease had when the renewer started, whatever
/// TTL other callers with the token have set.
///
/// Another caller may request the release of the lock ([`LeaseRenewer::requests`]). The lease is then renewed until
/// the time for its release is over, and is lost after that.
///
/// If the renewer is dropped, it stops renewing, and the lease ends with its TTL. [`LeaseRenewer::release`] ends
/// the lease at once.
#[derive(Debug)]
pub struct LeaseRenewer {
    client: Client,
    lease: Lease,
    board: Board,
    renewals: AbortHandle,
    /// The instant until which the lease would have lasted when its release began, or `None` if the lease was already
    /// lost. Unset before a release.
    given_up: OnceLock<Option<Instant>>,
    released: AtomicBool,
    /// Whether a release without an answer may have ended the lease.
    in_doubt: AtomicBool,
    /// The task that renews the lease, aborted when the renewer is dropped.
    _task: JoinSet<()>,
}

/// The published state of the lease and its release request, for all observers of a renewer.
#[derive(Debug, Clone)]
struct Board {
    state: watch::Sender<LeaseState>,
    requests: watch::Sender<Option<ReleaseRequest>>,
}

/// The state of the task that renews a lease.
struct RenewTask {
    client: Client,
    lease: Lease,
    board: Board,
    /// The instant by which the lease should be released, if another caller has requested its release.
    release_by: Option<Instant>,
    /// The TTL that renewals request, whatever TTL other callers with the token have set. `None`: renewals request no
    /// TTL, so the lease keeps its TTL, because the API key may not request the caller's TTL any more.
    asked: Option<Duration>,
    ttl: Duration,
    until: Instant,
    renew_at: Instant,
    /// Whether the lease ends at its hold limit, so that no further renewal can extend it.
    at_limit: bool,
}

/// A lease whose acquire took longer than a tenth of its TTL is renewed before the renewer reports it as kept.
const SLOW_ACQUIRE_DIVISOR: u32 = 10;

/// A lease is renewed after at least a twentieth of its remaining time, so that a gateway that sends `renew_after_ms` 0
/// is not called in a tight loop.
const LEAST_PART: u32 = 20;

/// The time for a release whose `within` is too large to add to the clock. No lease lasts longer.
const A_LONG_TIME: Duration = Duration::from_hours(24);

// === impl LeaseRenewer ===

impl LeaseRenewer {
    /// Starts to keep a lease renewed, on the current tokio runtime. Use the lease only after that.
    ///
    /// A lease whose acquire took long is renewed first. It was probably granted after a wait, at an unknown time, and
    /// may have ended by the time its answer arrived.
    ///
    /// If that first renewal fails, or the future is dropped, the client releases the lease in the background as unused
    /// ([`Client::release_unused`], [`Client::finish_releases`]).
    pub async fn start(client: &Client, lease: Lease) -> Result<Self, ClientError> {
        let lease = if lease.took() > lease.ttl / SLOW_ACQUIRE_DIVISOR {
            let held = OnDrop::new(client, UnusedLease(lease.clone()));
            let renewed = renew_first(client, lease).await;
            // A lost lease needs no release, so the guard is disarmed.
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
            in_doubt: AtomicBool::new(false),
            _task: task,
        })
    }

    /// Observes the state of the lease: the receiver gets its current value and every change. The current value counts
    /// as the first change.
    pub fn watch(&self) -> watch::Receiver<LeaseState> {
        unseen(&self.board.state)
    }

    /// Observes release requests for the lock, as renewals report them. The value changes if a request leaves less time
    /// than the previous one.
    pub fn requests(&self) -> watch::Receiver<Option<ReleaseRequest>> {
        unseen(&self.board.requests)
    }

    /// The instant in the future until which the lease certainly lasts; `None` once the lease is lost.
    pub fn until(&self) -> Option<Instant> {
        self.board.look().until()
    }

    /// Fails if the lease is lost by now, even if this process was suspended and the task that renews the lease has not
    /// run since.
    pub fn check(&self) -> Result<(), Loss> {
        match self.board.look() {
            LeaseState::Lost(loss) => Err(loss),
            _ => Ok(()),
        }
    }

    /// Waits until the lease is lost, and returns how it was lost.
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
                // The wait cannot fail, because `self.board` keeps the sender of the state.
                _ = state.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Releases the lease. Tries for the duration `within`, but not longer than the lease lasts.
    ///
    /// Renewals stop at once, and all observers see [`Loss::Released`]. After a failure this function can be called
    /// again; after a success, a further call does nothing.
    ///
    /// [`ClientError::Lost`] means that the lease had ended before its release, so another caller may have held the
    /// lock during the work. If an earlier copy of the release got no answer, a lost lease is
    /// [`ClientError::OutcomeUnknown`]: that copy may have ended it.
    pub async fn release(&self, within: Duration) -> Result<(), ClientError> {
        self.release_as(false, within).await
    }

    /// Like [`LeaseRenewer::release`], for a lease under which nothing was done: the lock does not rest for the minimum
    /// hold of the lease.
    pub async fn release_unused(&self, within: Duration) -> Result<(), ClientError> {
        self.release_as(true, within).await
    }

    async fn release_as(&self, unused: bool, within: Duration) -> Result<(), ClientError> {
        let lasted_until = *self.given_up.get_or_init(|| self.until());
        // If a renewal arrives at the gateway after the release, it has no effect: it cannot revive an ended lease.
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
        let was_in_doubt = self.in_doubt.load(Ordering::Acquire);
        let released = self
            .client
            .release_lease_with(&self.lease, unused, retry)
            .await;
        match &released {
            Ok(()) => self.released.store(true, Ordering::Release),
            Err(ClientError::OutcomeUnknown { .. }) => self.in_doubt.store(true, Ordering::Release),
            Err(_) => {}
        }
        released.map_err(|error| error.of_release(was_in_doubt))
    }
}

// === impl Board ===

impl Board {
    /// Publishes a new state of the lease. If the lease is lost, that state is final, and this returns false.
    fn publish(&self, state: LeaseState) -> bool {
        self.state.send_if_modified(|known| {
            let open = !known.is_lost();
            if open {
                *known = state;
            }
            open
        })
    }

    /// The current state of the lease. If the lease has ended and no loss is published, publishes the loss, because the
    /// task that renews the lease may not have run since.
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
    // The first renewal is tried for as long as the lease can last.
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
                    // The API key may not request this TTL any more, so from now on the lease is renewed with its own
                    // TTL.
                    ClientError::Refused(_) if self.asked.is_some() => {
                        self.asked = None;
                        continue;
                    }
                    // Any other failure may pass before the lease ends, so the renewal is repeated.
                    error => {
                        failed += 1;
                        let requested = failure.requested_pause.unwrap_or_default();
                        // The pause is bounded: a longer one could use up the remaining time of the lease.
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
            // The time of the next renewal: late enough not to call the gateway in a tight loop, and early enough for a
            // second attempt.
            let left = lease.good_for();
            let after = lease.renew_after.max(left / LEAST_PART).min(left / 2);
            lease.sent_at + renewal::spread(after)
        };
    }

    /// Publishes the release request that an answer reports, if the request is new.
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

/// The time limit of one renewal: short enough that a few addresses that do not answer can be skipped in the second
/// third of the lease.
fn copy_time_out(client: &Client, ttl: Duration) -> Duration {
    let enough = (ttl / 9).max(Duration::from_millis(50));
    enough.min(client.options.request_timeout)
}

// === Lease state ===
//
// The state of a lease that a renewer keeps.

/// The state of a lease that a renewer keeps: kept, near its end, or lost.
#[derive(Debug, Clone)]
pub enum LeaseState {
    /// The last renewal of the lease succeeded.
    Kept {
        /// The instant until which the lease certainly lasts.
        until: Instant,
    },
    /// The lease was renewed up to its hold limit, so it cannot be renewed again.
    AtLimit {
        /// The instant until which the lease certainly lasts.
        until: Instant,
    },
    /// The last renewal failed. The renewal is repeated, but work that needs time to stop should watch `until`.
    AtRisk {
        /// The instant until which the lease certainly lasts.
        until: Instant,
        /// Why the last renewal failed.
        reason: String,
    },
    /// The lease is lost. This state is final.
    Lost(Loss),
}

/// How a lease was lost.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Loss {
    /// The lease ended because no renewal succeeded in time.
    #[error("it could not be renewed in time: {reason}")]
    Expired {
        /// Why the last renewal failed.
        reason: String,
    },
    /// The caller released the lease through its renewer.
    #[error("it was released")]
    Released,
    /// The lease ended at its hold limit.
    #[error("its hold limit is reached")]
    HoldLimit,
    /// Another caller had requested the release of the lock, and the lease was not released in time.
    #[error("a release of the lock was requested, and the lock was not released in time")]
    NotReleased,
    /// The gateway reported that the token does not hold the lock any more. Another caller may hold the lock
    /// already.
    #[error("the gateway says that the lease has ended: {0}")]
    Ended(Box<Problem>),
}

// === impl LeaseState ===

impl LeaseState {
    /// The instant until which the lease certainly lasts; `None` once the lease is lost.
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

    /// How the lease is lost at `now`, if the lease has ended and no loss is published yet. `was_asked`: another caller
    /// had requested its release.
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
// Runs work only while a lock is held.

/// Why work under a lock did not start, or was stopped.
#[derive(Debug, thiserror::Error)]
pub enum WithLockError {
    /// The lock was not acquired, so the work did not start.
    #[error(transparent)]
    NotAcquired(#[from] ClientError),
    /// The lease was lost before the work was done, so the work was dropped. Or the lease turned out to be lost when the
    /// work was done.
    #[error("the lease was lost: {0}")]
    Lost(#[source] Loss),
    /// The work was done, and the lease has ended: by a release that got no answer, or before it.
    #[error("it is unknown whether the lease lasted until the work was done: {0}")]
    OutcomeUnknown(#[source] ClientError),
}

// === impl Client ===

impl Client {
    /// Runs some work under a lock: acquires the lock, keeps the lease renewed during the work, and releases the lease.
    ///
    /// If the lease is lost, the future of the work is dropped where it awaits. If the lease is lost because no gateway
    /// answers, that happens before the lock can be granted to another caller. Requests that the work has sent may
    /// still be on their way: send the fencing token with them, and let the resource refuse a smaller token than it has
    /// seen. Work that never awaits (`spawn_blocking`, a long computation) is not stopped.
    ///
    /// If the release reports that the lease was lost, the work does not count as done, because another caller may have
    /// held the lock meanwhile. A release without an answer is not an error: the lease ends with its TTL. But if a
    /// repeated release reports a lost lease after such a copy, the outcome is unknown.
    ///
    /// If the future is dropped or the work panics, the client releases the lease, or leaves the queue, in the
    /// background. Do not drop the future while work that never awaits is running. [`Client::finish_releases`] waits
    /// for background releases.
    pub async fn with_lock<T>(
        &self,
        name: &LockName,
        request: &AcquireRequest,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let acquiring = self.acquiring(name.clone(), request.clone());
        self.with_acquired(acquiring, work).await
    }

    /// Like [`Client::with_lock`] for a group of locks: acquires all locks or none.
    pub async fn with_locks<T>(
        &self,
        locks: impl Into<GroupLocks>,
        request: &AcquireRequest,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let acquiring = self.acquiring_all(locks, request.clone());
        self.with_acquired(acquiring, work).await
    }

    async fn with_acquired<T>(
        &self,
        acquiring: Acquiring,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let lease = OnDrop::new(self, acquiring).finish().await?;
        let renewer = LeaseRenewer::start(self, lease.clone()).await?;
        // Declared before the work, and so dropped after it: the work ends before the release begins.
        let held = OnDrop::new(self, lease.clone());
        let done = tokio::select! {
            // The loss is checked before the work: a lease that was lost while the work did not await must not count as
            // kept.
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
            Err(error) if error.may_be_lost() => Err(WithLockError::OutcomeUnknown(error)),
            Ok(()) | Err(_) => Ok(done),
        }
    }
}

/// Subscribes to a value. The current value counts as a change, so that a caller who awaits the first change also hears of
/// a loss or a release request that was published before the call.
fn unseen<T>(sender: &watch::Sender<T>) -> watch::Receiver<T> {
    let mut receiver = sender.subscribe();
    receiver.mark_changed();
    receiver
}
