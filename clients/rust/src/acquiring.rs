//! An acquire under way: a chain of requests. The requests for one lock keep their position in the queue.

use std::{collections::BTreeMap, time::Duration};

use reqwest::{Method, StatusCode, header::HeaderName};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    AcquireMode, Client, ClientError, GroupLocks, Holder, Inspection, Lease, Problem,
    http::{Call, CallResponse, Retry, RetryableFailure, millis, pause},
    inspect::Look,
    lock::{IdempotencyKey, LockName, Metadata, OrderNumber, Owner, Reason, SupersedeKey},
};

/// The header with the key under which an acquire can be repeated and keeps its position in the queue.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long one request for a lock waits at the gateway: shorter than the time-outs of common proxies and load
/// balancers, the shortest of which is 29 seconds.
const LINK: Duration = Duration::from_secs(20);
/// How long one request for a group of locks waits at the gateway: the longest wait that a gateway allows by default,
/// because a group keeps its position only during one request.
const GROUP_LINK: Duration = Duration::from_secs(55);
/// The shortest wait that a request can ask of a gateway.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// The shortest wait to which the client halves its requests, when a gateway refuses longer waits.
const SHORTEST_LINK: Duration = Duration::from_millis(500);
/// The minimum time that the client allows for the answer to a request after the wait of the request.
const LEAST_ALLOWANCE: Duration = Duration::from_secs(1);
/// How often the lock is inspected during a wait for a watcher. Without a watcher the lock is not inspected.
const LOOK: Duration = Duration::from_secs(2);
/// The minimum pause before the next inspection, if the rate limit of the API key refused one: the acquire itself needs
/// the rate.
const LOOK_RATE_LIMITED: Duration = Duration::from_secs(30);
/// The longest earlier wait that a request may report.
const LONGEST_EARLIER_WAIT: Duration = Duration::from_hours(1);
/// The earliest inspection after a request is sent: a wait that ends before has nothing to show.
const FIRST_LOOK: Duration = Duration::from_millis(200);
/// A time that stands for no limit: how long an acquire without an end survives one outage, and when a lock that the
/// API key may not view is inspected again.
const A_LONG_TIME: Duration = Duration::from_hours(24);
/// How often the locks of a group are inspected at most.
const GROUP_LOOK: Duration = Duration::from_secs(5);
/// How long a withdrawal is tried if no gateway is reached.
const WITHDRAWAL: Duration = Duration::from_secs(3);
/// How long a withdrawal is repeated at a gateway that does not answer, at most. If the caller asked for a longer TTL,
/// the lock may still be held after this time.
const WITHDRAWAL_UNANSWERED: Duration = DEFAULT_TTL;
/// The TTL that a gateway gives by default.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// An acquire under way: a wait for a lock that the caller can run and withdraw.
///
/// If an `Acquiring` is dropped, the gateway removes its position in the queue after the reconnect grace.
/// [`Acquiring::withdraw`] leaves the queue at once.
#[derive(Debug)]
pub struct Acquiring {
    client: Client,
    /// The lock to acquire. For a group: the lock that was last reported as held, if known.
    name: Option<LockName>,
    /// All locks of a group; `None` for one lock.
    group: Option<GroupLocks>,
    request: AcquireRequest,
    key: IdempotencyKey,
    asked: Instant,
    /// When the first request was sent; `None`: no request was sent yet.
    first_sent: Option<Instant>,
    /// The instant at which the wait ends; `None`: the wait never ends.
    over: Option<Instant>,
    link: Duration,
    waiting: WaitStatus,
}

/// The caller's watcher of a wait, and when the lock is inspected next for the watcher.
struct Watcher<'a> {
    report: &'a mut (dyn FnMut(&WaitStatus) + Send),
    /// The period between two inspections of the lock; `None`: the lock is not inspected.
    looks_every: Option<Duration>,
    /// The earliest instant at which the lock is inspected again.
    look_at: Instant,
}

// === impl Client ===

