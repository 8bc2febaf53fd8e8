//! How often somebody may come with a key that is not known.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Excess, Rate, leases::LeaseAccount};

/// Counts refused keys, and releases with wrong tokens, by the address that they come from.
///
/// A valid key is let in however many others were refused: behind a proxy all callers have one
/// address, and nobody must be able to shut the others out. Nor does that help to guess one: a key
/// is 256 random bits. What is saved is the log, and the work of answering.
#[derive(Debug)]
pub(super) struct AddressLimiter {
    rate: Rate,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    by_address: HashMap<IpAddr, Bucket>,
    /// When buckets that are full again are dropped next.
    sweep_at: Instant,
}

/// For how many addresses there is a bucket of their own. About a megabyte; those beyond share one.
const MOST: usize = 10_000;
/// The bucket of all others.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
/// How long it takes until an empty bucket is full.
const FILLS_IN: Duration = Duration::from_mins(1);

// === impl AddressLimiter ===

impl AddressLimiter {
    pub(super) fn new(per_minute: u64, now: Instant) -> Self {
        let burst = per_minute as f64;
        Self {
            rate: Rate {
                per_second: burst / FILLS_IN.as_secs_f64(),
                burst,
            },
            buckets: Mutex::new(Buckets {
                by_address: HashMap::new(),
                sweep_at: now + FILLS_IN,
            }),
        }
    }

    /// Counts one more, or says when the next may come.
    pub(super) fn count(&self, from: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        self.use_bucket(from, now, Bucket::take)
    }

    /// Counts one less.
    pub(super) fn refund(&self, from: Option<IpAddr>, now: Instant) {
        self.use_bucket(from, now, Bucket::refund);
    }

    fn use_bucket<T>(
        &self,
        from: Option<IpAddr>,
        now: Instant,
        use_it: impl FnOnce(&mut Bucket, Rate, Instant) -> T,
    ) -> T {
        let mut buckets = self.buckets.lock();
        let Buckets {
            by_address,
            sweep_at,
        } = &mut *buckets;
        if now >= *sweep_at {
            // A bucket that has not been used since is full, and so tells nothing.
            by_address.retain(|_, bucket| now < bucket.at + FILLS_IN);
            *sweep_at = now + FILLS_IN;
        }
        let mut from = from.map_or(OTHERS, network);
        if by_address.len() >= MOST && !by_address.contains_key(&from) {
            from = OTHERS;
        }
        let bucket = by_address.entry(from);
        let bucket = bucket.or_insert_with(|| Bucket::full(self.rate, now));
        use_it(bucket, self.rate, now)
    }
}

/// Somebody who has one IPv6 address has the 2^64 others of the same network too.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

// === Bucket ===
//
// How often something may happen: a bucket that fills up steadily.

/// A bucket that is full at first. It stores its level at the last access.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// Below zero after something that happened all the same.
    left: f64,
    at: Instant,
}

// === impl Bucket ===

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        let left = rate.burst;
        Self { left, at: now }
    }

    /// Takes one out, or says after how long there will be one.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        self.fill(rate, now);
        if self.left < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - self.left) / rate.per_second);
            // Never a moment too early: whoever comes back then is let in.
            return Err(Duration::from_millis(
                u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) + 1,
            ));
        }
        self.left -= 1.0;
        Ok(())
    }

    /// Takes one out although there may be none. The debt does not grow for ever.
    pub(super) fn force_take(&mut self, rate: Rate, now: Instant) {
        self.fill(rate, now);
        self.left = (self.left - 1.0).max(-rate.burst);
    }

    /// Puts one back that was taken for nothing.
    pub(super) fn refund(&mut self, rate: Rate, now: Instant) {
        self.fill(rate, now);
        self.left = (self.left + 1.0).min(rate.burst);
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * rate.per_second).min(rate.burst);
        self.at = now;
    }
}

// === Tally ===
//
// What a key has used of its limits at this gateway.

/// What a key has used of its limits: it belongs to the name, and outlives a change of the file.
#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: Mutex<Option<Bucket>>,
    pub(super) leases: Arc<LeaseAccount>,
    waiters: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
}

/// One of those that a limit counts; dropped, there is one less.
#[derive(Debug)]
pub struct LimitSlot(Arc<AtomicUsize>);

