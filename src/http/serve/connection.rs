//! State of a connection, and the part of it that handlers of its requests may use.

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
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    engine::Delivery,
    http::problem::{Extra, Problem, ProblemCode},
    lifecycle::Lifecycle,
};

/// The state of one connection. Its tasks change it, and every request carries it as its extension.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// Address of the other end: the caller, or the last proxy on its way. `None` only if the other end has
    /// gone already.
    pub(super) peer: Option<SocketAddr>,
    pub(super) opened: Instant,
    /// How long data that was sent may stay unacknowledged before the kernel closes the connection, unless a
    /// request sets another limit.
    default_user_timeout: Duration,
    /// How long data that was sent may stay unacknowledged before the kernel closes the connection, in
    /// milliseconds. The socket applies a change with its next write.
    user_timeout_ms: AtomicU32,
    long_requests: LongRequests,
    lifecycle: Lifecycle,
    /// Grants whose answers were handed to hyper, until the connection is written to. If the connection ends
    /// before, they are dropped with this state, which releases their leases.
    unwritten_grants: Mutex<Vec<Delivery>>,
    /// Whether there are unwritten grants, so that a connection without grants need not take the lock.
    has_unwritten_grants: AtomicBool,
    /// Number of open requests: each from its head until hyper has taken the last byte of its answer.
    requests: AtomicU32,
    /// Number of releases from this connection that are carried out although their callers have hung up.
    detached: AtomicU32,
    has_received_request: AtomicBool,
    /// Whether bytes that arrive between requests begin the head of a request, as over HTTP/1.1.
    reads_heads: AtomicBool,
    has_begun_head: AtomicBool,
    /// When the connection became idle, or the head of a request began to arrive, in milliseconds after
    /// `opened`.
    since_ms: AtomicU64,
    /// How often the task of the connection has polled it.
    poll_count: AtomicU64,
    /// Whether hyper waits for bytes, and so would notice the end of the connection.
    awaits_bytes: AtomicBool,
    /// Whether the socket should ask the kernel, with its next write or flush, whether the client has hung up.
    is_look_due: AtomicBool,
}

/// How long a client may leave a connection idle, or a request incomplete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Longest idle time between two requests.
    pub(super) idle: Duration,
    /// Longest time from the first byte of a request to the end of the request's head.
    pub(super) head: Duration,
}

/// Guard that counts a release which is carried out without its caller.
#[derive(Debug)]
pub(super) struct DetachedRelease(Arc<ConnectionState>);

/// Guard that counts an open request of a connection.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<ConnectionState>);

/// The connection on which a request is answered, as its handler sees it. `None`: the request came through no
/// connection, and the limits of a connection do not apply.
#[derive(Debug)]
pub(in crate::http) struct Connection(Option<Arc<ConnectionState>>);

/// Bound for the connections that long requests (waits and streams) may take. Cheap to clone.
///
/// Long requests must leave some connections to other callers: a holder whose renewal finds no connection
/// loses its lock.
#[derive(Debug, Clone)]
pub(super) struct LongRequests {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// Permit of a long request for its connection, until the permit is dropped.
#[derive(Debug)]
pub(in crate::http) struct LongRequestPermit(Arc<AtomicUsize>);

/// One in this many of the gateway's connections is kept for requests that are answered at once: one
/// connection serves hundreds of renewals a second.
const RESERVE_DIVISOR: usize = 8;
/// One in this many of the gateway's connections is kept even from long requests that continue a lease. These
/// requests come all together when another gateway drains, and must find room; a holder that finds none can
/// still renew.
const LEASE_RESERVE_DIVISOR: usize = 16;

/// After how many milliseconds a refused long request should be sent again. Waits end all the time, so a
/// connection is soon free.
const RETRY_AFTER_MS: u64 = 2_000;

/// The address of the caller, or of the last proxy on its way. `None` for a request that came through no
/// connection.
pub(in crate::http) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Arc<ConnectionState>>()?.address()
}

// === impl ConnectionState ===

