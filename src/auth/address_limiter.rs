//! Limits: how many unknown keys an address may send, and how much of its limits an API key has used.

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

/// Limits refused keys, and releases with wrong tokens, by the address that sends them.
///
/// A valid key is admitted however many keys of its address were refused: behind a proxy all callers have one
/// address, and no caller must be able to lock the others out. This does not help an attacker, because a key has 256
/// random bits and cannot be guessed. The limit protects the log, and saves the work of answering.
#[derive(Debug)]
pub(super) struct AddressLimiter {
    rate: Rate,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    by_address: HashMap<IpAddr, Bucket>,
    /// When buckets that are full again, and so need not be remembered, are removed next.
    sweep_at: Instant,
}

/// How many addresses have a bucket of their own, which takes about a megabyte of memory. All further addresses
/// share a bucket.
const MAX_ADDRESSES: usize = 10_000;
/// The address that stands for all addresses beyond `MAX_ADDRESSES`, which share one bucket.
const SHARED_ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
/// How long the empty bucket of an address takes to fill up.
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

    /// Counts one refusal against the limit of an address; fails with the time that the address must wait if the
    /// limit is reached.
    pub(super) fn count(&self, from: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        self.use_bucket(from, now, Bucket::take)
    }

    /// Fails like [`AddressLimiter::count`] if the limit is reached, and counts nothing.
    pub(super) fn look(&self, from: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        self.use_bucket(from, now, |bucket, rate, now| {
            let mut copy = *bucket;
            copy.take(rate, now)
        })
    }

    /// Takes back one refusal that was counted against an address.
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
            // A bucket that has not been used for `FILLS_IN` is full, like a new bucket.
            by_address.retain(|_, bucket| now < bucket.at + FILLS_IN);
            *sweep_at = now + FILLS_IN;
        }
        let mut from = from.map_or(SHARED_ADDRESS, network);
        if by_address.len() >= MAX_ADDRESSES && !by_address.contains_key(&from) {
            from = SHARED_ADDRESS;
        }
        let bucket = by_address.entry(from);
        let bucket = bucket.or_insert_with(|| Bucket::full(self.rate, now));
        use_it(bucket, self.rate, now)
    }
}

/// The network of an address: a caller with one IPv6 address usually has the 2^64 others of its network, too.
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
// Limits how often something may happen: a bucket that fills up steadily.

/// A token bucket, which limits the rate of requests. It is full at first, and stores its level at the last access.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// How many requests may come at once. Below zero after requests that were counted although the bucket was
    /// empty.
    left: f64,
    at: Instant,
}

// === impl Bucket ===

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        let left = rate.burst;
        Self { left, at: now }
    }

    /// Takes one request out of the bucket; fails with the time until the bucket has room for a request.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        self.fill(rate, now);
        if self.left < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - self.left) / rate.per_second);
            // The time is rounded up, so that a caller that comes back at that time is not refused again.
            return Err(Duration::from_millis(
                u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) + 1,
            ));
        }
        self.left -= 1.0;
        Ok(())
    }

    /// Takes one request out although the bucket may be empty. The debt is at most one burst.
    pub(super) fn force_take(&mut self, rate: Rate, now: Instant) {
        self.fill(rate, now);
        self.left = (self.left - 1.0).max(-rate.burst);
    }

    /// Puts one request back into the bucket, because it need not have been counted.
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
// How much of its limits an API key has used at this gateway.

/// How much of its limits an API key has used. A tally belongs to the key's name, and outlives a change of the file.
#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: Mutex<Option<Bucket>>,
    checks: Mutex<Option<Bucket>>,
    pub(super) leases: Arc<LeaseAccount>,
    waiters: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
}

/// One waiter or stream that a limit counts, until the slot is dropped.
#[derive(Debug)]
pub struct LimitSlot(Arc<AtomicUsize>);

// === impl Tally ===

impl Tally {
    /// Counts a request against the rate of the key; fails with the time until the next request may come if the rate
    /// is used up.
    pub(super) fn request(&self, rate: Option<Rate>, now: Instant) -> Result<(), Excess> {
        Self::bucket(&self.requests, rate, now, Bucket::take)
            .unwrap_or(Ok(()))
            .map_err(|retry_after| Excess::Requests { retry_after })
    }