// === impl Tally ===

impl Tally {
    /// Counts a request.
    pub(super) fn request(&self, rate: Option<Rate>, now: Instant) -> Result<(), Excess> {
        self.bucket(rate, now, Bucket::take)
            .unwrap_or(Ok(()))
            .map_err(|retry_after| Excess::Requests { retry_after })
    }

    /// Counts a request that was carried out without being counted.
    pub(super) fn force_take(&self, rate: Option<Rate>, now: Instant) {
        self.bucket(rate, now, Bucket::force_take);
    }

    pub(super) fn waiter(&self, most: usize) -> Result<LimitSlot, Excess> {
        LimitSlot::take(&self.waiters, most).ok_or(Excess::Waiters)
    }

    pub(super) fn stream(&self, most: usize) -> Result<LimitSlot, Excess> {
        LimitSlot::take(&self.streams, most).ok_or(Excess::Streams)
    }

    /// How much of a rate is used now.
    pub(super) fn rate_reading(&self, rate: Rate) -> RateReading {
        RateReading::of(rate, self.left(rate, Instant::now()))
    }

    fn left(&self, rate: Rate, now: Instant) -> f64 {
        let look = |bucket: &mut Bucket, rate, now| {
            bucket.fill(rate, now);
            bucket.left
        };
        self.bucket(Some(rate), now, look).unwrap_or(rate.burst)
    }

    fn bucket<T>(
        &self,
        rate: Option<Rate>,
        now: Instant,
        use_it: impl FnOnce(&mut Bucket, Rate, Instant) -> T,
    ) -> Option<T> {
        let rate = rate?;
        let mut bucket = self.requests.lock();
        let bucket = bucket.get_or_insert_with(|| Bucket::full(rate, now));
        Some(use_it(bucket, rate, now))
    }
}

// === Rate reading ===
//
// What a key with a rate is told of it.

/// How many requests a key may send. All is in whole requests and seconds, and never says too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateReading {
    /// How many at once, after a pause.
    pub quota: u64,
    /// After how many seconds without a request it may send that many again, if it has sent all.
    pub window: u64,
    /// How many now.
    pub left: u64,
    /// After how many seconds it may send as many as after a pause.
    pub reset: u64,
}

// === impl RateReading ===

impl RateReading {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float that is too large or below zero becomes the nearest number"
    )]
    fn of(rate: Rate, left: f64) -> Self {
        let seconds = |requests: f64| (requests / rate.per_second).ceil() as u64;
        Self {
            quota: rate.burst.floor() as u64,
            window: seconds(rate.burst).max(1),
            left: left.floor() as u64,
            reset: seconds(rate.burst - left),
        }
    }
}

// === impl LimitSlot ===

impl LimitSlot {
    fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let before = count.fetch_add(1, Ordering::Relaxed);
        // Dropped at once if there is no room.
        let slot = Self(Arc::clone(count));
        (before < most).then_some(slot)
    }
}