impl Client {
    /// Prepares an acquire of a lock. No request is sent yet.
    pub fn acquiring(&self, name: LockName, request: AcquireRequest) -> Acquiring {
        self.prepare(Some(name), None, request)
    }

    /// Prepares an acquire of one lock, or of a group of locks, all or none.
    pub(crate) fn prepare(
        &self,
        name: Option<LockName>,
        group: Option<GroupLocks>,
        mut request: AcquireRequest,
    ) -> Acquiring {
        if request.owner.is_none() {
            request.owner.clone_from(&self.options.owner);
        }
        let asked = Instant::now();
        Acquiring {
            client: self.clone(),
            link: if group.is_some() { GROUP_LINK } else { LINK },
            name,
            group,
            key: fresh_key(&request),
            asked,
            first_sent: None,
            over: asked.checked_add(request.wait),
            waiting: WaitStatus::default(),
            request,
        }
    }
}

// === impl Acquiring ===

impl Acquiring {
    /// Runs the acquire until the lock is granted or the wait ends.
    ///
    /// If no gateway was ever reached, the acquire fails after a few attempts, however long its wait is. Once a
    /// gateway has been reached, the acquire continues for as long as its wait lasts.
    pub async fn finish(&mut self) -> Result<Lease, ClientError> {
        self.run(None).await
    }

    /// Like [`Acquiring::finish`], and calls the watcher with each new status of the wait. To find the status, the
    /// client inspects the lock every two seconds.
    pub async fn finish_watched(
        &mut self,
        watcher: &mut (dyn FnMut(&WaitStatus) + Send),
    ) -> Result<Lease, ClientError> {
        self.finish_watched_every(Some(LOOK), watcher).await
    }

    /// Like [`Acquiring::finish_watched`], with another period between two inspections of the lock. Without a
    /// period the lock is not inspected: the watcher then sees only what the answers to the acquire say.
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

    /// Whether the request has a wait.
    pub fn waits(&self) -> bool {
        !self.request.wait.is_zero()
    }

    /// Withdraws the acquire: sends a last request without a wait, which leaves the queue. If the gateway has granted a
    /// lease in the meantime, the client releases the lease at once.
    ///
    /// A gateway that accepts requests and does not answer may have granted the lock, or may still do so. The
    /// withdrawal is then repeated for the TTL of such a lease, for half a minute at most. A caller that cannot wait so
    /// long may drop the future; then the lease ends with its TTL.
    ///
    /// If the caller gave an idempotency key, no request is sent, because another program may continue the acquire. The
    /// gateway then removes the position from the queue after the reconnect grace.
    pub async fn withdraw(self) {
        if self.request.idempotency_key.is_some() {
            return;
        }
        let ttl = self.request.ttl.unwrap_or(WITHDRAWAL_UNANSWERED);
        let mut answer = self.give_up(WITHDRAWAL).await;
        if let Err(ClientError::OutcomeUnknown { .. }) = answer {
            answer = self.give_up(ttl.min(WITHDRAWAL_UNANSWERED)).await;
        }
        // Only a success has a lease to release. Any other answer means that there is no lease; without an answer, a
        // granted lease ends with its TTL.
        if let Ok(answer) = answer
            && answer.status.is_success()
            && let Ok(lease) = self.lease(answer, None)
        {
            let mut retry = Retry::until(&self.client, lease.good_until());
            retry.persist_until(lease.good_until());
            // A failed release is ignored: it was repeated until the lease ended with its TTL.
            let _: Result<_, _> = self.client.release_lease_with(&lease, true, retry).await;
        }
    }

