//! An acquire under way: a chain of requests that keep their place in the queue, if they are for one lock.

use std::time::Duration;

use reqwest::{Method, StatusCode, header::HeaderName};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    Client, ClientError, Holder, Inspection, Lease, Problem,
    http::{Call, CallResponse, Retry, RetryableFailure, millis, pause},
    inspect::Look,
    lock::{GroupNames, IdempotencyKey, Limit, LockName, Metadata, Owner},
};

/// The header that makes an acquire repeatable, and keeps its place in the queue.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long one request of the chain waits at the gateway: shorter than the time-outs of the proxies
/// and load balancers that are commonly in between, the shortest of which is 29 seconds.
const LINK: Duration = Duration::from_secs(20);
/// The same for several locks, whose place is kept for as long as one request: the longest that a gateway allows by
/// default.
const GROUP_LINK: Duration = Duration::from_secs(55);
/// The shortest wait that a gateway can be asked for.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// A gateway that allows no longer waits than this is asked no shorter ones.
const SHORTEST_LINK: Duration = Duration::from_millis(500);
/// A copy that waits has at least this long to be answered after its wait.
const LEAST_ALLOWANCE: Duration = Duration::from_secs(1);
/// How often somebody who watches is shown the queue. Nothing is asked where nobody watches.
const LOOK: Duration = Duration::from_secs(2);
/// How often at most once a look was refused because of the rate of the key, which is needed to acquire.
const LOOK_RATE_LIMITED: Duration = Duration::from_secs(30);
/// Before a wait has taken so long there is nothing to be watched.
const FIRST_LOOK: Duration = Duration::from_millis(200);
/// As good as for ever: the longest outage that an acquire without an end sits out in one go, and how long a
/// lock that may not be viewed is not looked at again.
const A_LONG_TIME: Duration = Duration::from_hours(24);
/// How long giving up may take where nobody was reached.
const WITHDRAWAL: Duration = Duration::from_secs(3);
/// How long a gateway that does not answer is asked to give up at most: as long as a lease lasts by
/// default. Who has asked for a longer one is told sooner that it may be held.
const WITHDRAWAL_UNANSWERED: Duration = Duration::from_secs(30);

/// An acquire under way.
///
/// Dropped, it leaves its place in the queue to the reconnect grace of the gateway;
/// [`Acquiring::withdraw`] gives up in order.
#[derive(Debug)]
pub struct Acquiring {
    client: Client,
    /// The lock; of several the one that was in the way last, if that is known.
    name: Option<LockName>,
    /// All of them, if there are several.
    names: Option<GroupNames>,
    request: AcquireRequest,
    key: IdempotencyKey,
    asked: Instant,
    /// When the wait is over; `None`: never.
    over: Option<Instant>,
    link: Duration,
    waiting: WaitStatus,
}

/// Whoever wants to know how the wait goes.
struct Watcher<'a> {
    report: &'a mut (dyn FnMut(&WaitStatus) + Send),
    /// How often the queue is looked at for it; `None`: never.
    looks_every: Option<Duration>,
    /// Before then it is not looked at.
    look_at: Instant,
}

// === impl Client ===

impl Client {
    /// Begins to ask for a lock. Nothing is sent yet.
    pub fn acquiring(&self, name: LockName, mut request: AcquireRequest) -> Acquiring {
        if request.owner.is_none() {
            request.owner.clone_from(&self.options.owner);
        }
        let asked = Instant::now();
        Acquiring {
            client: self.clone(),
            name: Some(name),
            names: None,
            key: fresh_key(&request),
            asked,
            over: asked.checked_add(request.wait),
            link: LINK,
            waiting: WaitStatus::default(),
            request,
        }
    }
}

// === impl Acquiring ===

impl Acquiring {
    /// The same for several locks, all or none.
    pub(crate) fn of_group(self, names: GroupNames) -> Self {
        Self {
            name: None,
            names: Some(names),
            link: GROUP_LINK,
            ..self
        }
    }

    /// Goes on until the lock is ours or the wait is over.
    ///
    /// A gateway that was never reached is given up after a few tries, however long the wait may
    /// take; once a gateway has been there, the acquire goes on trying for as long as it waits.
    pub async fn finish(&mut self) -> Result<Lease, ClientError> {
        self.run(None).await
    }

