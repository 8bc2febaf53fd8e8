//! How many requests are worked on at once.
//!
//! Renew has room of its own, and release too, so that other requests, however many, cost nobody a lock. They
//! do not share it, because a release needs no API key and a renewal does.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use tokio::time::{Duration, Instant};

use crate::{
    config::HttpConfig,
    http::problem::{Extra, Problem, ProblemCode},
};

use super::routes::Class;

/// The room for requests that are worked on.
#[derive(Debug)]
pub(super) struct ConcurrencyLimits {
    common: ConcurrencyLimit,
    renewing: ConcurrencyLimit,
    releasing: ConcurrencyLimit,
    scraping: ConcurrencyLimit,
    pub(super) refusals: RefusalCount,
}

/// Counts what was refused since that was logged, and when it was.
#[derive(Debug, Default)]
pub(in crate::http) struct RefusalCount(Mutex<(u64, Option<Instant>)>);

/// Room for so many requests.
#[derive(Debug)]
struct ConcurrencyLimit(AtomicUsize);

/// A request's permit to be worked on, which it gives up while it only waits.
#[derive(Debug)]
pub(super) struct RequestPermit {
    class: Class,
    /// Which room it has taken: one of the constants below.
    taken: AtomicU8,
    began: Instant,
    /// For how many microseconds of its time the request had given the permit up.
    waited_us: AtomicU64,
    /// When it gave the permit up, in microseconds from its beginning.
    waits_since_us: AtomicU64,
}

const NOTHING: u8 = 0;
const COMMON: u8 = 1;
const RESERVED: u8 = 2;

/// How many may ask for metrics at once although there is no room: a pair of Prometheus servers, and a
/// person.
const SCRAPES: usize = 4;

/// After how long to ask again, in milliseconds: a request is worked on for much less.
const RETRY_AFTER_MS: u64 = 1_000;
/// How often at most it is logged that requests, or connections, were refused.
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

    /// The room that requests of a class have besides the common one.
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
    /// Counts one more. Answers how many there are, if it is time to log that.
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
    /// The permit of a request that begins now, and has no room yet.
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

    /// Takes room for a request that has just come, unless it takes its room when its caller has been let
    /// in: [`RequestPermit::take`].
    pub(super) fn begin(&self, limits: &ConcurrencyLimits) -> Result<(), Problem> {
        match self.class {
            Class::Renews | Class::Scrapes => Ok(()),
            _ => self.take(limits),
        }
    }

    /// Takes room, if the request has none yet.
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

    /// Gives its room to others.
    pub(super) fn give_up(&self, limits: &ConcurrencyLimits) {
        match self.taken.swap(NOTHING, Ordering::Relaxed) {
            COMMON => limits.common.give_back(),
            RESERVED => limits
                .reserved(self.class)
                .map_or((), ConcurrencyLimit::give_back),
            _ => {}
        }
    }

    /// Gives its room to others, because the request waits from now on.
    pub(super) fn wait(&self, limits: &ConcurrencyLimits) {
        self.give_up(limits);
        let since = self.elapsed_us().max(1);
        self.waits_since_us.store(since, Ordering::Relaxed);
    }

    /// Takes room again, because what the request has waited for is there.
    pub(super) fn resume(&self, limits: &ConcurrencyLimits) -> Result<(), Problem> {
        let waited = self.waiting_us();
        self.waited_us.fetch_add(waited, Ordering::Relaxed);
        self.waits_since_us.store(0, Ordering::Relaxed);
        self.take(limits)
    }

    /// Of this time since the request began, how many microseconds it did not wait.
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

/// The gateway has no room for the request, or for its connection.
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
        // The room of those who release, and not the common one.
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