impl Drop for LimitSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_its_own_and_one_ipv6_network_is_one() {
        let now = Instant::now();
        let limiter = AddressLimiter::new(2, now);
        let mut count = |text: &str| limiter.count(Some(text.parse().unwrap()), now).is_ok();
        assert_eq!(["192.0.2.1"; 3].map(&mut count), [true, true, false]);
        assert!(count("192.0.2.2"));
        let network = ["2001:db8::1", "2001:db8::2", "2001:db8::3"];
        assert_eq!(network.map(&mut count), [true, true, false]);
        assert!(count("2001:db8:0:1::1"));
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "as it is counted: an address may not be known"
    )]
    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn the_memory_is_bounded_and_forgets_who_stayed_away() {
        let now = Instant::now();
        let limiter = AddressLimiter::new(1, now);
        // With a look at all others for each of them these would be 2 * 10^9 looks.
        for number in 0..200_000 {
            let _ = limiter.count(address(number), now);
        }
        assert!(now.elapsed() < Duration::from_secs(10));
        // The others share one.
        let known = || limiter.buckets.lock().by_address.len();
        assert_eq!(known(), MOST + 1);
        assert!(limiter.count(address(300_000), now).is_err());
        let later = now + FILLS_IN;
        assert!(limiter.count(address(300_000), later).is_ok());
        assert_eq!(known(), 1);
    }

    #[test]
    fn nobody_is_new_again_before_the_time_is_over() {
        let now = Instant::now();
        let limiter = AddressLimiter::new(60, now);
        let late = now + FILLS_IN - Duration::from_secs(1);
        for _ in 0..60 {
            assert_eq!(limiter.count(address(1), late), Ok(()));
        }
        // After a sweep, and two seconds' worth.
        let next = now + FILLS_IN + Duration::from_secs(1);
        let counted = [0; 3].map(|_| limiter.count(address(1), next).is_ok());
        assert_eq!(counted, [true, true, false]);
    }

    #[test]
    fn what_is_paid_back_was_not_counted() {
        let now = Instant::now();
        let limiter = AddressLimiter::new(1, now);
        for _ in 0..5 {
            assert_eq!(limiter.count(address(1), now), Ok(()));
            limiter.refund(address(1), now);
        }
        assert_eq!(limiter.count(address(1), now), Ok(()));
        assert!(limiter.count(address(1), now).is_err());
    }

    const RATE: Rate = Rate {
        per_second: 4.0,
        burst: 2.0,
    };

    #[test]
    fn lets_a_burst_through_and_then_one_by_one() {
        let start = Instant::now();
        let mut bucket = Bucket::full(RATE, start);
        assert_eq!(bucket.take(RATE, start), Ok(()));
        assert_eq!(bucket.take(RATE, start), Ok(()));
        let wait = bucket.take(RATE, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(251));
        // A moment too early, and then in time.
        let early = start + Duration::from_millis(249);
        assert_eq!(bucket.take(RATE, early), Err(Duration::from_millis(2)));
        assert_eq!(bucket.take(RATE, start + wait), Ok(()));
        assert!(bucket.take(RATE, start + wait).is_err());
        // A long pause saves up no more than a burst.
        let later = start + Duration::from_hours(1);
        let takes = [0; 3].map(|_| bucket.take(RATE, later).is_ok());
        assert_eq!(takes, [true, true, false]);
    }

    #[test]
    fn what_is_put_back_can_be_taken_again_and_makes_it_no_fuller_than_full() {
        let start = Instant::now();
        let mut bucket = Bucket::full(RATE, start);
        bucket.refund(RATE, start);
        let takes = [0; 3].map(|_| bucket.take(RATE, start).is_ok());
        assert_eq!(takes, [true, true, false]);
        bucket.refund(RATE, start);
        let takes = [0; 2].map(|_| bucket.take(RATE, start).is_ok());
        assert_eq!(takes, [true, false]);
    }

    #[test]
    fn a_debt_is_paid_first_and_has_an_end() {
        let start = Instant::now();
        let mut bucket = Bucket::full(RATE, start);
        for _ in 0..100 {
            bucket.force_take(RATE, start);
        }
        let wait = bucket.take(RATE, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(751));
        assert_eq!(bucket.take(RATE, start + wait), Ok(()));
    }

    #[test]
    fn a_reading_never_says_too_much() {
        let rate = Rate {
            per_second: 0.5,
            burst: 10.0,
        };
        let read = |left| {
            let it = RateReading::of(rate, left);
            (it.quota, it.window, it.left, it.reset)
        };
        assert_eq!(read(10.0), (10, 20, 10, 0));
        assert_eq!(read(9.0), (10, 20, 9, 2));
        assert_eq!(read(8.9), (10, 20, 8, 3));
        assert_eq!(read(0.2), (10, 20, 0, 20));
        // After renewals that were charged.
        assert_eq!(read(-4.0), (10, 20, 0, 28));
    }

    #[test]
    fn a_slot_is_free_again_when_it_is_dropped_and_a_refusal_takes_none() {
        let tally = Tally::default();
        let first = tally.waiter(1).unwrap();
        for _ in 0..3 {
            assert_eq!(tally.waiter(1).unwrap_err(), Excess::Waiters);
        }
        // Streams are others.
        assert!(tally.stream(1).is_ok());
        drop(first);
        assert!(tally.waiter(1).is_ok());
        assert_eq!(tally.waiter(0).unwrap_err(), Excess::Waiters);
    }
}