    /// Counts a check of a fencing token against this rate; fails as `request` does.
    pub(super) fn check(&self, rate: Rate, now: Instant) -> Result<(), Excess> {
        Self::bucket(&self.checks, Some(rate), now, Bucket::take)
            .unwrap_or(Ok(()))
            .map_err(|retry_after| Excess::Requests { retry_after })
    }

    /// Counts a request that was carried out before it could be refused.
    pub(super) fn force_take(&self, rate: Option<Rate>, now: Instant) {
        Self::bucket(&self.requests, rate, now, Bucket::force_take);
    }

    pub(super) fn waiter(&self, most: usize) -> Result<LimitSlot, Excess> {
        LimitSlot::take(&self.waiters, most).ok_or(Excess::Waiters)
    }

    pub(super) fn stream(&self, most: usize) -> Result<LimitSlot, Excess> {
        LimitSlot::take(&self.streams, most).ok_or(Excess::Streams)
    }

    /// How much of a rate is left now.
    pub(super) fn rate_reading(&self, rate: Rate) -> RateReading {
        RateReading::new(rate, self.left(rate, Instant::now()))
    }

    fn left(&self, rate: Rate, now: Instant) -> f64 {
        let look = |bucket: &mut Bucket, rate, now| {
            bucket.fill(rate, now);
            bucket.left
        };
        Self::bucket(&self.requests, Some(rate), now, look).unwrap_or(rate.burst)
    }

    fn bucket<T>(
        bucket: &Mutex<Option<Bucket>>,
        rate: Option<Rate>,
        now: Instant,
        use_it: impl FnOnce(&mut Bucket, Rate, Instant) -> T,
    ) -> Option<T> {
        let rate = rate?;
        let mut bucket = bucket.lock();
        let bucket = bucket.get_or_insert_with(|| Bucket::full(rate, now));
        Some(use_it(bucket, rate, now))
    }
}

// === Rate reading ===
//
// The state of its rate that a key is told in the answers.

/// How many requests a key may send, in whole requests and seconds, rounded so that it never says too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateReading {
    /// How many requests the key may send at once, after a pause.
    pub quota: u64,
    /// After how many seconds without a request a key that has sent `quota` requests may send as many again.
    pub window: u64,
    /// How many requests the key may send now.
    pub left: u64,
    /// After how many seconds the key may send `quota` requests.
    pub reset: u64,
}

// === impl RateReading ===

impl RateReading {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float that is too large or below zero becomes the nearest number"
    )]
    fn new(rate: Rate, left: f64) -> Self {
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
        // If the limit is reached, the slot is dropped here, which lowers the count again.
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
        // If each call went through all other addresses, there would be 2 * 10^9 visits.
        for number in 0..200_000 {
            let _ = limiter.count(address(number), now);
        }
        assert!(now.elapsed() < Duration::from_secs(10));
        // All addresses beyond `MAX_ADDRESSES` share one bucket.
        let known = || limiter.buckets.lock().by_address.len();
        assert_eq!(known(), MAX_ADDRESSES + 1);
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
        // The bucket survives the sweep at `next`, and has filled by two requests since its last use.
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
        // The first request comes a moment too early and is refused; the second comes in time.
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
            let it = RateReading::new(rate, left);
            (it.quota, it.window, it.left, it.reset)
        };
        assert_eq!(read(10.0), (10, 20, 10, 0));
        assert_eq!(read(9.0), (10, 20, 9, 2));
        assert_eq!(read(8.9), (10, 20, 8, 3));
        assert_eq!(read(0.2), (10, 20, 0, 20));
        // Renewals count but are never refused, so the number of requests left can be negative; 0 is reported.
        assert_eq!(read(-4.0), (10, 20, 0, 28));
    }

    #[test]
    fn a_slot_is_free_again_when_it_is_dropped_and_a_refusal_takes_none() {
        let tally = Tally::default();
        let first = tally.waiter(1).unwrap();
        for _ in 0..3 {
            assert_eq!(tally.waiter(1).unwrap_err(), Excess::Waiters);
        }
        // Streams and waiters have separate limits.
        assert!(tally.stream(1).is_ok());
        drop(first);
        assert!(tally.waiter(1).is_ok());
        assert_eq!(tally.waiter(0).unwrap_err(), Excess::Waiters);
    }
}