    /// The lease in the answer to this acquire, as [`Lease::from_answer`] reads it.
    fn lease(&self, answer: CallResponse, asked: Option<&LockName>) -> Result<Lease, ClientError> {
        let mut lease = Lease::from_answer(answer, asked)?;
        lease.rests = self.request.min_hold.is_some();
        Ok(lease)
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
            // An earlier copy of the request arrived late, and holds a lease or a position that was not delivered. The
            // next copy of this request withdraws that.
            if code.as_deref() != Some("request-replaced") || Instant::now() + again > deadline {
                return Ok(answer);
            }
            sleep(again).await;
        }
    }

    async fn run(&mut self, mut watcher: Option<Watcher<'_>>) -> Result<Lease, ClientError> {
        let options = &self.client.options;
        let mut retry = Retry::until(&self.client, Instant::now() + options.deadline);
        // The number of answers in a row that came much earlier than the end of the requested wait.
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
                let asked = self.name.as_ref().filter(|_| self.group.is_none());
                return self.lease(answer, asked);
            }
            if !self.needs_retry(&mut answer, wait) {
                return Err(self.refusal(answer));
            }
            let sent_at = answer.sent_at;
            if let (StatusCode::LOCKED, Some(mut problem)) = (answer.status, answer.problem()) {
                problem.has_room = self.has_room(&problem);
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

    /// Sends one copy of the request with this wait. Until its answer comes, inspects the lock for the watcher.
    async fn send_copy(
        &mut self,
        wait: Duration,
        retry: &Retry,
        watcher: &mut Option<Watcher<'_>>,
    ) -> Result<CallResponse, RetryableFailure> {
        let call = self.call(wait);
        self.first_sent.get_or_insert_with(Instant::now);
        let client = self.client.clone();
        let time_out = if self.request.wait.is_zero() {
            retry.time_out()
        } else {
            wait + self.allowance(wait)
        };
        let mut copy = std::pin::pin!(call.send_copy(&client, time_out));
        let first_look = Instant::now() + FIRST_LOOK;
        loop {
            let Some(Watcher {
                looks_every: Some(period),
                look_at,
                ..
            }) = watcher
            else {
                return copy.await;
            };
            tokio::select! {
                answer = &mut copy => return answer,
                () = sleep_until(first_look.max(*look_at)) => {}
            }
            let (seen, name, have) = tokio::select! {
                answer = &mut copy => return answer,
                seen = self.look() => seen,
            };
            let answered = WaitStatus {
                trouble: None,
                ..self.waiting.clone()
            };
            let waiting = match seen {
                Look::Seen(lock) => {
                    let owner = self.request.owner.as_ref().map(Owner::as_str);
                    let taken = lock.holder_count + lock.resting.len() as u64;
                    let mode = self.mode_of(name.as_ref().map(LockName::as_str));
                    let has_room = mode.has_room(&lock.holders, taken);
                    let seen = WaitStatus::of_look(*lock, owner, self.asked.elapsed());
                    Some(WaitStatus {
                        name: name.filter(|_| self.group.is_some()),
                        have,
                        has_room: has_room && seen.waiters > Some(1) && seen.position != Some(1),
                        ..seen
                    })
                }
                Look::Forbidden => {
                    *period = A_LONG_TIME;
                    Some(WaitStatus {
                        may_not_view: true,
                        have,
                        ..answered
                    })
                }
                Look::RateLimited => {
                    *period = LOOK_RATE_LIMITED.max(*period);
                    Some(answered)
                }
                Look::Unseen => None,
            };
            let group_period = self.group.as_ref().map_or(Duration::ZERO, |_| GROUP_LOOK);
            *look_at = Instant::now() + group_period.max(*period);
            if let Some(waiting) = waiting {
                self.report(waiting, watcher);
            }
        }
    }

    /// Inspects the lock for which the request waits. Answers its name, and the locks that the request has.
    ///
    /// The first lock of a group tells which lock that is: by the queue of the first lock, or by the lease that keeps it
    /// for the group.
    async fn look(&self) -> (Look, Option<LockName>, Vec<LockName>) {
        let look_at = async |name: LockName, have| {
            let seen = self.client.look(&name).await;
            (seen, Some(name), have)
        };
        let names = self.group.iter().flat_map(GroupLocks::names);
        let Some(first) = names.clone().next().cloned() else {
            return match self.name.clone() {
                Some(name) => look_at(name, Vec::new()).await,
                None => (Look::Unseen, None, Vec::new()),
            };
        };
        let seen = self.client.look(&first).await;
        if let Look::Seen(lock) = &seen {
            let owner = self.request.owner.as_ref().map(Owner::as_str);
            if WaitStatus::position(lock, owner, self.asked.elapsed()).is_some() {
                return (seen, Some(first), Vec::new());
            }
            let mut own = lock.holders.iter().filter(|it| {
                owner.is_some() && named(owner, it.owner.as_deref(), it.metadata.as_ref())
            });
            let awaited = own.find_map(|it| it.waits_for.as_ref());
            match awaited.map(|it| it.name.as_deref().map(LockName::new)) {
                Some(Some(Ok(name))) if names.clone().any(|it| *it == name) => {
                    let have = names.take_while(|it| **it != name).cloned().collect();
                    return look_at(name, have).await;
                }
                Some(None) => return (Look::Forbidden, None, vec![first]),
                Some(Some(_)) | None => {}
            }
        }
        match (seen, self.name.clone()) {
            (Look::RateLimited, _) => (Look::RateLimited, None, Vec::new()),
            // The lock that the last answer has named.
            (_, Some(name)) => look_at(name, Vec::new()).await,
            (Look::Forbidden, None) => (Look::Forbidden, None, Vec::new()),
            // An older gateway does not say what the group waits for.
            (Look::Seen(_) | Look::Unseen, None) => (Look::Unseen, None, Vec::new()),
        }
    }

    /// Whether the acquire must send a further request, after this answer to a request that waited for `wait`.
    fn needs_retry(&mut self, answer: &mut CallResponse, wait: Duration) -> bool {
        let Some(problem) = answer.problem() else {
            return false;
        };
        match problem.code.as_str() {
            "locked" => {
                // The answer describes the lock after all copies of the request, so no earlier copy is in doubt.
                answer.in_doubt = false;
                // The last request of the chain does not wait: it takes a lease granted since the previous request, or
                // leaves the queue. With the caller's idempotency key there is no such request, because the caller's
                // next call may take the lease or the position.
                let is_last = self.request.idempotency_key.is_some() && self.left().is_zero();
                !wait.is_zero() && !is_last
            }
            // With a generated key, only an earlier copy of this acquire, which arrived late, can have superseded this
            // request. A further request takes the position back.
            "request-replaced" => {
                self.request.idempotency_key.is_none()
                    && (!wait.is_zero() || (answer.in_doubt && self.may_start_again()))
            }
            // The gateway has granted a lease and released it again, because its answer was lost or came too late. With
            // a generated key no other caller can have got the lease, so the acquire starts again.
            "idempotency-expired" => {
                let again = self.request.idempotency_key.is_none()
                    && (answer.in_doubt || !wait.is_zero())
                    && self.may_start_again();
                self.key = fresh_key(&self.request);
                again
            }
            // This gateway does not allow so long a wait, so the next request waits half as long.
            "invalid-request" => {
                let too_long = problem.errors.iter().any(|error| error.field == "wait_ms");
                self.link = (wait / 2).max(SHORTEST_LINK);
                too_long && wait > self.link
            }
            _ => false,
        }
    }

    /// The time allowed for the answer after the wait of its request. If more time is left, half of it is kept for
    /// another copy, so that a request without an answer cannot use up all of it.
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
            ClientError::Held(mut problem) => {
                problem.has_room = self.has_room(&problem);
                if waited {
                    ClientError::WaitOver(problem)
                } else {
                    ClientError::Held(problem)
                }
            }
            error => error,
        }
    }

    /// Whether the request could hold the lock beside its holders, so that only earlier waiters are in its way.
    fn has_room(&self, problem: &Problem) -> bool {
        let taken = problem.holder_count.unwrap_or_default() + problem.resting.len() as u64;
        problem.waiters > Some(0)
            && self
                .mode_of(problem.name.as_deref())
                .has_room(&problem.holders, taken)
    }

    /// The mode in which the request wants a lock of its group, or its only lock.
    fn mode_of(&self, name: Option<&str>) -> AcquireMode {
        let own = self.group.as_ref().and_then(|it| it.own_mode(name));
        own.unwrap_or(self.request.mode)
    }

    fn call(&self, wait: Duration) -> Call {
        let call = match (&self.group, &self.name) {
            (None, Some(name)) => Call::new(Method::POST, name, ""),
            _ => Call::at(Method::POST, "/locks".to_owned()),
        };
        let waited = (self.first_sent).map(|first| first.elapsed().min(LONGEST_EARLIER_WAIT));
        call.secret(IDEMPOTENCY_KEY, self.key.expose())
            .json(self.request.body(self.group.as_ref(), wait, waited))
    }

    fn report(&mut self, waiting: WaitStatus, watcher: &mut Option<Watcher<'_>>) {
        self.waiting = waiting;
        if let Some(watcher) = watcher {
            (watcher.report)(&self.waiting);
        }
    }

    /// The time left of the wait. Less than a millisecond counts as zero, because no request can wait for a shorter
    /// time.
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

    /// The wait of the next request. With the caller's idempotency key the wait is never zero: a request without a wait
    /// would leave the queue, and the caller's next call may take the position.
    fn next_wait(&self) -> Duration {
        let wait = self.left().min(self.link);
        if self.request.idempotency_key.is_some() && !self.request.wait.is_zero() {
            wait.max(LEAST_WAIT)
        } else {
            wait
        }
    }

    /// Records that a gateway has been reached: from now on, an acquire with a wait is repeated until the wait ends.
    fn persist(&self, retry: &mut Retry) {
        if !self.request.wait.is_zero() {
            retry.persist_to_the_end(self.over.unwrap_or_else(|| Instant::now() + A_LONG_TIME));
        }
    }

    /// Whether there is time left to start the acquire again.
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
// The options of a request for a lock.

