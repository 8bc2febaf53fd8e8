//! Permits, which bound the number of requests that are worked on at the same time.
//!
//! Renewals have room of their own, and releases too, so that no number of other requests costs a holder its
//! lock. Renewals and releases do not share that room, because a release needs no API key and a renewal does.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use tokio::time::{Duration, Instant};

use crate::{
    config::HttpConfig,
    http::problem::{Extra, Problem, ProblemCode},
};

use super::routes::Class;

/// Bounds for the number of requests that are worked on at the same time.
#[derive(Debug)]
pub(super) struct ConcurrencyLimits {
    common: ConcurrencyLimit,
    renewing: ConcurrencyLimit,
    releasing: ConcurrencyLimit,
    scraping: ConcurrencyLimit,
    pub(super) refusals: RefusalCount,
}

/// The number of refusals since the last log line about them, and the time of that line.
#[derive(Debug, Default)]
pub(in crate::http) struct RefusalCount(Mutex<(u64, Option<Instant>)>);

/// A limit for requests that are worked on at the same time, as the number of its free permits.
#[derive(Debug)]
struct ConcurrencyLimit(AtomicUsize);

/// The permit that lets the gateway work on a request. The request gives its permit up while it only waits
/// for a lock.
#[derive(Debug)]
pub(super) struct RequestPermit {
    class: Class,
    /// The limit from which the permit was taken: `NOTHING` (the request has no permit), `COMMON` or
    /// `RESERVED`.
    taken: AtomicU8,
    began: Instant,
    /// For how many microseconds the request had given the permit up, in waits that have ended.
    waited_us: AtomicU64,
    /// When the request gave the permit up, in microseconds from its beginning; 0 while it does not wait.
    waits_since_us: AtomicU64,
}

const NOTHING: u8 = 0;
const COMMON: u8 = 1;
const RESERVED: u8 = 2;

/// How many requests for metrics find a permit even in a full gateway: enough for a pair of Prometheus
/// servers and a person.
const SCRAPES: usize = 4;

/// After how many milliseconds a refused request should be sent again. A request is worked on for a much
/// shorter time.
const RETRY_AFTER_MS: u64 = 1_000;
/// Shortest time between two log lines about refused requests or connections.
const NOTICE: Duration = Duration::from_secs(10);

// === impl ConcurrencyLimits ===

impl ConcurrencyLimits {
    pub(super) fn new(config: &HttpConfig) -> Self {
        let room = |size| ConcurrencyLimit(AtomicUsize::new(size));
        Self {
            common: room(config.max_concurrent_requests),
            renewing: room(config.reserved_requests),
            releasing: room(config.reserved_requests),
            scraping: room(SCRAPES),
            refusals: RefusalCount::default(),
        }
    }

    /// The reserved limit of a class, which its requests have besides the common limit.
    fn reserved(&self, class: Class) -> Option<&ConcurrencyLimit> {
        match class {
            Class::Renews => Some(&self.renewing),
            Class::Releases => Some(&self.releasing),
            Class::Scrapes => Some(&self.scraping),
            Class::Ordinary | Class::Listens | Class::Holds | Class::Probes | Class::Preflights => {
                None
            }
        }
    }
}

// === impl RefusalCount ===

impl RefusalCount {
    /// Counts one more refusal. Returns the number of refusals if it is time to log it.
    pub(in crate::http) fn note(&self) -> Option<u64> {
        let mut refused = self.0.lock();
        let (count, logged_at) = &mut *refused;
        *count += 1;
        if logged_at.is_some_and(|logged_at| logged_at.elapsed() < NOTICE) {
            return None;
        }
        *logged_at = Some(Instant::now());
        Some(std::mem::take(count))
    }
}

// === impl ConcurrencyLimit ===

impl ConcurrencyLimit {
    fn take(&self) -> bool {
        let (on_taken, on_full) = (Ordering::Acquire, Ordering::Relaxed);
        let taken = self
            .0
            .fetch_update(on_taken, on_full, |free| free.checked_sub(1));
        taken.is_ok()
    }

