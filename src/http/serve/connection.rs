//! What a connection is at, and what the handlers of its requests may know of it.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::extract::FromRequestParts;
use http::{Extensions, request::Parts};
use tokio::time::Instant;

use crate::{
    engine::Delivery,
    http::problem::{Extra, Problem, ProblemCode},
    lifecycle::Lifecycle,
};

use super::{peer_end::LookBudget, unsettled::UnsettledGrants};

/// The state of one connection. Its tasks change it, and every request carries it as its extension.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// The other end: the caller, or the last proxy on its way. Unknown only if it has gone already.
    pub(super) peer: Option<SocketAddr>,
    pub(super) opened: Instant,
    /// For how long data may stay unacknowledged while no request says otherwise.
    default_user_timeout: Duration,
    /// For how long data may stay unacknowledged now, in milliseconds. The socket obeys it with its next
    /// write.
    user_timeout_ms: AtomicU32,
    long_requests: LongRequests,
    lifecycle: Lifecycle,
    /// Grants that were answered on it, until it is known that their answers have left.
    pub(super) grants: UnsettledGrants,
    pub(super) looks: LookBudget,
    /// Requests from their heads to the last byte of their answers that was handed to HTTP.
    requests: AtomicU32,
    /// Releases that came on it and are carried out although their callers have hung up.
    detached: AtomicU32,
    has_received_request: AtomicBool,
    /// Whether bytes that come between requests begin a head.
    reads_heads: AtomicBool,
    has_begun_head: AtomicBool,
    /// When the connection became idle or the head began, in milliseconds after `opened`.
    since_ms: AtomicU64,
    /// How often the connection was polled.
    poll_count: AtomicU64,
    /// Whether HTTP waits for bytes, and so is told of the end.
    awaits_bytes: AtomicBool,
    /// Whether the socket is to look for its end with the next flush.
    is_look_due: AtomicBool,
}

/// How long a client may keep a connection waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Between two requests.
    pub(super) idle: Duration,
    /// From the first byte of a request to the end of its head.
    pub(super) head: Duration,
}

/// A release that is carried out without its caller, until this is dropped.
#[derive(Debug)]
pub(super) struct DetachedRelease(Arc<ConnectionState>);

/// A request on a connection, until this is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<ConnectionState>);

/// The connection on which a request is answered, as its handler sees it. A request that came through none has no
/// limits of a connection.
#[derive(Debug)]
pub(in crate::http) struct Connection(Option<Arc<ConnectionState>>);

/// The connections that requests which last may take: waits and streams. Cheap to clone.
///
/// They must leave some to others: a holder whose renewal finds no connection loses its lock.
#[derive(Debug, Clone)]
pub(super) struct LongRequests {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// A connection that is taken for long, until this is dropped.
#[derive(Debug)]
pub(in crate::http) struct LongRequestPermit(Arc<AtomicUsize>);

/// Which part of all connections is kept for requests that are answered at once: one of them serves
/// hundreds of renewals a second.
const KEPT: usize = 8;
/// Which part is kept even from requests that go on with a lease. They come all together when another
/// gateway drains, and must find room; those that do not can still renew.
const KEPT_FROM_ALL: usize = 16;

/// After how long to ask again, in milliseconds: waits end all the time.
const RETRY_AFTER_MS: u64 = 2_000;

/// The address of the caller, or of the last proxy on its way. `None` for a request that came through no
/// connection.
pub(in crate::http) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let connection = extensions.get::<Arc<ConnectionState>>()?;
    connection.peer.map(|peer| peer.ip().to_canonical())
}

// === impl ConnectionState ===

impl ConnectionState {
    pub(super) fn new(
        peer: Option<SocketAddr>,
        default_user_timeout: Duration,
        long_requests: LongRequests,
        looks: LookBudget,
        lifecycle: &Lifecycle,
    ) -> Self {
        Self {
            peer,
            opened: Instant::now(),
            default_user_timeout,
            user_timeout_ms: AtomicU32::new(in_ms(default_user_timeout)),
            long_requests,
            lifecycle: lifecycle.clone(),
            grants: UnsettledGrants::default(),
            looks,
            requests: AtomicU32::new(0),
            detached: AtomicU32::new(0),
            has_received_request: AtomicBool::new(false),
            reads_heads: AtomicBool::new(false),
            has_begun_head: AtomicBool::new(false),
            since_ms: AtomicU64::new(0),
            poll_count: AtomicU64::new(0),
            awaits_bytes: AtomicBool::new(false),
            is_look_due: AtomicBool::new(false),
        }
    }

