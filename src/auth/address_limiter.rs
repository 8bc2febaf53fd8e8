//! How often somebody may come with a key that is not known.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

use super::{Rate, bucket::Bucket};

/// Counts refused keys, and releases with wrong tokens, by the address that they come from.
///
/// A valid key is let in however many others were refused: behind a proxy all callers have one
/// address, and nobody must be able to shut the others out. Nor does that help to guess one: a key
/// is 256 random bits. What is saved is the log, and the work of answering.
#[derive(Debug)]
pub(super) struct AddressLimiter {
    rate: Rate,
    generations: Mutex<Generations>,
}

/// Two generations, so that nobody is searched for: after the time in which a bucket fills up, those
/// who have not come are as good as new, and all of them are forgotten at once.
#[derive(Debug)]
struct Generations {
    young: HashMap<IpAddr, Bucket>,
    old: HashMap<IpAddr, Bucket>,
    /// Since when there are these young ones.
    since: Instant,
}

/// For how many addresses of a generation there is a bucket of their own. About a megabyte; those
/// beyond share one.
const MOST: usize = 10_000;
/// The bucket of all others.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
/// How long it takes until an empty bucket is full.
const GENERATION: Duration = Duration::from_mins(1);

// === impl AddressLimiter ===

impl AddressLimiter {
    pub(super) fn new(per_minute: u64, now: Instant) -> Self {
        let burst = per_minute as f64;
        Self {
            rate: Rate {
                per_second: burst / GENERATION.as_secs_f64(),
                burst,
            },
            generations: Mutex::new(Generations {
                young: HashMap::new(),
                old: HashMap::new(),
                since: now,
            }),
        }
    }

    /// Counts one more, or says when the next may come.
    pub(super) fn count(&self, from: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let full = Bucket::full(self.rate, now);
        let mut generations = self.lock();
        generations.bucket(from, now, full).take(self.rate, now)
    }

    /// Counts one less.
    pub(super) fn refund(&self, from: Option<IpAddr>, now: Instant) {
        let full = Bucket::full(self.rate, now);
        let mut generations = self.lock();
        generations.bucket(from, now, full).refund(self.rate, now);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations
            .lock()
            .expect("no code panics while it counts")
    }
}

// === impl Generations ===

impl Generations {
    fn bucket(&mut self, from: Option<IpAddr>, now: Instant, full: Bucket) -> &mut Bucket {
        let age = now.saturating_duration_since(self.since);
        if age >= GENERATION {
            self.old = std::mem::take(&mut self.young);
            if age >= 2 * GENERATION {
                self.old = HashMap::new();
            }
            self.since = now;
        }
        let mut from = from.map_or(OTHERS, network);
        if self.young.len() >= MOST && !self.young.contains_key(&from) {
            from = OTHERS;
        }
        let old = &mut self.old;
        let bucket = self.young.entry(from);
        bucket.or_insert_with(|| old.remove(&from).unwrap_or(full))
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
        for number in 0..20_000 {
            let _ = limiter.count(address(number), now);
        }
        // The others share one.
        let known = || {
            let generations = limiter.lock();
            (generations.young.len(), generations.old.len())
        };
        assert_eq!(known(), (MOST + 1, 0));
        assert!(limiter.count(address(30_000), now).is_err());
        let later = now + GENERATION;
        assert!(limiter.count(address(30_000), later).is_ok());
        assert_eq!(known(), (1, MOST + 1));
        assert!(limiter.count(address(30_001), later + GENERATION).is_ok());
        assert_eq!(known(), (1, 1));
    }

    #[test]
    fn nobody_is_new_again_before_the_time_is_over() {
        let now = Instant::now();
        let limiter = AddressLimiter::new(60, now);
        let late = now + GENERATION - Duration::from_secs(1);
        for _ in 0..60 {
            assert_eq!(limiter.count(address(1), late), Ok(()));
        }
        // A new generation, and two seconds' worth.
        let next = now + GENERATION + Duration::from_secs(1);
        let counted = [0; 3].map(|_| limiter.count(address(1), next).is_ok());
        assert_eq!(counted, [true, true, false]);
    }

    #[test]
    fn a_crowd_costs_each_who_comes_no_search() {
        let now = Instant::now();
        let limiter = AddressLimiter::new(1, now);
        // With a look at all others for each of them these would be 2 * 10^9 looks.
        for number in 0..200_000 {
            let _ = limiter.count(address(number), now);
        }
        assert_eq!(limiter.lock().young.len(), MOST + 1);
        assert!(now.elapsed() < Duration::from_secs(10));
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
}