impl ConnectionState {
    pub(super) fn new(
        peer: Option<SocketAddr>,
        default_user_timeout: Duration,
        long_requests: LongRequests,
        lifecycle: &Lifecycle,
    ) -> Self {
        Self {
            peer,
            opened: Instant::now(),
            default_user_timeout,
            user_timeout_ms: AtomicU32::new(in_ms(default_user_timeout)),
            long_requests,
            lifecycle: lifecycle.clone(),
            unwritten_grants: Mutex::default(),
            has_unwritten_grants: AtomicBool::new(false),
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

    fn address(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip().to_canonical())
    }

    /// State of a connection for a test.
    #[cfg(test)]
    pub(super) fn of_test() -> Arc<Self> {
        let idle = Duration::from_secs(75);
        let state = Self::new(None, idle, LongRequests::new(16), &Lifecycle::new());
        Arc::new(state)
    }

    /// Marks the connection as HTTP/1.1: bytes that arrive between two requests begin a head.
    pub(super) fn read_heads(&self) {
        self.reads_heads.store(true, Ordering::Relaxed);
        self.restart_idle_time();
    }

    /// Records that hyper has asked for bytes. `awaits_bytes` says whether it must wait for them.
    pub(super) fn on_read(&self, awaits_bytes: bool) {
        self.awaits_bytes.store(awaits_bytes, Ordering::Relaxed);
    }

    /// Whether hyper would not notice that the caller of a request under way has gone: if hyper has bytes
    /// from behind the request already, it reads no more until the request is answered.
    pub(super) fn misses_end(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0 && !self.awaits_bytes.load(Ordering::Relaxed)
    }

    /// Makes the socket ask the kernel, with the next write or flush, whether the client has hung up. Every poll
    /// of an HTTP/1.1 connection flushes.
    pub(super) fn look_for_end(&self) {
        self.is_look_due.store(true, Ordering::Relaxed);
    }

    /// Whether the socket should ask the kernel now whether the client has hung up. A check that is due is
    /// reported once.
    pub(super) fn take_due_look(&self) -> bool {
        // Load and store need not be one step: a look that another task asks for in between is made by the
        // check that follows.
        let is_due = self.is_look_due.load(Ordering::Relaxed);
        if is_due {
            self.is_look_due.store(false, Ordering::Relaxed);
        }
        is_due
    }

    /// Records that bytes have arrived from the client, which may begin the head of a request.
    pub(super) fn on_bytes_received(&self) {
        // Bytes that arrive while a request is still being answered begin no head and count as idle time:
        // they may be the body of the request, and a whole request among them begins as soon as the answer
        // has left.
        if self.requests.load(Ordering::Relaxed) == 0
            && self.reads_heads.load(Ordering::Relaxed)
            && !self.has_begun_head()
        {
            self.mark_time();
            self.has_begun_head.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an answer with a grant was handed to hyper since the last write.
    pub(super) fn has_unwritten_grants(&self) -> bool {
        self.has_unwritten_grants.load(Ordering::Acquire)
    }

    /// Records that the kernel has taken bytes: the grants that were handed to hyper are delivered. Between
    /// requests the idle time restarts with each write, because an answer that hyper has taken may take long
    /// to leave.
    pub(super) fn on_bytes_written(&self) {
        if self.has_unwritten_grants() {
            let mut grants = self.unwritten_grants.lock();
            self.has_unwritten_grants.store(false, Ordering::Relaxed);
            grants.drain(..).for_each(Delivery::delivered);
        }
        if self.requests.load(Ordering::Relaxed) == 0 && self.reads_heads.load(Ordering::Relaxed) {
            self.restart_idle_time();
        }
    }

    /// Begins a request whose head has arrived.
    pub(super) fn begin_request(self: &Arc<Self>) -> OpenRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.has_begun_head.store(false, Ordering::Relaxed);
        self.has_received_request.store(true, Ordering::Relaxed);
        OpenRequest(Arc::clone(self))
    }

    /// Counts one more release that goes on without its caller; `None` if `most` are counted already.
    pub(super) fn detach_release(self: &Arc<Self>, most: u32) -> Option<DetachedRelease> {
        let count = self.detached.fetch_add(1, Ordering::Relaxed);
        let release = DetachedRelease(Arc::clone(self));
        (count < most).then_some(release)
    }

    /// Whether at least one request has arrived on this connection.
    pub(super) fn has_received_request(&self) -> bool {
        self.has_received_request.load(Ordering::Relaxed)
    }

    /// Whether a part of a request's head has arrived, and not yet the whole head.
    pub(super) fn has_begun_head(&self) -> bool {
        self.has_begun_head.load(Ordering::Relaxed)
    }

    /// Restarts the idle time of the connection, unless a head has begun.
    pub(super) fn restart_idle_time(&self) {
        if !self.has_begun_head() {
            self.mark_time();
        }
    }

    /// When the client will have kept the connection waiting for too long; `None` while a request is
    /// answered.
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

    /// How long data that was sent may stay unacknowledged before the kernel closes the connection, in
    /// milliseconds.
    pub(super) fn user_timeout_ms(&self) -> u32 {
        self.user_timeout_ms.load(Ordering::Relaxed)
    }

    /// Counts a poll of the connection.
    pub(super) fn begin_poll(&self) {
        // Only the task that polls the connection writes this counter, so load and store need not be one
        // step.
        let next = self.poll_count.load(Ordering::Relaxed).wrapping_add(1);
        self.poll_count.store(next, Ordering::Relaxed);
    }

    /// How often the task of the connection has polled it.
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
    /// Adds the connection to the extensions of the request, where the request's handler finds it.
    pub(super) fn attach_to<B>(&self, request: &mut http::Request<B>) {
        request.extensions_mut().insert(Arc::clone(&self.0));
    }

    /// Whether the client should send its next request to another gateway, because this gateway is about to
    /// stop.
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
        // The time at which the request ends is stored before the count of requests goes down, so that an idle
        // connection is never seen with an outdated time.
        self.0.mark_time();
        self.0.requests.fetch_sub(1, Ordering::Release);
    }
}

// === impl Connection ===

impl Connection {
    /// The address of the caller, or of the last proxy on its way. `None` for a request that came through no connection.
    pub(in crate::http) fn peer(&self) -> Option<IpAddr> {
        self.0.as_ref()?.address()
    }