    /// The connection of a test, which nobody else has.
    #[cfg(test)]
    pub(super) fn of_test() -> Arc<Self> {
        let idle = Duration::from_secs(75);
        let (long_requests, looks) = (LongRequests::of(16), LookBudget::new());
        let state = Self::new(None, idle, long_requests, looks, &Lifecycle::new());
        Arc::new(state)
    }

    /// HTTP/1.1 is spoken from now on: what comes between two requests begins a head.
    pub(super) fn read_heads(&self) {
        self.reads_heads.store(true, Ordering::Relaxed);
        self.restart_idle_time();
    }

    /// HTTP has asked for bytes, and waits for them or has been given some.
    pub(super) fn on_read(&self, awaits_bytes: bool) {
        self.awaits_bytes.store(awaits_bytes, Ordering::Relaxed);
    }

    /// Whether a request is under way and HTTP would not notice that its caller has gone: it has bytes already that
    /// come behind the request, and reads no more until that is answered.
    pub(super) fn misses_end(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0 && !self.awaits_bytes.load(Ordering::Relaxed)
    }

    /// Lets the socket look for its end with the next flush, which every poll of HTTP/1.1 has.
    pub(super) fn look_for_end(&self) {
        self.is_look_due.store(true, Ordering::Relaxed);
    }

    /// Whether the socket is to look for its end now. It is asked to once.
    pub(super) fn take_due_look(&self) -> bool {
        // Only the task that polls the connection writes it.
        let is_due = self.is_look_due.load(Ordering::Relaxed);
        if is_due {
            self.is_look_due.store(false, Ordering::Relaxed);
        }
        is_due
    }

    /// Bytes have come.
    pub(super) fn on_bytes_received(&self) {
        self.grants.on_bytes_received();
        // Bytes behind a request that is still being answered are counted as idle time: they may be its
        // body, and a whole request among them begins as soon as the answer has left.
        if self.requests.load(Ordering::Relaxed) == 0
            && self.reads_heads.load(Ordering::Relaxed)
            && !self.has_begun_head()
        {
            self.mark_time();
            self.has_begun_head.store(true, Ordering::Relaxed);
        }
    }

    /// The kernel has taken so many bytes, and whether these are all that it was offered. An answer that is
    /// handed to HTTP may take long to leave.
    pub(super) fn on_bytes_written(&self, bytes: usize, are_all: bool) {
        self.grants.on_bytes_written(bytes, are_all);
        if self.requests.load(Ordering::Relaxed) == 0 && self.reads_heads.load(Ordering::Relaxed) {
            self.restart_idle_time();
        }
    }