    /// The same, telling how the wait goes whenever there is something new. For its watcher the
    /// queue is looked at every two seconds.
    pub async fn finish_watched(
        &mut self,
        watcher: &mut (dyn FnMut(&WaitStatus) + Send),
    ) -> Result<Lease, ClientError> {
        self.finish_watched_every(Some(LOOK), watcher).await
    }

    /// Like [`Acquiring::finish_watched`], with another period between two inspections of the lock. Without a period the
    /// lock is not inspected: the watcher then hears only what the answers to this request say.
    pub async fn finish_watched_every(
        &mut self,
        period: Option<Duration>,
        watcher: &mut (dyn FnMut(&WaitStatus) + Send),
    ) -> Result<Lease, ClientError> {
        self.run(Some(Watcher {
            report: watcher,
            looks_every: period,
            look_at: Instant::now(),
        }))
        .await
    }

    /// Whether it waits for a lock that is held.
    pub fn waits(&self) -> bool {
        !self.request.wait.is_zero()
    }

    /// Gives up: asks once more without waiting, which gives the place in the queue up. What was granted
    /// in the last moment, heard or unheard, is released at once.
    ///
    /// A gateway that takes requests and does not answer may have granted the lock, or may yet do so: it is
    /// asked for as long as a lease would last, and for half a minute at most. Whoever cannot wait for that
    /// may drop this, and leaves the lock to the end of that lease.
    ///
    /// An acquire under a key of its caller's may be continued by somebody else, so it is left to
    /// the reconnect grace.
    pub async fn withdraw(self) {
        if self.request.idempotency_key.is_some() {
            return;
        }
        let ttl = self.request.ttl.unwrap_or(WITHDRAWAL_UNANSWERED);
        let mut answer = self.give_up(WITHDRAWAL).await;
        if let Err(ClientError::OutcomeUnknown { .. }) = answer {
            answer = self.give_up(ttl.min(WITHDRAWAL_UNANSWERED)).await;
        }
        // Any other answer: there is no lease. No answer: a lease that there is ends by itself.
        if let Ok(answer) = answer
            && answer.status.is_success()
            && let Ok(lease) = Lease::from_answer(answer)
        {
            let mut retry = Retry::until(&self.client, lease.good_until());
            retry.persist_until(lease.good_until());
            // If that fails, too, the lease has ended with its TTL.
            let _: Result<_, _> = self.client.release_lease_with(&lease, retry).await;
        }
    }

    async fn give_up(&self, within: Duration) -> Result<CallResponse, ClientError> {
        let deadline = Instant::now() + within;
        let mut copies = 0;
        loop {
            let mut retry = Retry::until(&self.client, deadline);
            retry.persist_until(deadline);
            let call = self.call(Duration::ZERO);
            let answer = call.send_with(&self.client, &mut retry).await?;
            let code = answer.problem().map(|problem| problem.code);
            copies += 1;
            let again = pause(copies);
            // An earlier copy of the request arrived late, and holds a lease or a position that was not
            // delivered.
            if code.as_deref() != Some("superseded") || Instant::now() + again > deadline {
                return Ok(answer);
            }
            sleep(again).await;
        }
    }

    async fn run(&mut self, mut watcher: Option<Watcher<'_>>) -> Result<Lease, ClientError> {
        let options = &self.client.options;
        let mut retry = Retry::until(&self.client, Instant::now() + options.deadline);
        // Answers that came at once although they were asked to wait.
        let mut hasty = 0;
        loop {
            let wait = self.next_wait();
            let mut answer = match self.send_copy(wait, &retry, &mut watcher).await {
                Ok(answer) => answer,
                Err(failure) => {
                    if failure.arrived() {
                        self.persist(&mut retry);
                    }
                    let waiting = self.waiting.clone().with_trouble(failure.error.clone());
                    self.report(waiting, &mut watcher);
                    retry.after(failure).await?;
                    continue;
                }
            };
            answer.in_doubt = retry.in_doubt;
            if answer.status.is_success() {
                return Lease::from_answer(answer);
            }
            if !self.needs_retry(&mut answer, wait) {
                return Err(self.refusal(answer));
            }
            let sent_at = answer.sent_at;
            if let (StatusCode::LOCKED, Some(problem)) = (answer.status, answer.problem()) {
                if let Some(Ok(name)) = problem.name.as_deref().map(LockName::new) {
                    self.name = Some(name);
                }
                let waiting = self.waiting.clone().of_problem(&problem);
                self.report(waiting, &mut watcher);
            }
            retry.answered(answer.in_doubt);
            self.persist(&mut retry);
            hasty = if sent_at.elapsed() < wait / 2 {
                hasty + 1
            } else {
                0
            };
            if hasty > 0 {
                sleep(pause(hasty).min(self.left())).await;
            }
        }
    }