/// The options of a request for a lock. The default leaves all choices to the gateway.
#[derive(Debug, Clone, Default)]
pub struct AcquireRequest {
    /// TTL of the lease; the gateway's default if absent.
    pub ttl: Option<Duration>,
    /// How long to wait for a lock that is held. The default is not to wait; [`AcquireRequest::FOR_EVER`] waits as
    /// long as it takes. A gateway lets one request wait for about a minute at most. A longer wait is a chain of
    /// requests that keeps its position in the queue, through lost connections and from one gateway to another. For
    /// a group of locks, each request of the chain starts again without a position.
    pub wait: Duration,
    /// Hold limit: how long renewals may keep the lease.
    pub max_hold: Option<Duration>,
    /// Minimum hold: for how long after its grant the lock is granted to no other caller, even if the lease is released
    /// earlier. A TTL that is shorter is raised to it.
    pub min_hold: Option<Duration>,
    /// Whether the lease holds the lock alone or together with others. For a group of locks, the mode of all locks
    /// that have no mode of their own ([`GroupLocks`]).
    pub mode: AcquireMode,
    /// With a key, a waiter takes an older waiter of the same lock, API key and `supersedes` key out of the queue. The
    /// older acquire ends with the problem `newer-waiter`. For one lock only, not for a group.
    pub supersedes: Option<SupersedeKey>,
    /// The order of the work: a number of the caller that is higher for newer work. The lock is granted only if it was
    /// not granted for a higher order before; otherwise the acquire ends with [`ClientError::Outdated`]. For a group, the
    /// order of the locks that are held alone and have no order of their own ([`GroupLocks::with_order`]).
    pub order: Option<OrderNumber>,
    /// Why the caller goes back to older work on purpose: the order is neither compared nor remembered. Only with an
    /// order. The API key needs the permission `order`.
    pub rollback: Option<Reason>,
    /// Reserves the lock until a time, however long the request waits. For one lock only, without a TTL, a hold limit
    /// or a minimum hold, and not shared.
    pub reserve: Option<Reserve>,
    /// Owner text for people; if absent, the owner of the client.
    pub owner: Option<Owner>,
    /// Metadata to attach to the lease.
    pub metadata: Metadata,
    /// The key under which this process or a later one may repeat the request. The repeated request gets the same
    /// lease, or the same position, which the gateway keeps for five seconds after a wait that ran out. If absent, the
    /// client makes a key for this call.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Until when a lock is reserved, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserve {
    /// When the lease ends, by the clock of the store: an RFC 3339 time with an offset, such as `2026-12-04T18:00:00Z`.
    pub until: String,
    /// Why the lock is reserved, for people to read.
    pub reason: Reason,
}

