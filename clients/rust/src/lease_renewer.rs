//! Keeps a lease for as long as it is wanted, and says at once when it is lost.

use std::time::Duration;

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    Client, ClientError, Lease, Problem, ReleaseRequest,
    http::{Retry, pause, random_fraction},
};

/// A lease that is kept by a task of its own.
///
/// It is renewed when a third of it has passed, through whichever address of the client answers. What
/// fails is tried again until the lease is over. That is decided on this machine's monotonic clock,
/// from when the last successful renewal was *sent*: so it is told here before anybody else can be
/// granted the lock. A gateway that says that the lease has ended is believed at once.
///
/// No clock of a process that does not run, or of a machine that sleeps, tells anything: what is
/// protected should check the fencing token.
///
/// Whoever else has the token can end the lease, or shorten it by a renewal with a smaller TTL. This task is
/// not notified of that: a renewal asks for the TTL that the lease had when it began to be kept, but one that
/// comes after its end finds it lost, and until then it is believed to last.
///
/// Somebody may ask for the lock ([`LeaseRenewer::requests`]). The lease is renewed until the time for its release is
/// over, and is lost then.
///
/// Dropped, it renews no more, and the lease ends with its TTL; [`LeaseRenewer::release`] ends it at once.
#[derive(Debug)]
pub struct LeaseRenewer {
    client: Client,
    lease: Lease,
    state: watch::Receiver<LeaseState>,
    requests: watch::Receiver<Option<ReleaseRequest>>,
    /// Ends with this.
    task: JoinSet<()>,
}

/// What the task knows.
struct RenewTask {
    client: Client,
    lease: Lease,
    state: watch::Sender<LeaseState>,
    requests: watch::Sender<Option<ReleaseRequest>>,
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

/// A request that ends sooner than the last by less than this is the same: each answer takes another time.
const SAME_REQUEST: Duration = Duration::from_millis(500);

// === impl LeaseRenewer ===

impl LeaseRenewer {
    /// Begins to keep a lease, on the runtime of the caller.
    ///
    /// A lease that took long to come is renewed first: most likely it was waited for, but nobody
    /// knows how long ago it was granted. It may have been on its way for longer than it lasts.
    pub async fn start(client: &Client, lease: Lease) -> Result<Self, ClientError> {
        let lease = if lease.took() > lease.ttl / SOON {
            renew_first(client, lease).await?
        } else {
            lease
        };
        let until = certain_until(&lease);
        let (sender, state) = watch::channel(LeaseState::Kept { until });
        let (request_sender, requests) = watch::channel(None);
        let mut renewer = RenewTask {
            client: client.clone(),
            lease: lease.clone(),
            state: sender,
            requests: request_sender,
            release_by: None,
            asked: Some(lease.ttl),
            ttl: lease.ttl,
            until,
            renew_at: until,
            at_limit: false,
        };
        renewer.renewed(&lease);
        renewer.publish(renewer.current_state());
        let mut task = JoinSet::new();
        task.spawn(renewer.keep());
        Ok(Self {
            client: client.clone(),
            lease,
            state,
            requests,
            task,
        })
    }

    /// How the lease stands, now and whenever that changes.
    pub fn watch(&self) -> watch::Receiver<LeaseState> {
        self.state.clone()
    }

    /// What was asked of the holder, as soon as a renewal tells it; changes if less time is left than was said before.
    pub fn requests(&self) -> watch::Receiver<Option<ReleaseRequest>> {
        self.requests.clone()
    }

    /// Until when the lease certainly lasts; `None` once it is lost.
    pub fn until(&self) -> Option<Instant> {
        self.state.borrow().until()
    }

    /// Ends when the lease is lost, and says how.
    pub async fn lost(&self) -> Loss {
        let mut state = self.state.clone();
        loop {
            if let LeaseState::Lost(loss) = &*state.borrow_and_update() {
                return loss.clone();
            }
            state
                .changed()
                .await
                .expect("the task publishes the loss before it ends");
        }
    }

    /// Ends the lease, trying for so long, but not longer than it lasts.
    pub async fn release(mut self, within: Duration) -> Result<(), ClientError> {
        // A renewal that is under way may arrive after the release: it resurrects nothing.
        self.task.abort_all();
        let now = Instant::now();
        let deadline = (now + within).min(self.until().unwrap_or(now + within));
        let mut retry = Retry::until(&self.client, deadline);
        retry.persist_until(deadline);
        self.client.release_lease_with(&self.lease, retry).await
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
            Err(error) => retry.after_error(error).await?,
        }
    }
}

// === impl RenewTask ===

impl RenewTask {
    async fn keep(mut self) {
        let mut failed = 0;
        let mut reason = "no answer in time".to_owned();
        loop {
            sleep_until(self.renew_at.min(self.until)).await;
            if Instant::now() >= self.until {
                let loss = if self.release_by.is_some() {
                    Loss::NotReleased
                } else if self.at_limit {
                    Loss::HoldLimit
                } else {
                    Loss::Expired { reason }
                };
                return self.publish(LeaseState::Lost(loss));
            }
            let time_out = copy_time_out(&self.client, self.ttl);
            let (client, lease) = (&self.client, &self.lease);
            let renewal = client.renew_lease_once(lease, self.asked, time_out);
            match timeout_at(self.until, renewal).await {
                Ok(Ok(lease)) => {
                    failed = 0;
                    self.renewed(&lease);
                    self.publish(self.current_state());
                }
                Ok(Err(ClientError::Lost(problem))) => {
                    return self.publish(LeaseState::Lost(Loss::Ended(problem)));
                }
                // A key that may not ask for as much any more may renew what there is.
                Ok(Err(ClientError::Refused(_))) if self.asked.is_some() => self.asked = None,
                // Whatever else is wrong may be mended before the lease is over.
                Ok(Err(error)) => {
                    failed += 1;
                    reason = error.to_string();
                    self.renew_at = Instant::now() + pause(failed).min(self.ttl / 10);
                    self.publish(LeaseState::AtRisk {
                        until: self.until,
                        reason: reason.clone(),
                    });
                }
                Err(_elapsed) => {}
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
            // Leases that were granted together are not renewed together for ever.
            let early = 0.1 * random_fraction();
            lease.sent_at() + lease.renew_after.mul_f64(1.0 - early)
        };
    }

    /// Tells of a request to release it.
    fn hear(&mut self, lease: &Lease) {
        let Some(request) = &lease.release_requested else {
            return;
        };
        let by = lease.sent_at() + request.within();
        if self
            .release_by
            .is_none_or(|known| by + SAME_REQUEST < known)
        {
            self.release_by = Some(by);
            self.requests.send_replace(Some(request.clone()));
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

    fn publish(&self, state: LeaseState) {
        self.state.send_replace(state);
    }
}

/// When a lease is over for us: clocks do not run at quite the same speed.
fn certain_until(lease: &Lease) -> Instant {
    let drift = lease.ttl / 100 + Duration::from_millis(2);
    lease.sent_at() + lease.good_for().saturating_sub(drift)
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
}