    /// Sends a copy that waits for so long, and shows the queue meanwhile to whoever watches.
    async fn send_copy(
        &mut self,
        wait: Duration,
        retry: &Retry,
        watcher: &mut Option<Watcher<'_>>,
    ) -> Result<CallResponse, RetryableFailure> {
        let call = self.call(wait);
        let client = self.client.clone();
        let time_out = if self.request.wait.is_zero() {
            retry.time_out()
        } else {
            wait + self.allowance(wait)
        };
        let mut copy = std::pin::pin!(call.send_copy(&client, time_out));
        let first_look = Instant::now() + FIRST_LOOK;
        let name = self.name.clone();
        loop {
            let Some(Watcher {
                looks_every: Some(period),
                look_at,
                ..
            }) = watcher
            else {
                return copy.await;
            };
            // Of several locks it is not known yet which one is waited for.
            let Some(name) = &name else {
                return copy.await;
            };
            tokio::select! {
                answer = &mut copy => return answer,
                () = sleep_until(first_look.max(*look_at)) => {}
            }
            let seen = tokio::select! {
                answer = &mut copy => return answer,
                seen = client.look(name) => seen,
            };
            let answered = WaitStatus {
                trouble: None,
                ..self.waiting.clone()
            };
            let waiting = match seen {
                Look::Seen(lock) => {
                    let owner = self.request.owner.as_ref().map(Owner::as_str);
                    Some(WaitStatus {
                        name: self.names.as_ref().map(|_all| name.clone()),
                        ..WaitStatus::of_look(lock, owner, self.asked.elapsed())
                    })
                }
                Look::Forbidden => {
                    *period = A_LONG_TIME;
                    Some(WaitStatus {
                        may_not_view: true,
                        ..answered
                    })
                }
                Look::RateLimited => {
                    *period = LOOK_RATE_LIMITED.max(*period);
                    Some(answered)
                }
                Look::Unseen => None,
            };
            *look_at = Instant::now() + *period;
            if let Some(waiting) = waiting {
                self.report(waiting, watcher);
            }
        }
    }

    /// Whether an answer is not the last word, given how long its request was to wait.
    fn needs_retry(&mut self, answer: &mut CallResponse, wait: Duration) -> bool {
        let Some(problem) = answer.problem() else {
            return false;
        };
        match problem.code.as_str() {
            "locked" => {
                // It says how the lock stands, earlier copies included.
                answer.in_doubt = false;
                // The last request of the chain does not wait: it takes what was granted since the
                // one before, and gives up the place. Under a key of the caller's the next call may take both.
                let is_last = self.request.idempotency_key.is_some() && self.left().is_zero();
                !wait.is_zero() && !is_last
            }
            // With a key of our own it can only be an earlier copy of ours, which was given up and
            // arrived late. Asking again takes the place back.
            "superseded" => {
                self.request.idempotency_key.is_none()
                    && (!wait.is_zero() || (answer.in_doubt && self.may_start_again()))
            }
            // A lease was granted, its answer got lost or came too late for us, and the gateway has given it
            // back. With a generated key no other request can be concerned.
            "idempotency-expired" => {
                let again = self.request.idempotency_key.is_none()
                    && (answer.in_doubt || !wait.is_zero())
                    && self.may_start_again();
                self.key = fresh_key(&self.request);
                again
            }
            // This gateway allows no wait as long as ours.
            "invalid-request" => {
                let too_long = problem.errors.iter().any(|error| error.field == "wait_ms");
                self.link = (wait / 2).max(SHORTEST_LINK);
                too_long && wait > self.link
            }
            _ => false,
        }
    }

    /// How long the answer to a copy that waits for so long may be late. If there is time left after that wait, half of
    /// it belongs to another copy: a request that hangs must not take all of it.
    fn allowance(&self, wait: Duration) -> Duration {
        let enough = self.client.options.request_timeout;
        let half = self.left().saturating_sub(wait) / 2;
        if half < LEAST_ALLOWANCE {
            enough
        } else {
            enough.min(half)
        }
    }

    fn refusal(&self, answer: CallResponse) -> ClientError {
        let waited = !self.request.wait.is_zero();
        match answer.refusal() {
            ClientError::Held(problem) if waited => ClientError::WaitOver(problem),
            error => error,
        }
    }