// === impl AcquireRequest ===

impl AcquireRequest {
    /// A wait without an end.
    pub const FOR_EVER: Duration = Duration::MAX;

    /// The TTL to ask for: the gateway refuses a TTL that is shorter than the minimum hold, and raises its default.
    fn asked_ttl(&self) -> Option<Duration> {
        self.ttl.max(self.min_hold.filter(|_| self.ttl.is_some()))
    }

    /// The body of one copy of the request, which waits for `wait` at the gateway. `waited`: for how long the acquire has
    /// waited since its first request.
    fn body(&self, group: Option<&GroupLocks>, wait: Duration, waited: Option<Duration>) -> Value {
        // Without this time, a waiter that continues its wait after a restart of the gateway would count as newer than
        // the waiters that came in between.
        let waited = waited.filter(|_| self.supersedes.is_some());
        let metadata: serde_json::Map<_, _> = self
            .metadata
            .iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let (names, mode) = group.map_or((Value::Null, self.mode), |it| it.wire(self.mode));
        let (mode, limit) = mode.wire();
        json!({
            "names": names,
            "ttl_ms": self.asked_ttl().map(millis),
            "max_hold_ms": self.max_hold.map(millis),
            "min_hold_ms": self.min_hold.map(millis),
            "wait_ms": (!wait.is_zero()).then(|| millis(wait)),
            "mode": mode,
            "limit": limit,
            "supersedes": self.supersedes.as_ref().map(SupersedeKey::as_str),
            "waiting_since_ms": waited.map(millis),
            "order": self.order.map(OrderNumber::get),
            "rollback": self.rollback.as_ref().map(Reason::as_str),
            "reserve": self.reserve.as_ref().map(|it| {
                json!({"until": it.until, "reason": it.reason.as_str()})
            }),
            "owner": self.owner.as_ref().map(Owner::as_str),
            "metadata": (!metadata.is_empty()).then_some(metadata),
        })
    }
}