    /// The head of a request has come.
    pub(super) fn begin_request(self: &Arc<Self>) -> OpenRequest {
        // Over HTTP/2 a request says nothing of the answers to others.
        if self.reads_heads.load(Ordering::Relaxed) {
            self.grants.on_next_request();
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.has_begun_head.store(false, Ordering::Relaxed);
        self.has_received_request.store(true, Ordering::Relaxed);
        OpenRequest(Arc::clone(self))
    }

    /// One more release goes on without its caller; `None` if as many do as may.
    pub(super) fn detach_release(self: &Arc<Self>, most: u32) -> Option<DetachedRelease> {
        let count = self.detached.fetch_add(1, Ordering::Relaxed);
        let release = DetachedRelease(Arc::clone(self));
        (count < most).then_some(release)
    }

    /// Whether a request has ever come.
    pub(super) fn has_received_request(&self) -> bool {
        self.has_received_request.load(Ordering::Relaxed)
    }

    /// Whether a part of a head has come.
    pub(super) fn has_begun_head(&self) -> bool {
        self.has_begun_head.load(Ordering::Relaxed)
    }

    /// The time of an idle connection begins anew.
    pub(super) fn restart_idle_time(&self) {
        if !self.has_begun_head() {
            self.mark_time();
        }
    }

    /// When the client has kept the connection waiting for too long; `None` while it is answered.
    pub(super) fn deadline(&self, timeouts: Timeouts) -> Option<Instant> {
        if self.requests.load(Ordering::Acquire) > 0 {
            return None;
        }
        let timeout = if self.has_begun_head() {
            timeouts.head
        } else {
            timeouts.idle
        };
        let since = Duration::from_millis(self.since_ms.load(Ordering::Relaxed));
        Some(self.opened + since + timeout)
    }

    /// For how long data may stay unacknowledged, in milliseconds.
    pub(super) fn user_timeout_ms(&self) -> u32 {
        self.user_timeout_ms.load(Ordering::Relaxed)
    }

    /// The connection is polled once more.
    pub(super) fn begin_poll(&self) {
        // Only the task that polls the connection writes it.
        let next = self.poll_count.load(Ordering::Relaxed).wrapping_add(1);
        self.poll_count.store(next, Ordering::Relaxed);
    }

    /// How often the connection was polled.
    pub(super) fn poll_count(&self) -> u64 {
        self.poll_count.load(Ordering::Relaxed)
    }

    fn mark_time(&self) {
        let ms = self.opened.elapsed().as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        self.since_ms.store(ms, Ordering::Relaxed);
    }
}

fn in_ms(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1)
}

// === impl OpenRequest ===

impl OpenRequest {
    /// Tells the handlers of a request about its connection.
    pub(super) fn attach_to<B>(&self, request: &mut http::Request<B>) {
        request.extensions_mut().insert(Arc::clone(&self.0));
    }

    /// Whether the next request should be sent elsewhere: the gateway is about to stop.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.0.lifecycle.is_withdrawn()
    }
}

impl Drop for DetachedRelease {
    fn drop(&mut self) {
        self.0.detached.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        // Before the count, so that an idle connection is never seen with an outdated time.
        self.0.mark_time();
        self.0.requests.fetch_sub(1, Ordering::Release);
    }
}

// === impl Connection ===

impl Connection {
    /// The connection of a request.
    pub(in crate::http) fn of(extensions: &Extensions) -> Self {
        Self(extensions.get().cloned())
    }

    /// The answer with a grant is handed to HTTP. The grant is delivered when its first byte has left, and
    /// given back if the connection ends before.
    pub(in crate::http) fn hand_over(&self, delivery: Delivery) {
        if let Some(connection) = &self.0 {
            connection.grants.add(delivery);
        } else {
            delivery.delivered();
        }
    }

    /// For how long the other end may leave unacknowledged what it was sent before it counts as gone. `None`: for as
    /// long as with every answer.
    ///
    /// Without a limit of its own, a stream to a machine that disappeared would look alive until the time-out of
    /// any other answer. Over HTTP/2, where other requests share the connection, its pings find that out.
    pub(in crate::http) fn set_user_timeout(&self, limit: Option<Duration>) {
        if let Some(connection) = &self.0
            && connection.reads_heads.load(Ordering::Relaxed)
        {
            let ms = in_ms(limit.unwrap_or(connection.default_user_timeout));
            connection.user_timeout_ms.store(ms, Ordering::Relaxed);
        }
    }

    /// Takes the connection for long. A request that `has_lease` goes on with a lease that somebody has, and finds
    /// room where others do not.
    pub(in crate::http) fn take_for_long(
        &self,
        has_lease: bool,
    ) -> Result<Option<LongRequestPermit>, Problem> {
        let connection = self.0.as_ref();
        let taken = connection.map(|it| it.long_requests.take(has_lease));
        taken.transpose()
    }
}

impl<S: Sync> FromRequestParts<S> for Connection {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

// === impl LongRequests ===

impl LongRequests {
    /// Of so many connections.
    pub(super) fn of(most: usize) -> Self {
        let taken = Arc::default();
        Self { most, taken }
    }