    /// The connection on which a request came.
    pub(in crate::http) fn from_extensions(extensions: &Extensions) -> Self {
        Self(extensions.get().cloned())
    }

    /// Keeps the delivery of a grant whose answer is handed to hyper. The grant is delivered with the next write
    /// to the connection. If the caller is found to have hung up before that write, the undelivered lease is
    /// released. `looks`: the kernel is asked, because the event loop may not have reported the end yet.
    pub(in crate::http) fn hand_over(&self, delivery: Delivery, looks: bool) {
        let Some(connection) = &self.0 else {
            return delivery.delivered();
        };
        let mut grants = connection.unwritten_grants.lock();
        if grants.is_empty() {
            // Room for one grant is reserved, because few connections have a second one at the same time.
            grants.reserve_exact(1);
        }
        grants.push(delivery);
        if looks {
            connection.look_for_end();
        }
        connection
            .has_unwritten_grants
            .store(true, Ordering::Release);
    }

    /// Sets for how long the other end may leave data unacknowledged before it counts as gone. `None`: the
    /// default of every answer.
    ///
    /// Without a limit of its own, a stream to a machine that disappeared would look alive until the time-out
    /// of any other answer. The limit has no effect over HTTP/2, where requests share the connection and pings
    /// detect such a machine.
    pub(in crate::http) fn set_user_timeout(&self, limit: Option<Duration>) {
        if let Some(connection) = &self.0
            && connection.reads_heads.load(Ordering::Relaxed)
        {
            let ms = in_ms(limit.unwrap_or(connection.default_user_timeout));
            connection.user_timeout_ms.store(ms, Ordering::Relaxed);
        }
    }

    /// Takes the connection for a long request. A request that `has_lease` continues an existing lease, and
    /// finds room where other requests do not.
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
        Ok(Self::from_extensions(&parts.extensions))
    }
}

// === impl LongRequests ===

impl LongRequests {
    /// Makes the bound for the long requests of a gateway that takes at most `most` connections.
    pub(super) fn new(most: usize) -> Self {
        let taken = Arc::default();
        Self { most, taken }
    }

    fn take(&self, has_lease: bool) -> Result<LongRequestPermit, Problem> {
        let kept = if has_lease {
            LEASE_RESERVE_DIVISOR
        } else {
            RESERVE_DIVISOR
        };
        let most = self.most - self.most.div_ceil(kept);
        // The check and the count are one atomic step: if two long requests come together and one connection
        // is left, exactly one request must get it.
        let one_more = |taken| (taken < most).then_some(taken + 1);
        let relaxed = Ordering::Relaxed;
        if self.taken.fetch_update(relaxed, relaxed, one_more).is_ok() {
            return Ok(LongRequestPermit(Arc::clone(&self.taken)));
        }
        let detail = "Waiting requests and streams use all the connections that this gateway has \
                      for them; the others are kept for requests that are answered at once. \
                      Nothing happened.";
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
        // A piece of the answer leaves after a long pause, which restarts the idle time.
        advance(Duration::from_secs(70)).await;
        connection.on_bytes_written();
        assert_eq!(left(), Some(TIMEOUTS.idle));
    }

    #[tokio::test]
    async fn a_silence_limit_lasts_until_it_is_lifted_and_is_of_connections_that_nobody_shares() {
        let connection = connection();
        let mut request = http::Request::new(());
        connection.begin_request().attach_to(&mut request);
        let handlers = Connection::from_extensions(request.extensions());
        assert_eq!(connection.user_timeout_ms(), 75_000);
        handlers.set_user_timeout(Some(Duration::from_millis(1_500)));
        assert_eq!(connection.user_timeout_ms(), 1_500);
        handlers.set_user_timeout(None);
        assert_eq!(connection.user_timeout_ms(), 75_000);
        let shared = ConnectionState::of_test();
        shared.begin_request().attach_to(&mut request);
        let handlers = Connection::from_extensions(request.extensions());
        handlers.set_user_timeout(Some(Duration::from_secs(1)));
        assert_eq!(shared.user_timeout_ms(), 75_000);
    }

    #[test]
    fn requests_that_last_leave_connections_to_others_and_some_to_those_with_a_lease() {
        let long_requests = LongRequests::new(32);
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
        let (long_requests, meeting) = (LongRequests::new(2), Barrier::new(2));
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