// === Wait status ===
//
// The status of a waiting acquire.

/// The status of a waiting acquire. Unknown fields are `None`: the API key may not view the lock, or no gateway can
/// be reached at the moment.
#[derive(Debug, Clone, Default)]
pub struct WaitStatus {
    /// For a group, the lock for which the request waits, if known.
    pub name: Option<LockName>,
    /// For a group, the locks that the request has already, if known.
    pub have: Vec<LockName>,
    /// The position in the queue: 1 is served next. It is found by the owner and the time waited, so it is unknown
    /// if two waiters with the same owner entered the queue at the same moment.
    pub position: Option<u64>,
    /// The number of waiters in the queue.
    pub waiters: Option<u64>,
    /// The holder of the lock; of several, the holder whose lease ends first.
    pub holder: Option<Holder>,
    /// The number of holders of the lock.
    pub holder_count: Option<u64>,
    /// The time until the lock has rested, if it has no holder and rests; of several rests the one that ends first.
    pub available_in: Option<Duration>,
    /// Whether the request could hold the lock beside its holders, so that only earlier waiters are in its way.
    pub has_room: bool,
    /// Whether the API key may not view the lock, so that the lock is not inspected again.
    pub may_not_view: bool,
    /// Why no gateway can be reached at the moment. The client repeats the acquire.
    pub trouble: Option<ClientError>,
}

/// The largest difference between the client's and the gateway's waiting time of one waiter. The times differ, because
/// the client and the gateway start to count up to one request apart.
const SAME_MOMENT: Duration = Duration::from_millis(1_500);
/// The time within which two waiters of one owner cannot be told apart, because a request may take as long.
const INDISTINGUISHABLE: Duration = Duration::from_millis(100);

// === impl WaitStatus ===