    fn call(&self, wait: Duration) -> Call {
        let call = match (&self.names, &self.name) {
            (None, Some(name)) => Call::new(Method::POST, name, ""),
            _ => Call::at(Method::POST, "/locks".to_owned()),
        };
        call.secret(IDEMPOTENCY_KEY, self.key.expose())
            .json(self.request.body(self.names.as_ref(), wait))
    }

    fn report(&mut self, waiting: WaitStatus, watcher: &mut Option<Watcher<'_>>) {
        self.waiting = waiting;
        if let Some(watcher) = watcher {
            (watcher.report)(&self.waiting);
        }
    }

    /// How long it still wants to wait: nothing below a millisecond, for which no gateway can be asked to wait.
    fn left(&self) -> Duration {
        let Some(over) = self.over else {
            return Duration::MAX;
        };
        let left = over.saturating_duration_since(Instant::now());
        if left < LEAST_WAIT {
            Duration::ZERO
        } else {
            left
        }
    }

    /// How long the next copy waits. Under a key of the caller's none gives up the place that the next call may take, not
    /// even one that is sent after the wait.
    fn next_wait(&self) -> Duration {
        let wait = self.left().min(self.link);
        if self.request.idempotency_key.is_some() && !self.request.wait.is_zero() {
            wait.max(LEAST_WAIT)
        } else {
            wait
        }
    }

    /// A gateway is there: an acquire that waits goes on trying for as long as it waits.
    fn persist(&self, retry: &mut Retry) {
        if !self.request.wait.is_zero() {
            retry.persist_to_the_end(self.over.unwrap_or_else(|| Instant::now() + A_LONG_TIME));
        }
    }

    /// Whether there is time to begin again.
    fn may_start_again(&self) -> bool {
        let call_over = self.asked + self.client.options.deadline;
        !self.left().is_zero() || Instant::now() < call_over
    }
}

fn fresh_key(request: &AcquireRequest) -> IdempotencyKey {
    let given = request.idempotency_key.clone();
    given.unwrap_or_else(IdempotencyKey::random)
}

// === Acquire ===
//
// Acquire: ask for a lock.

/// What to ask for. The default leaves everything to the gateway.
#[derive(Debug, Clone, Default)]
pub struct AcquireRequest {
    /// How long the grant lasts.
    pub ttl: Option<Duration>,
    /// How long to wait for a lock that is held: not at all by default, and as long as it takes with
    /// [`AcquireRequest::FOR_EVER`]. A gateway lets one request wait for about a minute at most; a
    /// longer wait is a chain of requests that keep their place in the queue, over lost connections
    /// and from one gateway to another. For several locks each request of the chain begins anew.
    pub wait: Duration,
    /// How long the lease may be kept with renewals.
    pub max_hold: Option<Duration>,
    /// Whether to hold the lock alone or beside others.
    pub mode: AcquireMode,
    /// Who asks, for people to read; the owner of the client if it is left out.
    pub owner: Option<Owner>,
    /// What to attach.
    pub metadata: Metadata,
    /// Under which the request may be repeated, by this process or a later one: it has the same lease, or the same place,
    /// which a gateway keeps for five seconds after a wait that ran out. Without it the client mints one for this call.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Whether to hold a lock alone or beside others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AcquireMode {
    /// Alone.
    #[default]
    Exclusive,
    /// Beside others that share the lock.
    Shared {
        /// As long as fewer than so many hold it; the lease has a slot then. It binds at this grant only, so
        /// use one limit per name. `None`: as many as the gateway allows.
        limit: Option<Limit>,
    },
}

// === impl AcquireRequest ===

impl AcquireRequest {
    /// Waits for as long as it takes.
    pub const FOR_EVER: Duration = Duration::MAX;

    /// The body of one copy of the request, which waits for so long.
    fn body(&self, names: Option<&GroupNames>, wait: Duration) -> Value {
        let metadata: serde_json::Map<_, _> = self
            .metadata
            .iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        // An exclusive request is what every gateway knows, whatever its version.
        let (mode, limit) = match self.mode {
            AcquireMode::Exclusive => (None, None),
            AcquireMode::Shared { limit } => (Some("shared"), limit.map(Limit::get)),
        };
        let names = names.map(|names| names.iter().map(LockName::as_str).collect::<Vec<_>>());
        json!({
            "names": names,
            "ttl_ms": self.ttl.map(millis),
            "max_hold_ms": self.max_hold.map(millis),
            "wait_ms": (!wait.is_zero()).then(|| millis(wait)),
            "mode": mode,
            "limit": limit,
            "owner": self.owner.as_ref().map(Owner::as_str),
            "metadata": (!metadata.is_empty()).then_some(metadata),
        })
    }
}

