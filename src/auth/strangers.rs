//! How often somebody may come with a key that is not known.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Mutex,
    time::Duration,
};

use tokio::time::Instant;

use super::{Rate, bucket::Bucket};

/// Counts refused keys by the address that they come from.
///
/// A valid key is let in however many others were refused: behind a proxy all callers have one
/// address, and nobody must be able to shut the others out. Nor does that help to guess one: a key
/// is 256 random bits. What is saved is the log, and the work of answering.
#[derive(Debug)]
pub(super) struct Strangers {
    rate: Rate,
    seen: Mutex<HashMap<IpAddr, Bucket>>,
}

/// For how many addresses there is a bucket of their own. About a megabyte; those beyond share one.
const MOST: usize = 10_000;
/// The bucket of all others.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

// === impl Strangers ===

impl Strangers {
    pub(super) fn new(per_minute: u64) -> Self {
        let burst = per_minute as f64;
        Self {
            rate: Rate {
                per_second: burst / 60.0,
                burst,
            },
            seen: Mutex::default(),
        }
    }

    /// Counts one more, or says when the next may come.
    pub(super) fn count(&self, from: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let mut seen = self.seen.lock().expect("no code panics while it counts");
        let mut from = from.map_or(OTHERS, network);
        if seen.len() >= MOST && !seen.contains_key(&from) {
            // Who has stayed away for long enough is as good as new.
            seen.retain(|_, bucket| !bucket.is_full(self.rate, now));
            if seen.len() >= MOST {
                from = OTHERS;
            }
        }
        let bucket = seen.entry(from);
        bucket
            .or_insert_with(|| Bucket::full(self.rate, now))
            .take(self.rate, now)
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
        let strangers = Strangers::new(2);
        let now = Instant::now();
        let mut count = |text: &str| strangers.count(Some(text.parse().unwrap()), now).is_ok();
        assert_eq!(["192.0.2.1"; 3].map(&mut count), [true, true, false]);
        assert!(count("192.0.2.2"));
        let network = ["2001:db8::1", "2001:db8::2", "2001:db8::3"];
        assert_eq!(network.map(&mut count), [true, true, false]);
        assert!(count("2001:db8:0:1::1"));
    }

    #[test]
    fn the_memory_is_bounded_and_forgets_who_stayed_away() {
        let strangers = Strangers::new(1);
        let now = Instant::now();
        let address = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        for number in 0..20_000 {
            let _ = strangers.count(address(number), now);
        }
        // The others share one.
        assert_eq!(strangers.seen.lock().unwrap().len(), MOST + 1);
        assert!(strangers.count(address(30_000), now).is_err());
        let later = now + Duration::from_mins(1);
        assert!(strangers.count(address(30_000), later).is_ok());
        assert_eq!(strangers.seen.lock().unwrap().len(), 1);
    }
}