    fn give_back(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

// === impl RequestPermit ===

impl RequestPermit {
    /// The state of a request that begins now and has no permit yet.
    pub(super) fn new(class: Class) -> Self {
        Self {
            class,
            taken: AtomicU8::new(NOTHING),
            began: Instant::now(),
            waited_us: AtomicU64::new(0),
            waits_since_us: AtomicU64::new(0),
        }
    }

    /// When the request began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Takes a permit for a request that has just come, unless its class takes the permit when its caller has
    /// been admitted: [`RequestPermit::take`].
    pub(super) fn begin(&self, limits: &ConcurrencyLimits) -> Result<(), Problem> {
        match self.class {
            Class::Renews | Class::Scrapes => Ok(()),
            _ => self.take(limits),
        }
    }

    /// Takes a permit for the request, if the request has none yet.
    pub(super) fn take(&self, limits: &ConcurrencyLimits) -> Result<(), Problem> {
        if !self.class.needs_permit() || self.taken.load(Ordering::Relaxed) != NOTHING {
            return Ok(());
        }
        let taken = match limits.reserved(self.class) {
            Some(room) if room.take() => RESERVED,
            _ if limits.common.take() => COMMON,
            _ => return Err(overloaded()),
        };
        self.taken.store(taken, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the permit of the request to the limit from which it was taken.
    pub(super) fn give_up(&self, limits: &ConcurrencyLimits) {
        match self.taken.swap(NOTHING, Ordering::Relaxed) {
            COMMON => limits.common.give_back(),
            RESERVED => limits
                .reserved(self.class)
                .map_or((), ConcurrencyLimit::give_back),
            _ => {}
        }
    }

    /// Gives up the permit of the request, because the request waits from now on.
    pub(super) fn wait(&self, limits: &ConcurrencyLimits) {
        self.give_up(limits);
        let since = self.elapsed_us().max(1);
        self.waits_since_us.store(since, Ordering::Relaxed);
    }

    /// Takes a permit for the request again, because its wait is over.
    pub(super) fn resume(&self, limits: &ConcurrencyLimits) -> Result<(), Problem> {
        let waited = self.waiting_us();
        self.waited_us.fetch_add(waited, Ordering::Relaxed);
        self.waits_since_us.store(0, Ordering::Relaxed);
        self.take(limits)
    }

    /// How many of the `elapsed_us` microseconds since its beginning the request did not wait.
    pub(super) fn worked_us(&self, elapsed_us: u64) -> u64 {
        let waited = self.waited_us.load(Ordering::Relaxed) + self.waiting_us();
        elapsed_us.saturating_sub(waited)
    }

    fn waiting_us(&self) -> u64 {
        match self.waits_since_us.load(Ordering::Relaxed) {
            0 => 0,
            since => self.elapsed_us().saturating_sub(since),
        }
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The problem of a request when the gateway has no room for it, or for its connection.
pub(super) fn overloaded() -> Problem {
    Problem::new(
        ProblemCode::Overloaded,
        "This gateway has as many connections or requests as it takes. Nothing happened.",
    )
    .with(Extra::RetryAfter(RETRY_AFTER_MS))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits(common: usize, reserved: usize) -> ConcurrencyLimits {
        ConcurrencyLimits::new(&HttpConfig {
            max_concurrent_requests: common,
            reserved_requests: reserved,
            ..HttpConfig::default()
        })
    }

    #[tokio::test]
    async fn a_permit_gives_back_the_room_that_it_took() {
        let limits = limits(1, 1);
        let [first, second, third] = [Class::Releases; 3].map(RequestPermit::new);
        assert!(first.begin(&limits).is_ok());
        assert!(second.begin(&limits).is_ok());
        assert!(third.begin(&limits).is_err());
        assert!(RequestPermit::new(Class::Probes).begin(&limits).is_ok());
        first.give_up(&limits);
        first.give_up(&limits);
        // The permit that `first` gave up came from the limit for releases: an ordinary request still finds none.
        assert!(RequestPermit::new(Class::Ordinary).begin(&limits).is_err());
        assert!(third.begin(&limits).is_ok());
        second.give_up(&limits);
        assert!(RequestPermit::new(Class::Ordinary).begin(&limits).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_a_request_waits_is_no_work() {
        let limits = limits(1, 1);
        let permit = RequestPermit::new(Class::Ordinary);
        permit.begin(&limits).unwrap();
        let pass = |ms| tokio::time::advance(Duration::from_millis(ms));
        pass(10).await;
        permit.wait(&limits);
        pass(100).await;
        permit.resume(&limits).unwrap();
        pass(1).await;
        permit.wait(&limits);
        pass(1_000).await;
        assert_eq!(permit.worked_us(1_111_000), 11_000);
    }
}