// === Wait status ===
//
// What there is to be seen while an acquire waits.

/// News of an acquire that waits. What is not known is not there: a caller may not be allowed to see
/// the lock, and the gateway that says how it stands may just have gone.
#[derive(Debug, Clone, Default)]
pub struct WaitStatus {
    /// The lock that is waited for, if it is one of several and it is known which.
    pub name: Option<LockName>,
    /// The place in the queue: 1 is the next to be served. It is found by the owner and by how long
    /// the request has waited; it is not known for two with one owner that came in the same moment.
    pub position: Option<u64>,
    /// How many wait in all.
    pub waiters: Option<u64>,
    /// Who holds the lock; of several who share it the one whose lease ends first.
    pub holder: Option<Holder>,
    /// How many hold it.
    pub holder_count: Option<u64>,
    /// Whether the key may not view the lock: then the queue is not looked at again.
    pub may_not_view: bool,
    /// Why the gateway cannot be asked at the moment; it is tried again.
    pub trouble: Option<ClientError>,
}

/// Of two clocks that began to count within a request of each other.
const SAME_MOMENT: Duration = Duration::from_millis(1_500);
/// Two waiters of one owner that queued within this time cannot be told apart, because a request may take as long.
const INDISTINGUISHABLE: Duration = Duration::from_millis(100);

// === impl WaitStatus ===

impl WaitStatus {
    /// What an answer to a wait that ran out tells.
    pub(crate) fn of_problem(self, problem: &Problem) -> Self {
        let name = problem.name.as_deref().map(LockName::new);
        let name = name.and_then(Result::ok);
        Self {
            // Of another lock the position is another one.
            position: self.position.filter(|_| name == self.name),
            name,
            waiters: problem.waiters,
            holder: problem.holders.first().cloned(),
            holder_count: problem.holder_count,
            may_not_view: self.may_not_view,
            trouble: None,
        }
    }

    /// What a look at the lock tells somebody who asked for it as `owner`, `waited` ago.
    pub(crate) fn of_look(lock: Inspection, owner: Option<&str>, waited: Duration) -> Self {
        let off = |waited_ms| Duration::from_millis(waited_ms).abs_diff(waited);
        let mut ours: Vec<_> = lock
            .waiters
            .iter()
            .filter(|waiter| waiter.owner.as_deref() == owner)
            .map(|waiter| (off(waiter.waited_ms), waiter.position))
            .filter(|(off, _)| *off <= SAME_MOMENT)
            .collect();
        ours.sort_unstable();
        let position = match ours.as_slice() {
            [] => None,
            [(first, _), (second, _), ..] if second.saturating_sub(*first) < INDISTINGUISHABLE => {
                None
            }
            [(_, position), ..] => Some(*position),
        };
        Self {
            name: None,
            position,
            waiters: Some(lock.waiter_count),
            holder: lock.holders.into_iter().next(),
            holder_count: Some(lock.holder_count),
            may_not_view: false,
            trouble: None,
        }
    }

    /// The same, with a setback.
    #[must_use]
    pub fn with_trouble(self, trouble: ClientError) -> Self {
        Self {
            trouble: Some(trouble),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockState, Waiter};

    #[test]
    fn a_position_is_told_unless_it_may_be_that_of_another_waiter() {
        let position = |waited: &[u64]| {
            let waiters = waited.iter().zip(1..).map(|(&waited_ms, position)| Waiter {
                position,
                owner: Some("ci".to_owned()),
                mode: None,
                limit: None,
                waited_ms,
            });
            let lock = Inspection::of_waiters(LockState::Held, waiters.collect());
            WaitStatus::of_look(lock, Some("ci"), Duration::from_secs(10)).position
        };
        assert_eq!(position(&[9_990]), Some(1));
        assert_eq!(position(&[60_000, 9_990]), Some(2));
        assert_eq!(position(&[10_400, 9_990]), Some(2));
        assert_eq!(position(&[9_995, 9_990]), None);
        assert_eq!(position(&[60_000]), None);
    }
}