    fn take(&self, has_lease: bool) -> Result<LongRequestPermit, Problem> {
        let kept = if has_lease { KEPT_FROM_ALL } else { KEPT };
        let most = self.most - self.most.div_ceil(kept);
        // In one step: of two that come together for the last place one must get it.
        let one_more = |taken| (taken < most).then_some(taken + 1);
        let relaxed = Ordering::Relaxed;
        if self.taken.fetch_update(relaxed, relaxed, one_more).is_ok() {
            return Ok(LongRequestPermit(Arc::clone(&self.taken)));
        }
        let detail = "As many requests wait or listen at this gateway as leave connections to those \
             that are answered at once. Nothing happened.";
        let problem = Problem::new(ProblemCode::Overloaded, detail);
        Err(problem.with(Extra::RetryAfter(RETRY_AFTER_MS)))
    }
}

impl Drop for LongRequestPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use tokio::time::advance;

    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        idle: Duration::from_secs(75),
        head: Duration::from_secs(10),
    };

    fn connection() -> Arc<ConnectionState> {
        let connection = ConnectionState::of_test();
        connection.read_heads();
        connection
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_less_time_than_an_idle_connection_and_an_answer_has_all() {
        let connection = connection();
        let left = || Some(connection.deadline(TIMEOUTS)? - Instant::now());
        assert_eq!(left(), Some(TIMEOUTS.idle));
        advance(Duration::from_secs(5)).await;
        connection.on_bytes_received();
        advance(Duration::from_secs(2)).await;
        connection.on_bytes_received();
        assert_eq!(left(), Some(Duration::from_secs(8)));
        let request = connection.begin_request();
        connection.on_bytes_received();
        assert_eq!(left(), None);
        advance(Duration::from_secs(500)).await;
        drop(request);
        assert_eq!(left(), Some(TIMEOUTS.idle));
        // The answer leaves in pieces.
        advance(Duration::from_secs(70)).await;
        connection.on_bytes_written(1, true);
        assert_eq!(left(), Some(TIMEOUTS.idle));
    }

    #[tokio::test]
    async fn a_silence_limit_lasts_until_it_is_lifted_and_is_of_connections_that_nobody_shares() {
        let connection = connection();
        let mut request = http::Request::new(());
        connection.begin_request().attach_to(&mut request);
        let handlers = Connection::of(request.extensions());
        assert_eq!(connection.user_timeout_ms(), 75_000);
        handlers.set_user_timeout(Some(Duration::from_millis(1_500)));
        assert_eq!(connection.user_timeout_ms(), 1_500);
        handlers.set_user_timeout(None);
        assert_eq!(connection.user_timeout_ms(), 75_000);
        let shared = ConnectionState::of_test();
        shared.begin_request().attach_to(&mut request);
        let handlers = Connection::of(request.extensions());
        handlers.set_user_timeout(Some(Duration::from_secs(1)));
        assert_eq!(shared.user_timeout_ms(), 75_000);
    }

    #[test]
    fn requests_that_last_leave_connections_to_others_and_some_to_those_with_a_lease() {
        let long_requests = LongRequests::of(32);
        let take = |count, has_lease| {
            let taken = (0..count).map(|_| long_requests.take(has_lease).unwrap());
            taken.collect::<Vec<_>>()
        };
        let mut stays = take(28, false);
        long_requests.take(false).unwrap_err();
        stays.extend(take(2, true));
        long_requests.take(true).unwrap_err();
        stays.truncate(27);
        drop(take(1, false));
    }

    #[test]
    fn of_two_requests_that_come_together_for_the_last_place_one_gets_it() {
        let (long_requests, meeting) = (LongRequests::of(2), Barrier::new(2));
        let try_often = || {
            let tries = (0..1_000).map(|_| {
                meeting.wait();
                let taken = long_requests.take(false);
                meeting.wait();
                usize::from(taken.is_ok())
            });
            tries.sum::<usize>()
        };
        let granted = thread::scope(|scope| {
            let other = scope.spawn(try_often);
            try_often() + other.join().unwrap()
        });
        assert_eq!(granted, 1_000);
    }
}