impl WaitStatus {
    /// The status of the wait after a `locked` answer.
    pub(crate) fn of_problem(self, problem: &Problem) -> Self {
        let name = problem.name.as_deref().map(LockName::new);
        let name = name.and_then(Result::ok);
        Self {
            // The position belongs to one lock, so it is dropped if the request now waits for another lock of its
            // group.
            position: self.position.filter(|_| name == self.name),
            name,
            have: Vec::new(),
            waiters: problem.waiters,
            holder: problem.holders.first().cloned(),
            holder_count: problem.holder_count,
            available_in: problem.available_in_ms.map(Duration::from_millis),
            has_room: problem.has_room,
            may_not_view: self.may_not_view,
            trouble: None,
        }
    }

    /// The status of the wait after an inspection of the lock, for a waiter with this owner that has waited for
    /// `waited`.
    pub(crate) fn of_look(lock: Inspection, owner: Option<&str>, waited: Duration) -> Self {
        Self {
            name: None,
            have: Vec::new(),
            position: Self::position(&lock, owner, waited),
            waiters: Some(lock.waiter_count),
            available_in: lock.first_available(),
            holder: lock.holders.into_iter().next(),
            holder_count: Some(lock.holder_count),
            has_room: false,
            may_not_view: false,
            trouble: None,
        }
    }

    /// The position of a waiter that has named this owner and has waited for `waited`, if it can be told.
    fn position(lock: &Inspection, owner: Option<&str>, waited: Duration) -> Option<u64> {
        let off = |waited_ms| Duration::from_millis(waited_ms).abs_diff(waited);
        let mut ours: Vec<_> = lock
            .waiters
            .iter()
            .filter(|waiter| named(owner, waiter.owner.as_deref(), Some(&waiter.metadata)))
            .map(|waiter| (off(waiter.waited_ms), waiter.position))
            .filter(|(off, _)| *off <= SAME_MOMENT)
            .collect();
        ours.sort_unstable();
        match ours.as_slice() {
            [] => None,
            [(first, _), (second, _), ..] if second.saturating_sub(*first) < INDISTINGUISHABLE => {
                None
            }
            [(_, position), ..] => Some(*position),
        }
    }

    /// Adds the error of the last request to the status of the wait.
    #[must_use]
    pub fn with_trouble(self, trouble: ClientError) -> Self {
        Self {
            trouble: Some(trouble),
            ..self
        }
    }
}

/// Whether a holder or waiter with this owner and metadata has named the owner `said`. If its API key declares an owner, the
/// gateway keeps the named one in the metadata.
fn named(
    said: Option<&str>,
    owner: Option<&str>,
    metadata: Option<&BTreeMap<String, String>>,
) -> bool {
    let kept = metadata.and_then(|entries| entries.get("said_owner"));
    owner == said || kept.is_some_and(|kept| Some(kept.as_str()) == said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockState, Waiter};

    #[test]
    fn a_position_is_told_unless_it_may_be_that_of_another_waiter() {
        let position_of = |waited: &[u64], owner: &str, said: Option<&str>| {
            let said = said.map(|said| ("said_owner".to_owned(), said.to_owned()));
            let waiters = waited.iter().zip(1..).map(|(&waited_ms, position)| Waiter {
                position,
                owner: Some(owner.to_owned()),
                metadata: said.clone().into_iter().collect(),
                mode: None,
                limit: None,
                waited_ms,
            });
            let lock = Inspection::of_waiters(LockState::Held, waiters.collect());
            WaitStatus::of_look(lock, Some("ci"), Duration::from_secs(10)).position
        };
        let position = |waited: &[u64]| position_of(waited, "ci", None);
        assert_eq!(position(&[9_990]), Some(1));
        assert_eq!(position(&[60_000, 9_990]), Some(2));
        assert_eq!(position(&[10_400, 9_990]), Some(2));
        assert_eq!(position(&[9_995, 9_990]), None);
        assert_eq!(position(&[60_000]), None);
        // The API key declares an owner.
        assert_eq!(position_of(&[9_990], "acme #7", Some("ci")), Some(1));
        assert_eq!(position_of(&[9_990], "acme #7", Some("other")), None);
    }
}
